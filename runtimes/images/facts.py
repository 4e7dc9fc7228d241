"""What is known of a part that was made: what is in it, for the bill of materials and for the parts above it."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, order=True, slots=True)
class Component:
    """One thing that somebody else made; ``purl`` is its package URL, ``licence`` what it says of itself."""

    kind: str
    name: str
    version: str
    purl: str = ""
    licence: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Components, and the names of the machine's libraries that are in a part."""

    components: tuple[Component, ...] = ()
    libraries: tuple[str, ...] = ()

    def with_all(self, other: "Facts") -> "Facts":
        """Return the facts of both."""
        return Facts(
            tuple(sorted({*self.components, *other.components})), tuple(sorted({*self.libraries, *other.libraries}))
        )

    def write(self, path: Path) -> None:
        """Keep them beside the part."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Facts":
        """Read what ``write`` wrote."""
        told = json.loads(path.read_text())
        return cls(tuple(Component(**one) for one in told["components"]), tuple(told["libraries"]))


def gathered(all_facts: Iterable[Facts]) -> Facts:
    """Return the facts of several parts as one."""
    whole = Facts()
    for one in all_facts:
        whole = whole.with_all(one)
    return whole
