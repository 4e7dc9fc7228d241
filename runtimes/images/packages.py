"""Packages as a part of an image: installed by uv from a hashed lock, pruned, compiled, with libraries they need."""

import email
import fnmatch
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import uv

from runtimes.images import libraries
from runtimes.images.facts import Component, Facts, gathered

#: What running needs no more, relative to the packages' folder. An image's test imports what is left.
UNNEEDED = (
    "bin",  # programs, uv's own among them: nothing is installed in a cluster, and environments are images
    ".lock",
    "tests",
    "*/tests",
    "*.pyi",
    "*.pyx",
    "*.pxd",
    "*.h",
    "*.hpp",
    "*.a",
    "*/__pycache__",
    "*.dist-info/RECORD",
    "*.dist-info/INSTALLER",
    "*.dist-info/REQUESTED",
    "*.dist-info/direct_url.json",
    "*.dist-info/sboms",
    "pyarrow/include",
    "pyarrow/src",
    "pyarrow/libarrow_flight*",
    "pyarrow/libarrow_python_flight*",
    "pyarrow/_flight*",
    "pyarrow/libarrow_s3*",  # our stores are read by our own clients
    "pyarrow/_s3fs*",
    "pyarrow/_pyarrow_cpp_tests*",
    "tensorflow/include",
    "clang",  # what libclang brings; TensorFlow names it and never imports it
    "matplotlib/mpl-data/sample_data",
    "ai_edge_litert/vendors",  # plugins for accelerators, linked to what their vendors install
    "ai_edge_litert/libLiteRtWebGpuAccelerator.so",
    "onnxruntime/transformers",  # for making models, not for running them
    "onnxruntime/quantization",
    "onnxruntime/tools",
    "sumo_data/data/3D",  # what SUMO's windows show, and in which language
    "sumo_data/data/locale",
    "sumo_data/data/po",
)
#: numpy.testing imports this one at its head.
NEEDED = ("numpy/_core/tests/__init__.py", "numpy/_core/tests/_natype.py")


def install(lock: str, root: Path, site: str, before: Sequence[Facts]) -> Facts:
    """Lay a lock's packages under ``root / site``, and the libraries of this machine that those before do not bring."""
    target = root / site
    target.mkdir(parents=True)
    command = [uv.find_uv_bin(), "pip", "install", "--python", sys.executable, "--target", str(target)]
    command += ["--require-hashes", "--no-build", "--no-deps", "--link-mode=copy", "--no-python-downloads"]
    command += ["--no-config", "--quiet", "-r", "-"]
    subprocess.run(command, input=lock, text=True, check=True)
    prune(target)
    owners = _bring_libraries(root, target, set(gathered(before).libraries))
    compile_all(target, root)
    components = (*debian(libraries.packages(owners.values())), *_distributions(target))
    return Facts(tuple(sorted(components)), tuple(sorted(owners)))


def prune(site: Path) -> None:
    """Take away what running needs no more."""
    kept = {name: (site / name).read_bytes() for name in NEEDED if (site / name).exists()}
    for folder, folders, files in os.walk(site):
        for name in [*folders, *files]:
            path = Path(folder, name)
            told = str(path.relative_to(site))
            if not any(fnmatch.fnmatchcase(told, pattern) for pattern in UNNEEDED):
                continue
            if name in folders:
                shutil.rmtree(path)
                folders.remove(name)
            else:
                path.unlink()
    for name, content in kept.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_bytes(content)


def _bring_libraries(root: Path, site: Path, there: set[str]) -> Mapping[str, Path]:
    own = {path.name for path in site.rglob("*.so*")}
    found = libraries.needs(path for path in site.rglob("*.so*") if libraries.is_elf(path))
    # A package may load its own before anything asks for them, where the loader alone would not find them.
    if missing := found.missing - own:
        raise libraries.MissingLibrary(f"{site} needs {', '.join(sorted(missing))}, which this machine has not")
    brought = {
        name: path
        for name, path in found.libraries.items()
        if name not in there and name not in own and site not in path.parents
    }
    for name, path in brought.items():
        target = root / str(found.libraries["libc.so.6"].parent).lstrip("/") / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return brought


def compile_all(folder: Path, root: Path) -> None:
    """Compile for good: one after the other, in one process without chance, so that equal sources give equal bytes."""
    command = [sys.executable, "-m", "compileall", "-qq", "-f", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(root), "-p", "/", str(folder)]
    # Packages carry files that are no Python of this version, so that one which does not compile is no fault.
    subprocess.run(command, cwd="/", env={"PYTHONHASHSEED": "0", "PATH": os.defpath})


def debian(owners: Mapping[str, str]) -> tuple[Component, ...]:
    """Return Debian's packages as components."""
    return tuple(
        Component("library", name, version, f"pkg:deb/debian/{name}@{quote(version, safe='')}")
        for name, version in sorted(owners.items())
    )


def _distributions(site: Path) -> Iterator[Component]:
    for path in sorted(site.glob("*.dist-info/METADATA")):
        told = email.message_from_string(path.read_text(errors="replace"))
        name, version = told["Name"].lower().replace("_", "-"), told["Version"]
        licence = told["License-Expression"] or ""
        yield Component("library", name, version, f"pkg:pypi/{name}@{quote(version, safe='')}", licence)
