"""Worker limits: how many workers the simulations of a project, or of a user in it, may have at the same time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from core.domain.access.quotas import EVERY_PROJECT, WHOLE_PROJECT


class WorkOwner(NamedTuple):
    """Whose a simulation is: a project, and the user in it who has submitted it."""

    project: str
    user: str


#: Owner that has no limit but that of every project.
NO_OWNER = WorkOwner("", "")
#: Limits by owner: of a project as a whole, of a user in it, or of every project that has none.
Limits = Mapping[WorkOwner, int]


def limits_on(limits: Limits, owner: WorkOwner) -> Iterator[tuple[WorkOwner, int]]:
    """Yield the limits that hold for an owner, with whose workers are counted for each."""
    whole = WorkOwner(owner.project, WHOLE_PROJECT)
    amount = limits.get(whole, limits.get(WorkOwner(EVERY_PROJECT, WHOLE_PROJECT)))
    if amount is not None:
        yield whole, amount
    if owner.user and (own := limits.get(owner)) is not None:
        yield owner, own


def most(limits: Limits, owner: WorkOwner) -> int | None:
    """Return the most workers that an owner may have; None: no limit."""
    return min((amount for _, amount in limits_on(limits, owner)), default=None)


def workers_within(limits: Limits, owner: WorkOwner, workers: int) -> int:
    """Return how many of these workers a simulation gets that can do with fewer: at least one."""
    bound = most(limits, owner)
    return workers if bound is None else max(1, min(workers, bound))


class WorkersInUse:
    """The workers that owners have, which grow as simulations are admitted."""

    def __init__(self, limits: Limits, used: Iterable[tuple[WorkOwner, int]] = ()) -> None:
        self.limits = limits
        self._used: Counter[WorkOwner] = Counter()
        if limits:
            for owner, workers in used:
                self.take(owner, workers)

    def take(self, owner: WorkOwner, workers: int) -> None:
        """Count workers of an owner."""
        if self.limits:
            self._used[WorkOwner(owner.project, WHOLE_PROJECT)] += workers
            if owner.user:
                self._used[owner] += workers

    def left(self, owner: WorkOwner) -> int | None:
        """Return how many workers more an owner may have; None: no limit. Below 0 where a limit was lowered."""
        return min((amount - self._used[counted] for counted, amount in limits_on(self.limits, owner)), default=None)

    def why_held(self, owner: WorkOwner, workers: int = 1) -> str | None:
        """Return why a simulation does not start though workers are free; None: no limit holds it.

        ``workers``: as many as it gets at least.
        """
        for counted, amount in limits_on(self.limits, owner):
            if self._used[counted] + workers > amount:
                whose = f"{owner.user} in project {owner.project}" if counted.user else f"project {owner.project}"
                return f"waits for its quota `running_workers`: {whose} has {self._used[counted]:,} of {amount:,}"
        return None
