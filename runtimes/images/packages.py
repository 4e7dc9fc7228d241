"""Packages part of an image: installed by uv from a lock with hashes, pruned, compiled, with needed libraries."""

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

from runtimes.compiled_code import CompiledCode
from runtimes.images import libraries
from runtimes.images.facts import Component, Facts, merged

#: Patterns of files not needed at run time, relative to the packages' folder. The images' tests import the rest.
UNNEEDED = (
    "bin",  # programs; the server's images get uv back (parts.py), which installs the packages of models
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
    "pyarrow/libarrow_s3*",  # object stores are read by this project's own clients
    "pyarrow/_s3fs*",
    "pyarrow/_pyarrow_cpp_tests*",
    "tensorflow/include",
    "clang",  # what libclang brings; TensorFlow names it and never imports it
    "matplotlib/mpl-data/sample_data",
    "kubernetes/aio",  # an asynchronous client, and what it alone needs
    "aiohttp",
    "aiohttp_retry",
    "aiosignal",
    "aiohappyeyeballs",
    "frozenlist",
    "multidict",
    "propcache",
    "yarl",
    "kubernetes/*_test.py",
    "kubernetes/client/api/[a-z]*.py",  # typed calls and objects, imported when they are first named: kube/ names none
    "kubernetes/client/models/[a-z]*.py",
    "ai_edge_litert/vendors",  # plugins for accelerators, linked to what their vendors install
    "ai_edge_litert/libLiteRtWebGpuAccelerator.so",
    "onnxruntime/transformers",  # for making models, not for running them
    "onnxruntime/quantization",
    "onnxruntime/tools",
    "sumo_data/data/3D",  # what SUMO's windows show, and in which language
    "sumo_data/data/locale",
    "sumo_data/data/po",
)
#: Exceptions from the patterns above: numpy.testing imports them.
NEEDED = ("numpy/_core/tests/__init__.py", "numpy/_core/tests/_natype.py")


def install(
    lock: str,
    root: Path,
    site: str,
    before: Sequence[Facts],
    compiled: CompiledCode | None = None,
    *,
    sent: bool = False,
) -> Facts:
    """Install a lock's packages under ``root / site``, with libraries of this machine that earlier parts lack.

    ``compiled``: code to build against the packages. Unlike an installation, an image has to have it. ``sent``: the
    packages are used in other images, by programs: with their own programs and headers, and libraries beside them.
    """
    target = root / site
    target.mkdir(parents=True)
    command = [uv.find_uv_bin(), "pip", "install", "--python", sys.executable, "--target", str(target)]
    command += ["--require-hashes", "--no-build", "--no-deps", "--link-mode=copy", "--no-python-downloads"]
    command += ["--no-config", "--quiet", "-r", "-"]
    subprocess.run(command, input=lock, text=True, check=True)
    if not sent:
        prune(target)
    if compiled is not None:
        compiled.build(target)
    owners = _copy_libraries(root, target, set(merged(before).libraries), beside=sent)
    compile_all(target, root)
    components = (*debian(libraries.packages(owners.values())), *_distributions(target))
    return Facts(tuple(sorted(components)), tuple(sorted(owners)))


def prune(site: Path) -> None:
    """Remove the files that are not needed at run time."""
    kept = {name: (site / name).read_bytes() for name in NEEDED if (site / name).exists()}
    for folder, folders, files in os.walk(site):
        for name in [*folders, *files]:
            path = Path(folder, name)
            relative = str(path.relative_to(site))
            if not any(fnmatch.fnmatchcase(relative, pattern) for pattern in UNNEEDED):
                continue
            if name in folders:
                shutil.rmtree(path)
                folders.remove(name)
            else:
                path.unlink()
    for name, content in kept.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_bytes(content)


def _copy_libraries(root: Path, site: Path, there: set[str], *, beside: bool) -> Mapping[str, Path]:
    """Copy the libraries of this machine that packages need to the loader's folder, or to one ``beside`` them."""
    own = {path.name for path in site.rglob("*.so*")}
    programs = (site / "bin").glob("*") if beside else ()
    needed = libraries.needs(path for path in (*site.rglob("*.so*"), *programs) if libraries.is_elf(path))
    # A package may load its own libraries itself from paths that the loader does not search.
    if missing := needed.missing - own:
        raise libraries.MissingLibrary(
            f"{site} needs {', '.join(sorted(missing))}, which are not installed on this machine"
        )
    copied = {
        name: path
        for name, path in needed.libraries.items()
        if name not in there and name not in own and site not in path.parents
    }
    folder = site / "lib" if beside else root / str(needed.libraries["libc.so.6"].parent).lstrip("/")
    for name, path in copied.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return copied


def compile_all(folder: Path, root: Path) -> None:
    """Compile bytecode sequentially in a process with PYTHONHASHSEED=0, so that equal sources give equal bytes."""
    command = [sys.executable, "-m", "compileall", "-qq", "-f", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(root), "-p", "/", str(folder)]
    # Packages contain files for other Python versions, so a file that does not compile is not an error.
    subprocess.run(command, cwd="/", env={"PYTHONHASHSEED": "0", "PATH": os.defpath})


def debian(owners: Mapping[str, str]) -> tuple[Component, ...]:
    """Return Debian packages (name: version) as components."""
    return tuple(
        Component("library", name, version, f"pkg:deb/debian/{name}@{quote(version, safe='')}")
        for name, version in sorted(owners.items())
    )


def _distributions(site: Path) -> Iterator[Component]:
    for path in sorted(site.glob("*.dist-info/METADATA")):
        metadata = email.message_from_string(path.read_text(errors="replace"))
        name, version = metadata["Name"].lower().replace("_", "-"), metadata["Version"]
        licence = metadata["License-Expression"] or ""
        yield Component(
            kind="library",
            name=name,
            version=version,
            purl=f"pkg:pypi/{name}@{quote(version, safe='')}",
            licence=licence,
        )
