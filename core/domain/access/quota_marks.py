"""Marks of quotas: which limits a use has come near to, so that each crossing is told once."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from core.domain.access.quotas import Charge, Quota

#: Part of a limit at which it is told, and part below which it is forgotten, so that a use that goes to and fro between
#: the two is told once.
REACHED_PART, FORGOTTEN_PART = 0.8, 0.7


@dataclass(frozen=True, slots=True)
class QuotaMarks:
    """Quotas that were told, and those among them that are to be told now."""

    reached: frozenset[Quota]
    new: frozenset[Quota]


def quota_marks(
    before: Collection[Quota], limits: Mapping[Quota, int], used: Mapping[Quota, int], charge: Charge
) -> QuotaMarks:
    """Return the marks after a charge, which ``used`` has already; a quota without a limit has none."""
    reached, new = set(), set()
    for quota, limit in limits.items():
        if quota not in used:
            continue
        use = used[quota]
        if quota in before:
            if use >= FORGOTTEN_PART * limit:
                reached.add(quota)
        elif charge.of(quota) > 0 and use >= REACHED_PART * limit:
            reached.add(quota)
            new.add(quota)
    return QuotaMarks(frozenset(reached), frozenset(new))
