"""OpenEnv environments of datasets: their part of a `dataset.json`, and the definition that follows from it.

An environment answers in JSON. Fields say which of it a model observes, and what becomes of the model's actions; where
the environment's own schema says it, a registration fills them in.
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from common.errors import BadScenario
from datasets.catalogue.definitions import clipping_metric, metric, steps_metric

#: The dataset that datasets with an environment extend.
TEMPLATE = "openenv"
#: The most fields, numbers of an observation and of an action, and bytes of the description.
FIELDS, OBSERVED, APPLIED, LONGEST = 500, 16_384, 256, 256 << 10
#: Limits of steps of a scenario, seconds per answer, and scenarios that are only seeds, if no number is given.
STEPS, SECONDS, SEEDS = 100_000, 600.0, 100
#: Aggregations of a metric's values over the steps, as the simulator has them.
AGGREGATIONS = ("last", "mean", "min", "max")
#: Metrics that every scenario has.
OWN_METRICS = ("return", "length", "last_reward", "clipped_actions", "outcome")
KINDS = ("number", "integer", "boolean", "choice", "constant")
TRANSPORTS = ("websocket", "http")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_APP = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,199}(:[A-Za-z_][A-Za-z0-9_.]{0,99})?")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_.\[\]-]{0,199}")


class Problem(ValueError):
    """A part of the description is not valid; the text says which, and what it may be."""


class ObservedField(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """A field of observations that the model sees."""

    path: str
    name: str = ""
    unit: str = ""
    low: float | None = None
    high: float | None = None
    shape: tuple[int, ...] | None = None
    values: tuple[str, ...] = ()
    missing: float | None = None
    mask: bool = False


class AppliedField(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """A field of actions: from the model's action, or a constant. ``kind``: see KINDS."""

    path: str
    name: str = ""
    unit: str = ""
    kind: str = ""
    low: float | None = None
    high: float | None = None
    shape: tuple[int, ...] | None = None
    values: tuple[str, ...] = ()
    value: Any = msgspec.UNSET


class OwnMetric(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A metric from a number in the observations."""

    name: str
    path: str
    aggregation: str = "last"
    title: str = ""
    unit: str = ""
    better: str | None = None


class OpenEnv(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The member `openenv` of a `dataset.json`; docs/openenv.md describes it.

    ``package``, ``reproducible`` and ``target`` are set by a registration.
    """

    app: str = ""
    observation: tuple[ObservedField, ...] = ()
    action: tuple[AppliedField, ...] = ()
    steps: int = 1000
    dt: float = 1.0
    timeout: float = 60.0
    transport: str = ""
    environ: dict[str, str] = msgspec.field(default_factory=dict)
    metrics: tuple[OwnMetric, ...] = ()
    score: str = "return"
    better: str = "higher"
    worst: float | None = None
    outcome: str = ""
    outcomes: dict[str, str] = msgspec.field(default_factory=dict)
    failures: tuple[str, ...] = ()


class ProbedEnvironment(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a first episode of an environment has shown: its fields, complete, and its transport.

    ``left_out``: fields of its schema that are not observed, with the reason.
    """

    observation: tuple[ObservedField, ...]
    action: tuple[AppliedField, ...]
    transport: str
    reproducible: bool
    left_out: tuple[str, ...] = ()


def check(declared: OpenEnv) -> None:
    """Check what a user declared. Raises BadScenario."""
    try:
        _check_options(declared)
        _check_fields(declared.observation, declared.action)
        _check_metrics(declared)
    except Problem as problem:
        raise BadScenario(f"dataset.json: {problem}.") from None


def completed(declared: OpenEnv, probed: ProbedEnvironment, *, package: str, app: str, target: str) -> dict[str, Any]:
    """Return the JSON form with which a version keeps an environment. Raises BadScenario if it is not complete."""
    try:
        _check_fields(probed.observation, probed.action)
        _check_entries(probed)
    except Problem as problem:
        raise BadScenario(f"The environment cannot be used: {problem}.") from None
    kept: dict[str, Any] = msgspec.to_builtins(declared)
    kept |= msgspec.to_builtins(probed)
    kept |= {"app": app, "package": package, "target": target}
    if len(msgspec.json.encode(kept)) > LONGEST:
        raise BadScenario(f"The description of the environment has more than {LONGEST:,} bytes; declare fewer fields.")
    return kept


def definition(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a dataset's definition that its environment decides."""
    environment = msgspec.convert({name: kept[name] for name in OpenEnv.__struct_fields__}, OpenEnv)
    observed = [entry for field in environment.observation for entry in _observed_entries(field)]
    applied = [entry for field in environment.action for entry in _applied_entries(field)]
    outcomes = ", ".join(sorted(set(environment.outcomes.values()) or {"done", "steps"}))
    outcomes += f"; steps: the limit of {environment.steps:,} steps"
    better = "lower" if environment.better == "lower" else "higher"
    rewards = "sum of the rewards: those of the environment"
    metrics = [
        metric("return", "Return", "", rewards, better, source="OpenEnv", worst=environment.worst),
        steps_metric(environment.steps),
        metric("last_reward", "Last reward", "", "reward of the last step", source="OpenEnv"),
        *(
            metric(
                own.name,
                own.title or own.name,
                own.unit,
                f"{own.aggregation} value of the observation's `{own.path}`",
                own.better,
                source="OpenEnv",
            )
            for own in environment.metrics
        ),
        clipping_metric(),
        metric("outcome", "Outcome", "", outcomes, source="Gymnasium terminated and truncated"),
    ]
    return {
        "openenv": dict(kept),
        "interface": {"observation": _space(observed), "action": _space(applied)},
        "metrics": metrics,
        "score": {"name": environment.score, "metric": environment.score, "formula": f"the metric {environment.score}"},
        "failure": {"metric": "outcome", "in": list(environment.failures)} if environment.failures else None,
        "dt": environment.dt,
        # The evaluator's answer to a hanging environment comes before its runner's.
        "task_patience": max(300.0, 3 * environment.timeout),
    }


#: Name, unit, low and high of an entry of an array.
_Entry = tuple[str, str, float | None, float | None]


def _observed_entries(field: ObservedField) -> list[_Entry]:
    low, high = field.low, field.high
    if field.mask:
        low, high = 0.0, 1.0
    if field.values:
        low, high = 0.0, float(len(field.values) - 1)
        if field.missing is not None:
            low, high = min(low, field.missing), max(high, field.missing)
    return _numbered(field.name or _named(field.path), field.shape, field.unit, low, high)


def _applied_entries(field: AppliedField) -> list[_Entry]:
    if field.kind == "constant":
        return []
    low, high = field.low, field.high
    if field.kind == "choice":
        low, high = 0.0, float(len(field.values) - 1)
    if field.kind == "boolean":
        low, high = 0.0, 1.0
    return _numbered(field.name or _named(field.path), field.shape, field.unit, low, high)


def _named(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", path).strip("_")


def _numbered(name: str, shape: Sequence[int] | None, unit: str, low: float | None, high: float | None) -> list[_Entry]:
    positions = itertools.product(*(range(size) for size in shape or ()))
    return [("_".join((name, *map(str, position))), unit, low, high) for position in positions]


def _space(entries: Sequence[_Entry]) -> dict[str, Any]:
    names, units, lows, highs = zip(*entries, strict=True) if entries else ((), (), (), ())
    return {
        "dtype": "float32",
        "shape": [len(entries)],
        "names": list(names),
        "units": list(units),
        "low": list(lows),
        "high": list(highs),
    }


def _check_options(declared: OpenEnv) -> None:
    if declared.app and not _APP.fullmatch(declared.app):
        raise Problem("`openenv.app` is a module and a name in it, such as `server.app:app`")
    if not 1 <= declared.steps <= STEPS:
        raise Problem(f"`openenv.steps` is 1 to {STEPS:,}")
    if not 0.001 <= declared.dt <= 3600.0:
        raise Problem("`openenv.dt` is 0.001 to 3600 seconds")
    if not 1.0 <= declared.timeout <= SECONDS:
        raise Problem(f"`openenv.timeout` is 1 to {SECONDS:g} seconds")
    if declared.transport and declared.transport not in TRANSPORTS:
        raise Problem(f"`openenv.transport` is one of {', '.join(TRANSPORTS)}, or left out")
    if len(declared.environ) > 100:
        raise Problem("`openenv.environ` has at most 100 variables")
    for name, value in declared.environ.items():
        if not _VARIABLE.fullmatch(name) or len(value) > 1000 or "\0" in value:
            raise Problem(
                f"`openenv.environ` has names of capital letters, digits and _, and values of at most 1,000 characters;"
                f" not {name[:40]!r}"
            )


def _check_fields(observed: Sequence[ObservedField], applied: Sequence[AppliedField]) -> None:
    if len(observed) > FIELDS or len(applied) > FIELDS:
        raise Problem(f"`observation` and `action` have at most {FIELDS} fields each")
    for seen in observed:
        _check_field(seen)
    for field in applied:
        _check_field(field)
        _check_kind(field)


def _check_field(field: ObservedField | AppliedField) -> None:
    if not _PATH.fullmatch(field.path):
        raise Problem(f"{field.path[:80]!r} is not a path such as `agents[0].position`")
    if field.name and not _NAME.fullmatch(field.name):
        raise Problem(f"the name {field.name[:40]!r} has letters, digits and _, and begins with a letter")
    if len(field.unit) > 20 or not field.unit.isprintable():
        raise Problem(f"the unit of `{field.path}` has at most 20 characters, all with glyphs")
    if field.shape is not None and (len(field.shape) > 8 or not all(1 <= size <= OBSERVED for size in field.shape)):
        raise Problem(f"the shape of `{field.path}` has up to 8 sizes, each of 1 to {OBSERVED:,}")
    if len(field.values) > 1000 or len(set(field.values)) != len(field.values):
        raise Problem(f"`values` of `{field.path}` has up to 1,000 strings, all different")
    if isinstance(field, ObservedField) and field.mask and (len(field.shape or ()) != 1 or field.values):
        raise Problem(f"`{field.path}`: a mask has a `shape` of one size, and no `values`")
    if len(field.values) == 1:
        raise Problem(f"`values` of `{field.path}` has two strings at least")
    if field.low is not None and field.high is not None and not field.low < field.high:
        raise Problem(f"`low` of `{field.path}` is below its `high`")


def _check_kind(field: AppliedField) -> None:
    if field.kind and field.kind not in KINDS:
        raise Problem(f"the kind of `{field.path}` is one of {', '.join(KINDS)}")
    if "[" in field.path:
        raise Problem(f"`{field.path}`: a list in an action is one field with a `shape`, without positions in its path")
    if field.kind == "choice" and not field.values:
        raise Problem(f"`{field.path}`: a choice has `values`")
    if (field.kind == "constant") != (field.value is not msgspec.UNSET) and field.kind:
        raise Problem(f"`{field.path}`: a constant has a `value`, and other kinds have none")


def _check_entries(probed: ProbedEnvironment) -> None:
    observed = sum(math.prod(field.shape or ()) for field in probed.observation)
    applied = sum(math.prod(field.shape or ()) for field in probed.action)
    if not 1 <= observed <= OBSERVED:
        raise Problem(f"an observation has {observed:,} numbers; it has 1 to {OBSERVED:,}")
    if applied > APPLIED:
        raise Problem(f"an action has {applied:,} numbers; it has up to {APPLIED:,}")
    if not any(field.kind != "constant" for field in probed.action):
        raise Problem("no field of an action depends on the model")
    if probed.transport not in TRANSPORTS or not all(field.kind in KINDS for field in probed.action):
        raise Problem("its description is not complete")
    entries = [
        [entry for field in probed.observation for entry in _observed_entries(field)],
        [entry for field in probed.action for entry in _applied_entries(field)],
    ]
    for names in ([name for name, *_ in part] for part in entries):
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise Problem(f"two entries have the name {twice}; set the `name` of a field")


def _check_metrics(declared: OpenEnv) -> None:
    names = [*OWN_METRICS, *(own.name for own in declared.metrics)]
    for own in declared.metrics:
        if not _NAME.fullmatch(own.name) or names.count(own.name) > 1 or len(names) > 100:
            raise Problem(
                f"`openenv.metrics`: {own.name[:40]!r} has letters, digits and _, and differs from all others"
                f" and from {', '.join(OWN_METRICS)}; there are up to 95"
            )
        if not _PATH.fullmatch(own.path):
            raise Problem(f"`openenv.metrics`: {own.path[:80]!r} is not a path such as `agents[0].position`")
        if own.aggregation not in AGGREGATIONS:
            raise Problem(f"`openenv.metrics`: the aggregation of {own.name} is one of {', '.join(AGGREGATIONS)}")
        if own.better not in {None, "higher", "lower"}:
            raise Problem(f"`openenv.metrics`: `better` of {own.name} is higher, lower or left out")
        if len(own.title) > 100 or len(own.unit) > 20 or not (own.title + own.unit).isprintable():
            raise Problem(
                f"`openenv.metrics`: the title of {own.name} has up to 100 characters with glyphs, and its unit 20"
            )
    if declared.score not in names or declared.score == "outcome":
        raise Problem(
            f"`openenv.score` is the name of a metric with numbers, such as return; not {declared.score[:40]!r}"
        )
    if declared.better not in {"higher", "lower"}:
        raise Problem("`openenv.better` is higher or lower: which return is better")
    if declared.outcome and not _PATH.fullmatch(declared.outcome):
        raise Problem("`openenv.outcome` is a path in the observation, such as `result`")
    texts = (*declared.outcomes, *declared.outcomes.values(), *declared.failures)
    if len(texts) > 300 or not all(1 <= len(text) <= 40 and text.isprintable() for text in texts):
        raise Problem(
            "`openenv.outcomes` and `openenv.failures` have up to 100 names of up to 40 characters with glyphs"
        )
