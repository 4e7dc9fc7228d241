"""Records of retention, as the platform describes them: rules, what they would take, and the bin."""

from datetime import datetime

import msgspec

from windtunnel.record import Record

#: Kinds of things that rules are about.
RETAINED_KINDS = ("simulations", "models", "datasets")


class RetentionRules(Record, frozen=True, kw_only=True):
    """Decisions of a project. ``bin``: what people delete goes to the bin; ``rules``: as documents of the API."""

    bin: bool = False
    rules: list[dict[str, object]] = msgspec.field(default_factory=list)


class TakenContent(Record, frozen=True, kw_only=True):
    """How much rules would take of a kind."""

    count: int = 0
    bytes: int = 0


class RuleSubject(Record, frozen=True, kw_only=True):
    """Something that a rule is about; ``rule``: its number, from 1; ``spared``: why it stays, empty if it would go."""

    kind: str
    id: str
    name: str
    bytes: int
    rule: int
    spared: list[str] = msgspec.field(default_factory=list)


class RetentionDryRun(Record, frozen=True, kw_only=True):
    """The effect of rules: how much of each kind goes, how many stay for each reason, and the first of both."""

    taken: dict[str, TakenContent]
    spared: dict[str, int]
    first: list[RuleSubject]
    first_spared: list[RuleSubject]


class BinItem(Record, frozen=True, kw_only=True):
    """Something in the bin. ``binned_by``: None if a rule has deleted it, which is ``rule`` then."""

    kind: str
    id: str
    name: str
    bytes: int
    version: str | None = None
    made_by: str = ""
    binned_by: str | None = None
    rule: str | None = None
    binned_at: datetime | None = None
    until: datetime | None = None
