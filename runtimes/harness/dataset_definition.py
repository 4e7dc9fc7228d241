"""Definition of a dataset: the members of a `dataset.json` that evaluators, simulators and runners read.

The server's processes read others as well (datasets/catalogue). A member that one simulator alone reads need not be
named here: ``members`` has the whole document. Of a definition of an earlier version, or of a
simulator that has no use for it, a member is absent.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import force_setattr


class FailureRule(msgspec.Struct, frozen=True, kw_only=True, rename={"values": "in"}):
    """The metric, and those of its values, that make a task that is ``ok`` a failure."""

    metric: str
    values: tuple[Any, ...]


class Named(msgspec.Struct, frozen=True):
    """Of a metric, the name."""

    name: str


class ScoreRule(msgspec.Struct, frozen=True):
    """Of a score, the metric that it is the mean of."""

    metric: str


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """Members of a definition. ``dt``: seconds of a step; None: it has none.

    ``ranks``: the ranks that a worker may bring for its simulator, their `count` and the `module` of their program.
    ``task_patience``: seconds without progress after which a worker is taken for stuck. ``starts_processes``: whether
    its simulator starts processes before the sandbox is sealed. ``members``: all that the document has.
    """

    simulator: str = ""
    scenarios: str | None = None
    interface: Mapping[str, Any] | None = None
    dt: int | float | None = None
    group_by: tuple[str, ...] = ()
    metrics: tuple[Named, ...] = ()
    score: ScoreRule | None = None
    failure: FailureRule | None = None
    record: bool = False
    task_patience: float | None = None
    starts_processes: bool | None = None
    ranks: Mapping[str, object] | None = None
    # of Gymnasium, MuJoCo and PettingZoo
    env: str | None = None
    package: str | None = None
    kwargs: Mapping[str, Any] = {}
    outcomes: Mapping[str, str] = {}
    info: Mapping[str, Any] = {}
    agent: str = ""
    others: str = ""
    game: bool = False
    # of SUMO: the streets whose networks are read before the first scenario
    streets: tuple[str, ...] | None = None
    # of `noop`
    steps: int = 1
    # of worlds of users, as their registration has checked them
    plant: Mapping[str, Any] | None = None
    openenv: Mapping[str, Any] | None = None
    members: Mapping[str, Any] = msgspec.field(default_factory=dict, name="$members")


def definition_of(document: Mapping[str, Any]) -> Definition:
    """Return the definition of a document that was parsed; raise msgspec.ValidationError with the member's path."""
    definition = msgspec.convert(document, Definition)
    force_setattr(definition, "members", document)
    return definition


def read_definition(raw: bytes) -> Definition:
    """Return the definition of a `dataset.json`."""
    return definition_of(msgspec.json.decode(raw))
