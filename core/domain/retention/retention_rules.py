"""Retention: the rules by which a project deletes what is old, and what no rule takes. Pure values and decisions.

A rule puts things into the bin. It has conditions, all of which must hold; a thing goes if one rule takes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from common.errors import Invalid
from core.domain.scheduling.states import FINAL, State


class BinnedKind(StrEnum):
    """A kind of what goes to the bin."""

    SIMULATIONS = "simulations"
    MODELS = "models"
    DATASETS = "datasets"


class Protection(StrEnum):
    """Why no rule takes something."""

    UNENDED = "unended"
    KEPT = "kept"
    TAGGED = "tagged"
    SHARED = "shared"
    COMPARED = "compared"
    NEEDED = "needed"
    UNLOGGED = "unlogged"
    UNREADABLE = "unreadable"


#: The label of a simulation that no rule takes, whatever its value.
KEEP = "keep"
#: What each protection means, in the words of the documentation.
PROTECTIONS: Mapping[Protection, str] = {
    Protection.UNENDED: "The simulation waits or runs.",
    Protection.KEPT: f"The simulation has the label `{KEEP}`, with any value.",
    Protection.TAGGED: "The version of the model or the dataset has a tag.",
    Protection.SHARED: "It is shared with another project.",
    Protection.COMPARED: "The simulation is part of a comparison.",
    Protection.NEEDED: "Something that has not ended needs it: a simulation, a comparison or a pipeline.",
    Protection.UNLOGGED: "The results of the simulation wait to be logged to MLflow.",
    Protection.UNREADABLE: "The labels of the simulation cannot be read.",
}
#: Most rules of a project, and most characters of one in words.
MOST_RULES, LONGEST_RULE = 50, 300
DAY = 86_400


class RetentionRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule. Ages in seconds: of a simulation since its end, of a version since it was registered, or used last.

    ``keep_last``: the newest that the rule selects by what it is, not by age, stay; of versions, of each name.
    """

    kind: BinnedKind
    older_than: int | None = None
    unused_for: int | None = None
    keep_last: int | None = None
    labels: dict[str, str] = {}
    states: tuple[State, ...] = ()
    name: str | None = None

    def in_words(self) -> str:
        """The rule as one line, for the bin and the audit log."""
        parts = [f"{label}={value}" for label, value in sorted(self.labels.items())]
        parts += [state.value for state in self.states]
        parts += [f"named {self.name}"] if self.name else []
        parts += [f"older than {_days(self.older_than)}"] if self.older_than is not None else []
        parts += [f"unused for {_days(self.unused_for)}"] if self.unused_for is not None else []
        parts += [f"all but the last {self.keep_last}"] if self.keep_last is not None else []
        return f"{self.kind}: {', '.join(parts)}"[:LONGEST_RULE]


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions of a project. ``bin``: what people delete goes to the bin as well."""

    bin: bool = False
    rules: tuple[RetentionRule, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RetainedThing:
    """A simulation, or a version of a model or a dataset, as rules see it.

    ``since``: when it ended, or was registered; ``used``: when it was last; seconds since the epoch.
    """

    id: str
    kind: BinnedKind
    name: str
    bytes: int
    since: float
    used: float
    labels: Mapping[str, str] = field(default_factory=dict)
    state: State | None = None
    protections: frozenset[Protection] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class RetentionVerdict:
    """The end of a thing: the rule that takes it, or would, were it not for its protections; None: none does."""

    thing: RetainedThing
    rule: RetentionRule | None

    @property
    def taken(self) -> bool:
        """Whether it goes to the bin."""
        return self.rule is not None and not self.thing.protections


def check_rules(rules: Sequence[RetentionRule]) -> None:
    """Raise Invalid for a rule that takes everything, or that asks what is not known of its kind."""
    for number, rule in enumerate(rules, 1):
        if rule.older_than is rule.unused_for is rule.keep_last is None:
            raise Invalid(f"Rule {number} would take all {rule.kind}: give it older_than, unused_for or keep_last.")
        if rule.kind is BinnedKind.SIMULATIONS and (rule.unused_for is not None or rule.name is not None):
            raise Invalid(f"Rule {number} is of simulations, which have neither unused_for nor name: leave them out.")
        if rule.kind is not BinnedKind.SIMULATIONS and (rule.labels or rule.states):
            raise Invalid(f"Rule {number} is of {rule.kind}, which have neither labels nor states: leave them out.")
        if any(state not in FINAL for state in rule.states):
            raise Invalid(f"Rule {number} names a state in which simulations have not ended; no rule takes those.")


def selects(rule: RetentionRule, thing: RetainedThing) -> bool:
    """Return whether a rule is about a thing, whatever its age."""
    return (
        thing.kind is rule.kind
        and (not rule.states or thing.state in rule.states)
        and (rule.name is None or thing.name == rule.name)
        and all(thing.labels.get(label) == value for label, value in rule.labels.items())
    )


def matches(rule: RetentionRule, thing: RetainedThing, now: float) -> bool:
    """Return whether all conditions of a rule hold but `keep_last`, which depends on other things."""
    old = rule.older_than is None or thing.since <= now - rule.older_than
    unused = rule.unused_for is None or thing.used <= now - rule.unused_for
    return selects(rule, thing) and old and unused


class RetentionDecision:
    """Decides over the things of a project, which it is shown newest first, each once."""

    def __init__(self, rules: Iterable[RetentionRule], now: float) -> None:
        self._rules = tuple(rules)
        self._now = now
        self._newer: dict[tuple[int, str], int] = {}

    def of(self, thing: RetainedThing) -> RetentionVerdict:
        """Return what becomes of the next thing: the first rule that takes it counts."""
        taking = None
        for number, rule in enumerate(self._rules):
            if not selects(rule, thing):
                continue
            group = (number, "" if thing.kind is BinnedKind.SIMULATIONS else thing.name)
            newer = self._newer[group] = self._newer.get(group, 0) + 1
            if taking is None and matches(rule, thing, self._now) and newer > (rule.keep_last or 0):
                taking = rule
        return RetentionVerdict(thing=thing, rule=taking)


def _days(seconds: int) -> str:
    return f"{seconds // DAY}d" if seconds % DAY == 0 else f"{seconds}s"
