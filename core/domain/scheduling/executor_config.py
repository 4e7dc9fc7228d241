"""Executors as an operator configures them: kind, workers, limits and options of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from common.former_names import refuse_former_names
from core.domain.scheduling.allowed_options import parsed_allowed
from core.domain.scheduling.launches import Gang, replicas

#: Seconds for which an executor may fail to answer before its launches count as lost.
GRACE = 60.0
#: Former names of keys -> present names; a former name is refused with an error that has the present name.
RENAMED: Mapping[str, str] = {"cores": "workers", "width": "max_workers"}
_KNOWN = {"name", "kind", "workers", "max_workers", "grace", "allowed", "options"}


@dataclass(frozen=True, kw_only=True, slots=True)
class GangSupport:
    """The gangs that a kind of executor starts.

    ``unattended``: also those without a runner (`Gang.attended`). ``packaged``: also packaged simulators. ``crowds``: a
    gang may have more replicas than there are workers, which then share processors. ``nodes``: each replica has a node
    of its own (`Gang.nodes`), in no slices; ``several``: or else a gang has one, and ``remedy`` says what allows more.
    """

    unattended: bool = False
    packaged: bool = False
    crowds: bool = False
    nodes: bool = False
    several: bool = True
    remedy: str = ""

    def refusal(self, gang: Gang) -> str:
        """Return why it does not start a gang; empty: it does."""
        if not gang.attended and not self.unattended:
            return "an `image` or an `operator` needs Kubernetes"
        if not self.packaged and gang.is_packaged:
            return "a packaged simulator runs on executors of the kinds `local` and `slurm`"
        if self.nodes and gang.slices > 1:
            return "it has no slices"
        if not self.several and gang.nodes > 1:
            return f"a gang has one node there; {self.remedy}"
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorConfig:
    """An executor. ``workers``: maximum at work at once; ``max_workers``: maximum per simulation.

    ``kind`` names the module of `workers.executors` that runs launches there; only that module reads ``options``.
    ``allowed``: patterns of the names that submissions may give, by option (`core.domain.scheduling.allowed_options`).
    ``ignored``, ``equivalents``, ``lends`` and ``gangs`` are facts of the kind: options that it ignores, annotations
    with the effect of another option, whether launches that still load their model lend their workers, and the gangs
    that it starts (None: none).
    """

    name: str
    kind: str
    workers: int
    max_workers: int = 0  # 0: all of them
    grace: float = GRACE
    allowed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    equivalents: Mapping[str, str] = field(default_factory=dict)
    lends: bool = False
    gangs: GangSupport | None = None

    def workers_for(self, requested: int | None) -> int:
        """Return the number of workers for a simulation that requests this many, or as many as possible (None)."""
        most = min(self.workers, self.max_workers or self.workers)
        return min(requested or most, most)

    def starts(self, gang: Mapping[str, object] | None) -> bool:
        """Return whether it starts such gangs; None: not a gang, which every executor starts."""
        return gang is None or not self.refusal(msgspec.convert(gang, Gang))

    def refusal(self, gang: Gang) -> str:
        """Return why it does not start a gang; empty: it does."""
        return "it runs no gangs" if self.gangs is None else self.gangs.refusal(gang)

    def has_room_for(self, gang: Mapping[str, object]) -> bool:
        """Return whether all replicas of a gang fit here once nothing else runs."""
        count = replicas(gang)
        return (self.gangs is not None and self.gangs.crowds) or self.workers_for(count) == count


def parsed(document: object) -> tuple[ExecutorConfig, ...]:
    """Read ``{"executors": [...]}``. Raise ValueError that names the entry, the key and what would be valid."""
    if not isinstance(document, Mapping) or set(document) != {"executors"}:
        raise ValueError('it holds one object: {"executors": [...]}')
    entries = document["executors"]
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        raise ValueError("`executors` is a list with at least one entry")
    configs = tuple(_config(entry, f"executors[{number}]") for number, entry in enumerate(entries))
    names = [config.name for config in configs]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"named twice: {', '.join(repeated)}")
    return configs


def _config(entry: object, where: str) -> ExecutorConfig:
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where} is an object")
    refuse_former_names(entry, RENAMED, where=f"{where}: ", quote="`")
    if unknown := sorted(set(entry) - _KNOWN):
        raise ValueError(f"{where}: unknown {', '.join(map(str, unknown))}; known are {', '.join(sorted(_KNOWN))}")
    name, kind = entry.get("name"), entry.get("kind")
    if not isinstance(name, str) or (not name.isidentifier() and not name.replace("-", "a").isalnum()):
        raise ValueError(f"{where}: `name` is a word of letters, digits and hyphens")
    if not isinstance(kind, str):
        raise ValueError(f"{where}: `kind` is the name of a kind of executor")
    workers, max_workers, grace = entry.get("workers"), entry.get("max_workers", 0), entry.get("grace", GRACE)
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise ValueError(f"{where}: `workers` is a whole number from 1")
    if not isinstance(max_workers, int) or isinstance(max_workers, bool) or max_workers < 0:
        raise ValueError(f"{where}: `max_workers` is a whole number; 0 is no limit of its own")
    if not isinstance(grace, int | float) or isinstance(grace, bool) or grace <= 0:
        raise ValueError(f"{where}: `grace` is a number of seconds above 0")
    allowed = parsed_allowed(entry.get("allowed", {}), where)
    options = entry.get("options", {})
    if not isinstance(options, Mapping):
        raise ValueError(f"{where}: `options` is an object")
    return ExecutorConfig(
        name=name,
        kind=kind,
        workers=workers,
        max_workers=max_workers,
        grace=float(grace),
        allowed=allowed,
        options=options,
    )
