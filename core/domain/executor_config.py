"""Executors as named contexts: what an operator says of each place that simulations may run in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Seconds for which a place may fail to answer before its launches count as lost.
GRACE = 60.0
_KNOWN = {"name", "kind", "cores", "width", "grace", "options"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """One place. ``cores``: pairs of evaluator and host at work there at once; ``width``: the most one simulation gets.

    ``kind`` names the module that knows how to run launches there; ``options`` are its own affair.
    """

    name: str
    kind: str
    cores: int
    width: int = 0  # 0: all of them
    grace: float = GRACE
    options: Mapping[str, Any] = field(default_factory=dict)

    def share(self, wanted: int | None) -> int:
        """Return how wide a simulation runs here that asks for so much; all there is where it does not say."""
        most = min(self.cores, self.width or self.cores)
        return min(wanted or most, most)


def parsed(document: Any) -> tuple[Context, ...]:
    """Read ``{"executors": [...]}``. Raise ValueError with the place and what would do."""
    if not isinstance(document, Mapping) or set(document) != {"executors"}:
        raise ValueError('it holds one object: {"executors": [...]}')
    listed = document["executors"]
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise ValueError("`executors` is a list with at least one entry")
    contexts = tuple(_context(one, at) for at, one in enumerate(listed))
    names = [one.name for one in contexts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"named twice: {', '.join(twice)}")
    return contexts


def _context(said: Any, at: int) -> Context:
    place = f"executors[{at}]"
    if not isinstance(said, Mapping):
        raise ValueError(f"{place} is an object")
    if unknown := sorted(set(said) - _KNOWN):
        raise ValueError(f"{place}: unknown {', '.join(map(str, unknown))}; known are {', '.join(sorted(_KNOWN))}")
    name, kind = said.get("name"), said.get("kind")
    if not isinstance(name, str) or (not name.isidentifier() and not name.replace("-", "a").isalnum()):
        raise ValueError(f"{place}: `name` is a word of letters, digits and hyphens")
    if not isinstance(kind, str) or not kind.isidentifier():
        raise ValueError(f"{place}: `kind` names an executor, like kubernetes, slurm or local")
    cores, width, grace = said.get("cores"), said.get("width", 0), said.get("grace", GRACE)
    if not isinstance(cores, int) or isinstance(cores, bool) or cores < 1:
        raise ValueError(f"{place}: `cores` is a whole number from 1")
    if not isinstance(width, int) or isinstance(width, bool) or width < 0:
        raise ValueError(f"{place}: `width` is a whole number; 0 is no limit of its own")
    if not isinstance(grace, int | float) or isinstance(grace, bool) or grace <= 0:
        raise ValueError(f"{place}: `grace` is a number of seconds above 0")
    options = said.get("options", {})
    if not isinstance(options, Mapping):
        raise ValueError(f"{place}: `options` is an object")
    return Context(name=name, kind=kind, cores=cores, width=width, grace=float(grace), options=options)
