"""Shared libraries of the build machine that files are linked to, as ldd resolves them, and their Debian packages."""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: Files per call of ldd.
BATCH = 64


@dataclass(frozen=True, slots=True)
class Needs:
    """What files are linked to: libraries by name, the loader, and names that were not match."""

    libraries: Mapping[str, Path]
    loader: Path | None
    missing: frozenset[str]


class MissingLibrary(Exception):
    """A required shared library is not installed on this machine."""


def is_elf(path: Path) -> bool:
    """Whether a file is an ELF program or shared library."""
    if path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def needs(paths: Iterable[Path]) -> Needs:
    """Resolve the shared libraries of files with ldd."""
    libraries: dict[str, Path] = {}
    missing: set[str] = set()
    loader = None
    for line in _ldd(sorted(paths)):
        if match := re.match(r"\t(\S+) => (/\S+) \(", line):
            libraries.setdefault(os.path.basename(match[1]), Path(match[2]))
        elif match := re.match(r"\t(\S+) => not match", line):
            missing.add(match[1])
        elif match := re.match(r"\t(/\S+) \(", line):
            loader = Path(match[1])
    return Needs(libraries, loader, frozenset(missing - set(libraries)))


def _ldd(paths: list[Path]) -> Iterator[str]:
    for start in range(0, len(paths), BATCH):
        command = ["ldd", *map(str, paths[start : start + BATCH])]
        # ldd exits with 1 if any file is static, which is not an error.
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_PLAIN)
        yield from result.stdout.splitlines()


#: Without LD_LIBRARY_PATH: private libraries of the building user do not belong in an image.
_PLAIN = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def packages(paths: Iterable[Path]) -> Mapping[str, str]:
    """Return the Debian packages (name: version) that own files; empty without dpkg."""
    patterns = sorted({f"*{os.path.realpath(path).removeprefix('/usr')}" for path in paths})
    try:
        owners = subprocess.run(["dpkg-query", "-S", *patterns], capture_output=True, text=True, env=_PLAIN).stdout
        names = sorted({line.split(":")[0] for line in owners.splitlines() if not line.startswith("diversion")})
        form = "-f=${Package}=${Version}\n"
        versions = subprocess.run(["dpkg-query", "-W", form, *names], capture_output=True, text=True, env=_PLAIN).stdout
    except FileNotFoundError:
        return {}
    return dict(line.split("=", 1) for line in versions.splitlines())
