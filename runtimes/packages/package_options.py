"""Package options: where Debian packages come from, as the operator decides."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageOptions:
    """Where Debian packages come from: the operator's decision. ``largest``: most bytes of an environment.

    ``mirrors``: URLs, the first that has a file is used. ``packages``: patterns of the names that users' own cases may
    name; the lists that the platform has a lock of are always allowed.
    """

    mirrors: tuple[str, ...] = ("http://deb.debian.org/debian",)
    suite: str = "bookworm"
    keyring: Path = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    packages: tuple[str, ...] = ()
    largest: int = 8 << 30
