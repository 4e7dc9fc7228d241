"""Facts of a built image part: its components and libraries, for the bill of materials and for the parts above it."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


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

    def with_all(self, other: "Facts") -> "Facts":
        """Return the union of both facts."""
        return Facts(
            tuple(sorted({*self.components, *other.components})), tuple(sorted({*self.libraries, *other.libraries}))
        )

    def write(self, path: Path) -> None:
        """Write the facts as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Facts":
        """Read facts that ``write`` wrote."""
        document = json.loads(path.read_text())
        return cls(tuple(Component(**component) for component in document["components"]), tuple(document["libraries"]))


def merged(all_facts: Iterable[Facts]) -> Facts:
    """Return the union of the facts of several parts."""
    union = Facts()
    for facts in all_facts:
        union = union.with_all(facts)
    return union
