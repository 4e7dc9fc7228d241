"""The machine's shared libraries that some files need, found by the loader itself, and the packages they came from."""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

#: Files told to one ldd.
BATCH = 64


@dataclass(frozen=True, slots=True)
class Needs:
    """What files are linked to: libraries by name, the loader itself, and names that nobody knew."""

    libraries: Mapping[str, Path]
    loader: Path | None
    missing: frozenset[str]


class MissingLibrary(Exception):
    """A shared library that something needs is not on this machine."""


def is_elf(path: Path) -> bool:
    """Tell whether a file is a program or a shared library."""
    if path.is_symlink() or not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def needs(paths: Iterable[Path]) -> Needs:
    """Ask the loader what files would be given."""
    libraries: dict[str, Path] = {}
    missing: set[str] = set()
    loader = None
    for line in _ldd(sorted(paths)):
        if found := re.match(r"\t(\S+) => (/\S+) \(", line):
            libraries.setdefault(os.path.basename(found[1]), Path(found[2]))
        elif found := re.match(r"\t(\S+) => not found", line):
            missing.add(found[1])
        elif found := re.match(r"\t(/\S+) \(", line):
            loader = Path(found[1])
    return Needs(libraries, loader, frozenset(missing - set(libraries)))


def _ldd(paths: list[Path]) -> Iterator[str]:
    for start in range(0, len(paths), BATCH):
        command = ["ldd", *map(str, paths[start : start + BATCH])]
        # It ends with 1 as soon as one of them is static, which is no fault.
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=_PLAIN)
        yield from done.stdout.splitlines()


#: Libraries of whoever builds are none of an image's.
_PLAIN = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def packages(paths: Iterable[Path]) -> Mapping[str, str]:
    """Return the Debian packages (name: version) that files came from; none where there is no dpkg."""
    patterns = sorted({f"*{os.path.realpath(path).removeprefix('/usr')}" for path in paths})
    try:
        owners = subprocess.run(["dpkg-query", "-S", *patterns], capture_output=True, text=True, env=_PLAIN).stdout
        names = sorted({line.split(":")[0] for line in owners.splitlines() if not line.startswith("diversion")})
        form = "-f=${Package}=${Version}\n"
        versions = subprocess.run(["dpkg-query", "-W", form, *names], capture_output=True, text=True, env=_PLAIN).stdout
    except FileNotFoundError:
        return {}
    return dict(line.split("=", 1) for line in versions.splitlines())
