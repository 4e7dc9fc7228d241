"""Make a wheel of an unpacked python3-torch of Debian and its libraries: make_wheel.py ROOT PATCHELF OUT."""

import base64
import hashlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

#: What pip sees. Debian built it against numpy 1.24, whose C interface changed in 2.0.
REQUIRES = ("numpy<2", "typing-extensions")
#: Folders of the package that only a compiler or a test reads.
LEFT_OUT = ("include", "share", "test", "testing/_internal")
NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")


def needed(library: Path) -> list[str]:
    """Return the names of the libraries that a library is linked with."""
    output = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    return NEEDED.findall(output)


def closure(start: list[Path], available: Mapping[str, Path]) -> dict[str, Path]:
    """Return the libraries that others need, one after the other, by name; those of the system are left out."""
    found: dict[str, Path] = {}
    waiting = [name for library in start for name in needed(library)]
    while waiting:
        name = waiting.pop()
        if name in available and name not in found:
            found[name] = available[name]
            waiting += needed(available[name])
    return found


def files_of(root: Path, patchelf: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of the wheel with their names in it."""
    packages = root / "usr/lib/python3/dist-packages"
    package = packages / "torch"
    available = {path.name: path.resolve() for path in sorted(root.rglob("lib*.so*")) if path.resolve().is_file()}
    extensions = sorted(package.glob("*.so"))
    own = sorted(path for path in (package / "lib").glob("*.so*"))
    libraries = closure(extensions + [path.resolve() for path in own if path.resolve().is_file()], available)
    for library in libraries.values():
        # The path of the library that is loaded first holds for all that it needs, unlike RUNPATH.
        subprocess.run([patchelf, "--force-rpath", "--set-rpath", "$ORIGIN", library], check=True)
    for extension in extensions:
        subprocess.run([patchelf, "--force-rpath", "--set-rpath", "$ORIGIN/lib", extension], check=True)
    yield from ((f"torch/lib/{name}", library) for name, library in sorted(libraries.items()))
    known = {f"torch/lib/{name}" for name in libraries}
    for folder in ("torch", "torchgen", "functorch"):
        for path in sorted((packages / folder).rglob("*")):
            name = str(path.relative_to(packages))
            left_out = any(name.startswith(f"torch/{part}/") for part in LEFT_OUT)
            if path.is_file() and not left_out and name not in known and "__pycache__" not in name:
                yield name, path.resolve()


def write(root: Path, patchelf: str, folder: Path) -> None:
    """Write the wheel (https://packaging.python.org/en/latest/specifications/binary-distribution-format/)."""
    version = "1.13.1"
    info, tag = f"torch-{version}.dist-info", "cp311-cp311-linux_x86_64"
    metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in REQUIRES)
    texts = {
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: make_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n",
    }
    record = []
    target = folder / f"torch-{version}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, path in files_of(root, patchelf):
            data = path.read_bytes()
            record.append(f"{name},{_hash(data)},{len(data)}")
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 1)
        for name, text in texts.items():
            record.append(f"{name},{_hash(text.encode())},{len(text.encode())}")
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))


def _hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve(), sys.argv[2], Path(sys.argv[3]))
