"""Worker limits: how many workers, with which resources, a project, or a user in it, may have at the same time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from core.domain.access.quotas import EVERY_PROJECT, WHOLE_PROJECT, Quota
from core.domain.scheduling.worker_resources import CPU, MEMORY, ONE_WORKER, WorkerResources, shown_amount


class WorkOwner(NamedTuple):
    """Whose a simulation is: a project, and the user in it who has submitted it."""

    project: str
    user: str


class WorkLimit(NamedTuple):
    """A limit: whose work counts for it, of what (WORKERS, or the name of a resource), and how much that may be."""

    counted: WorkOwner
    name: str
    amount: int


#: Owner that has no limit but that of every project.
NO_OWNER = WorkOwner("", "")
#: Name of the limit of workers, whatever each of them has.
WORKERS = Quota.RUNNING_WORKERS.value


class WorkLimits:
    """Limits by owner, of a project as a whole, of a user in it, or of every project that has none; then by name.

    Amounts are in the units of `WorkerResources`.
    """

    def __init__(self, amounts: Mapping[WorkOwner, Mapping[str, int]] | None = None) -> None:
        self._amounts = dict(amounts or {})
        self._by_owner: dict[WorkOwner, tuple[WorkLimit, ...]] = {}
        self.names = frozenset(name for each in self._amounts.values() for name in each)

    def __bool__(self) -> bool:
        return bool(self._amounts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkLimits) and self._amounts == other._amounts

    __hash__ = None  # type: ignore[assignment]

    def on(self, owner: WorkOwner) -> tuple[WorkLimit, ...]:
        """Return the limits that hold for an owner."""
        if not self._amounts:
            return ()
        if (limits := self._by_owner.get(owner)) is None:
            limits = self._by_owner[owner] = tuple(self._limits_of(owner))
        return limits

    def _limits_of(self, owner: WorkOwner) -> Iterator[WorkLimit]:
        whole = WorkOwner(owner.project, WHOLE_PROJECT)
        every = self._amounts.get(WorkOwner(EVERY_PROJECT, WHOLE_PROJECT), {})
        for name, amount in {**every, **self._amounts.get(whole, {})}.items():
            yield WorkLimit(whole, name, amount)
        if owner.user:
            for name, amount in self._amounts.get(owner, {}).items():
                yield WorkLimit(owner, name, amount)

    def within(self, owner: WorkOwner, workers: int, each: WorkerResources = ONE_WORKER) -> int:
        """Return how many of these workers a simulation gets that can do with fewer: at least one."""
        bounds = (limit.amount // need for limit in self.on(owner) if (need := _need(limit.name, each)))
        return max(1, min(workers, min(bounds, default=workers)))


def _need(name: str, each: WorkerResources) -> int:
    """Return how much of what is limited one worker needs."""
    return 1 if name == WORKERS else each.get(name, 0)


class WorkersInUse:
    """The workers that owners have, with what each of them has; they grow as simulations are admitted."""

    def __init__(self, limits: WorkLimits, used: Iterable[tuple[WorkOwner, int, WorkerResources]] = ()) -> None:
        self.limits = limits
        self._used: Counter[tuple[WorkOwner, str]] = Counter()
        if limits:
            for owner, workers, each in used:
                self.take(owner, workers, each)

    def take(self, owner: WorkOwner, workers: int, each: WorkerResources = ONE_WORKER) -> None:
        """Count workers of an owner."""
        for name in self.limits.names:
            if need := workers * _need(name, each):
                self._used[WorkOwner(owner.project, WHOLE_PROJECT), name] += need
                if owner.user:
                    self._used[owner, name] += need

    def left(self, owner: WorkOwner, each: WorkerResources = ONE_WORKER) -> int | None:
        """Return how many workers more an owner may have; None: no limit. Below 0 where a limit was lowered."""
        return min(
            (
                (limit.amount - self._used[limit.counted, limit.name]) // need
                for limit in self.limits.on(owner)
                if (need := _need(limit.name, each))
            ),
            default=None,
        )

    def limits_in_use(self) -> Iterator[tuple[WorkLimit, int]]:
        """Yield each limit of which something is used, with how much."""
        for (owner, name), used in self._used.items():
            for limit in self.limits.on(owner):
                if (limit.counted, limit.name) == (owner, name):
                    yield limit, used

    def why_held(self, owner: WorkOwner, workers: int = 1, each: WorkerResources = ONE_WORKER) -> str | None:
        """Return why a simulation does not start though workers are free; None: no limit holds it.

        ``workers``: as many as it gets at least.
        """
        for counted, name, amount in self.limits.on(owner):
            used, need = self._used[counted, name], workers * _need(name, each)
            if need and used + need > amount:
                whose, who = (
                    (f"{owner.user} in project {owner.project}", "a maintainer of the project")
                    if counted.user
                    else (f"project {owner.project}", "an operator of the platform")
                )
                has = f"{whose} has {_text(name, used)} of {_text(name, amount)}"
                quota, more = (
                    (name, f", it needs {need:,}" if workers > 1 else "")
                    if name == WORKERS
                    else (f"resources.{name}", f", it needs {_text(name, need)}")
                )
                return f"waits for its quota `{quota}`: {has}{more}; {who} can raise it"
        return None


def _text(name: str, amount: int) -> str:
    """Return an amount for people."""
    if name == CPU:
        return f"{shown_amount(name, amount):,.10g} cores"
    if name == MEMORY:
        return f"{amount / 10**9:,.4g} GB"
    return f"{amount:,}"
