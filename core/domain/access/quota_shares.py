"""Used shares of limits: which projects, and users in them, are nearest to the limits that hold for them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.domain.access.quotas import WHOLE_PROJECT


@dataclass(frozen=True, slots=True)
class QuotaShare:
    """A limit in force, and how much of it is used, in what the quota counts.

    ``user``: whose limit it is in the project; WHOLE_PROJECT: the project's. ``quota``: also ``resources.cpu``.
    """

    project: str
    user: str
    quota: str
    limit: int
    used: float

    @property
    def share(self) -> float:
        """The part that is used; infinite where something is used of nothing."""
        if self.limit:
            return self.used / self.limit
        return math.inf if self.used else 0.0


def fullest(limits: Iterable[QuotaShare], share: float, most: int) -> Sequence[QuotaShare]:
    """Return the limits of which at least a share is used, the fullest first, ``most`` of them; none that is unused."""
    full = [limit for limit in limits if limit.used and limit.share >= share]
    return sorted(
        full, key=lambda each: (-each.share, each.project, each.user != WHOLE_PROJECT, each.user, each.quota)
    )[:most]
