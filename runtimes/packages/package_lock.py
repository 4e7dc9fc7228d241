"""Package lock: the Debian packages of an environment, each with its version, its file and its SHA-256.

The lock also has what maintainer scripts would make, as data: links. It is everything that an environment depends on.
"""

import hashlib
from typing import Annotated

import msgspec
from msgspec import Meta

from common.errors import BadRequirements

#: Increases when the same lock would give another folder.
VERSION = 1
#: Most packages of an environment, and most bytes of a lock.
MOST_PACKAGES, LARGEST_LOCK = 2000, 4 << 20
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
#: A path in a mirror, such as pool/main/d/dash/dash_0.5.12-2_amd64.deb.
MirrorPath = Annotated[str, Meta(pattern=r"^pool/[A-Za-z0-9+._/~%:-]{1,300}\Z")]


class LockedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package: ``path`` of its file in a mirror, and that file's SHA-256 and bytes."""

    name: str
    version: str
    path: MirrorPath
    sha256: Sha256
    size: int

    @property
    def key(self) -> str:
        """The key of its file in the object store."""
        return key_of(self.sha256)


class PackageLock(msgspec.Struct, frozen=True, kw_only=True):
    """The packages of an environment. ``suite`` and ``architecture``: of the index that they were found in.

    ``links``: path and target of each link that a maintainer script would make, such as `update-alternatives`.
    """

    lock: int
    suite: str
    architecture: str
    requested: list[str]
    packages: list[LockedPackage]
    links: list[tuple[str, str]]

    def text(self) -> str:
        """Return its canonical text, from which environments have their digest."""
        lines = msgspec.json.format(msgspec.json.encode(self), indent=1).decode()
        return f"{lines}\n"

    @property
    def digest(self) -> str:
        """SHA-256 of its text."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files of packages."""
        return sum(package.size for package in self.packages)


def key_of(sha256: str) -> str:
    """Return the key of a package's file in the object store."""
    return f"packages/{sha256[:2]}/{sha256}.deb"


def is_package_lock(text: str) -> bool:
    """Return whether a lock is one of Debian packages, and not a requirements file."""
    return text.startswith("{")


def read_lock(text: str) -> PackageLock:
    """Read a lock. Raise BadRequirements if it is none, or of a later platform."""
    try:
        lock = msgspec.json.decode(text, type=PackageLock)
    except msgspec.DecodeError as error:
        raise BadRequirements(f"The lock of packages cannot be read: {error}") from None
    if lock.lock != VERSION or len(lock.packages) > MOST_PACKAGES or len(text) > LARGEST_LOCK:
        raise BadRequirements(f"The lock of packages is of version {lock.lock}, and this platform reads {VERSION}.")
    return lock
