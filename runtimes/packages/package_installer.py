"""Package installer: resolves a case's packages to a lock, and unpacks locks into folders; runs nothing of packages.

Each package's file is kept in the object store by its digest, from which environments are made again: mirrors drop
the versions that a newer one replaces.
"""

import contextlib
import fnmatch
import functools
import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol

from common.errors import BadRequirements, NotFound
from runtimes import environments
from runtimes.catalogue import RANK_TIMES
from runtimes.compiled_code import CannotCompile, CompiledCode
from runtimes.environments import Progress
from runtimes.packages.deb_archive import DebArchive
from runtimes.packages.package_index import BadSignature, download, find_index
from runtimes.packages.package_lock import VERSION, LockedPackage, PackageLock, read_lock
from runtimes.packages.package_options import PackageOptions
from runtimes.packages.package_tree import PackageTree

#: The locks that the platform ships, one for each list of packages; `scripts.package_locks` writes them.
LOCKS = Path(__file__).with_name("locks")
#: The folder of an environment that is the root of sandboxes; a folder of what the platform has built beside it.
ROOT, BESIDE = "root", "beside"
#: The launcher of MPI in a root, with which come ranks whose communication is measured.
LAUNCHER = "usr/bin/mpirun"
#: Debian's names of architectures.
ARCHITECTURES: Mapping[str, str] = {"x86_64": "amd64", "aarch64": "arm64"}


class PackageStore(Protocol):
    """The object store, of which an installer needs these verbs."""

    def put(self, key: str, chunks: Iterator[bytes]) -> int:
        """Store an object."""

    def get(self, key: str) -> Iterator[bytes]:
        """Yield an object's bytes. Raise NotFound."""


class PackageInstaller:
    """Resolves and installs. ``store``: keeps the packages' files."""

    def __init__(self, options: PackageOptions, store: PackageStore) -> None:
        self.options = options
        self._store = store

    def resolve(self, requests: Sequence[str], scratch: Path, progress: Progress) -> str:
        """Return the lock of some packages; ``scratch``: a folder for their files meanwhile.

        Raise BadRequirements if they cannot be had here, CannotPrepare if the mirror cannot be used.
        """
        if (shipped := shipped_locks().get((_architecture(), tuple(sorted(requests))))) is not None:
            return shipped
        self._check_allowed(requests)
        return self.resolve_from_index(requests, scratch, progress)

    def resolve_from_index(self, requests: Sequence[str], scratch: Path, progress: Progress) -> str:
        """Return a lock of what the index has now, whatever the platform ships; raise as `resolve`.

        A lock is kept in the object store, for equal requests while the index is the same.
        """
        architecture, options = _architecture(), self.options
        progress(f"resolving {len(requests)} packages of {options.suite}", None)
        index = find_index(
            options.mirrors, options.keyring, suite=options.suite, component="main", architecture=architecture
        )
        found = [VERSION, index.sha256, architecture, sorted(requests)]
        key = f"packages/locks/{hashlib.sha256(json.dumps(found).encode()).hexdigest()}.json"
        with contextlib.suppress(NotFound):
            return read_lock(b"".join(self._store.get(key)).decode()).text()
        packages = [
            LockedPackage(name=each.name, version=each.version, path=each.path, sha256=each.sha256, size=each.size)
            for each in index.read().closure(requests)
        ]
        links: dict[str, tuple[int, str]] = {}
        for number, package in enumerate(packages):
            progress(f"downloading {package.name} {package.version}", number / len(packages))
            path = self._file(package, scratch)
            for link, target, priority in DebArchive(path, package.name).links():
                if not link.startswith("/usr/share/man/") and priority >= links.get(link, (priority, ""))[0]:
                    links[link] = (priority, target)
            path.unlink()
        lock = PackageLock(
            lock=VERSION,
            suite=options.suite,
            architecture=architecture,
            requested=sorted(requests),
            packages=packages,
            links=[(link, target) for link, (_, target) in sorted(links.items())],
        )
        self._store.put(key, iter([lock.text().encode()]))
        return lock.text()

    def _check_allowed(self, requests: Sequence[str]) -> None:
        for request in requests:
            name = request.partition("=")[0]
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.options.packages):
                raise BadRequirements(
                    f"The operator does not allow the package {name} in a case of one's own"
                    " (WINDTUNNEL_DEBIAN_PACKAGES has the patterns of names that are allowed). These lists are always"
                    f" allowed: {'; '.join(' '.join(names) for _, names in sorted(shipped_locks()))}."
                )

    def install(self, text: str, folder: Path, progress: Progress) -> None:
        """Unpack a lock's packages into the folder ROOT of ``folder``, which all users may read and none may write."""
        lock = read_lock(text)
        root = folder / ROOT
        root.mkdir(mode=0o755)
        tree = PackageTree(root, largest=self.options.largest)
        for number, package in enumerate(lock.packages):
            progress(f"unpacking {package.name} {package.version}", number / len(lock.packages))
            path = self._file(package, folder)
            tree.add(package.name, DebArchive(path, package.name))
            path.unlink()
        tree.finish(lock.links)
        if os.path.lexists(root / LAUNCHER):
            self._build_rank_times(folder / BESIDE, progress)
        environments.freeze(folder)
        progress("ready", 1.0)

    def _build_rank_times(self, folder: Path, progress: Progress) -> None:
        """Build the library that measures how ranks communicate, if this machine has a compiler."""
        folder.mkdir(mode=0o755)
        code = CompiledCode(RANK_TIMES)
        progress(f"compiling {code.output}", None)
        try:
            code.build(folder)
        except CannotCompile as error:
            progress(f"without compiled code, so {code.without}: {error}", None)

    def _file(self, package: LockedPackage, folder: Path) -> Path:
        """Write a package's file into a folder: from the object store, or else from a mirror, which is stored then.

        Raise BadSignature if the bytes are not those of the lock.
        """
        path = folder / f".{package.sha256}.deb"
        try:
            _write(self._store.get(package.key), package, path)
        except NotFound:
            _write(download(self.options.mirrors, package.path, largest=package.size), package, path)
            with open(path, "rb") as file:
                self._store.put(package.key, iter(lambda: file.read(1 << 20), b""))
        return path


def _architecture() -> str:
    return ARCHITECTURES.get(platform.machine(), platform.machine())


def _write(chunks: Iterator[bytes], package: LockedPackage, path: Path) -> None:
    """Write a package's file. Raise BadSignature if it is another; NotFound, before anything is written."""
    digest = hashlib.sha256()
    first = next(chunks, b"")
    with open(path, "wb") as file:
        for chunk in chain((first,), chunks):
            digest.update(chunk)
            file.write(chunk)
    if digest.hexdigest() != package.sha256:
        path.unlink()
        raise BadSignature(f"the file of {package.name} {package.version} is not the one with the SHA-256 of the lock")


def library_folders(root: Path) -> Sequence[str]:
    """Return the folders that `/etc/ld.so.conf.d` of an environment names: ldconfig would read them for its cache."""
    lines: list[str] = []
    for path in sorted((root / "etc/ld.so.conf.d").glob("*.conf")):
        lines += path.read_text(errors="replace").splitlines()
    named = [line.strip() for line in lines]
    return [folder for folder in named if folder.startswith("/") and ":" not in folder and ".." not in folder]


@functools.cache
def shipped_locks() -> Mapping[tuple[str, tuple[str, ...]], str]:
    """Return the platform's own locks by architecture and requested packages."""
    found = {}
    for path in sorted(LOCKS.glob("*.json")):
        text = path.read_text()
        lock = read_lock(text)
        found[lock.architecture, tuple(sorted(lock.requested))] = text
    return found
