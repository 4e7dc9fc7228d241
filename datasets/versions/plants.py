"""Plants of users: the member `plant` of a `dataset.json`, which says how an FMU becomes the world of a dataset."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from datasets.versions.fmu_description import TYPES

#: The template that datasets with a plant extend.
TEMPLATE = "fmu"
#: Members of a definition that a plant determines.
MEMBERS = ("interface", "metrics", "params", "score", "dt", "deadline", "failure", "plant")
#: How a metric follows from the values of a signal after each step, in words.
AGGREGATIONS: Mapping[str, str] = {
    "last": "{} after the last step",
    "min": "least {} after a step",
    "max": "greatest {} after a step",
    "mean": "mean of {} over the steps",
    "sum": "sum of {} over the steps",
    "integral": "sum of {} times the step in seconds",
    "rms": "square root of the mean of the squares of {}",
    "mean_abs": "mean of the amounts of {}",
    "max_abs": "greatest amount of {}",
    "integral_abs": "sum of the amounts of {} times the step in seconds",
    "integral_square": "sum of the squares of {} times the step in seconds",
}


class Entry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A variable by its name, with what is to hold in place of the FMU's declaration."""

    name: str
    unit: str | None = None
    low: float | None = None
    high: float | None = None


class Combination(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A constant, signals by their weights, and squares of signals by their weights."""

    constant: float = 0.0
    linear: dict[str, float] = {}
    quadratic: dict[str, float] = {}


class Condition(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A signal's bounds beyond which a scenario ends; `failure`: whether that is bad."""

    of: str
    outcome: str
    above: float | None = None
    below: float | None = None
    failure: bool = True


class PlantMetric(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A metric of a signal."""

    name: str
    of: str
    by: str = "last"
    title: str = ""
    unit: str = ""
    better: Literal["higher", "lower"] | None = None
    worst: float | None = None


class Plant(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The member `plant` of a user's `dataset.json`; `step`, `duration`, `patience` and `deadline` in seconds.

    `ended`: the outcome if the FMU ends its simulation; without it, that is a failure of the plant. `patience` is for a
    step of the plant, `deadline` for an action of the model.
    """

    file: str
    step: float | None = None
    substeps: int = 1
    steps: int | None = None
    duration: float | None = None
    observation: tuple[str | Entry, ...] | None = None
    action: tuple[str | Entry, ...] | None = None
    parameters: tuple[str | Entry, ...] = ()
    signals: dict[str, Combination] = {}
    reward: str | Combination | None = None
    metrics: tuple[PlantMetric, ...] = ()
    score: str = ""
    ends: tuple[Condition, ...] = ()
    finished: str = "truncated"
    ended: str | None = None
    patience: float = 60.0
    deadline: float = 1.0


def kind_of(type: str) -> Literal["bool", "int", "float"]:
    """Return the type of a value in JSON for a type of the FMU."""
    return "bool" if type == "Boolean" else "int" if TYPES[type] is not None else "float"
