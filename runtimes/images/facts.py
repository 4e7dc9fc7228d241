"""Facts of a built image part: its components and libraries, for the bill of materials and for the parts above it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec


@dataclass(frozen=True, order=True, slots=True)
class Component:
    """A third-party component; ``purl`` is its package URL, ``licence`` its declared licence expression."""

    kind: str
    name: str
    version: str
    purl: str = ""
    licence: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """A part's components, and the names of the build machine's libraries in it."""

    components: tuple[Component, ...] = ()
    libraries: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        """Write the facts as JSON."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    @classmethod
    def read(cls, path: Path) -> "Facts":
        """Read facts that ``write`` wrote."""
        return msgspec.json.decode(path.read_bytes(), type=cls)


def merged(all_facts: Iterable[Facts]) -> Facts:
    """Return the union of the facts of several parts."""
    components: set[Component] = set()
    libraries: set[str] = set()
    for facts in all_facts:
        components.update(facts.components)
        libraries.update(facts.libraries)
    return Facts(tuple(sorted(components)), tuple(sorted(libraries)))
