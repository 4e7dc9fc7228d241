"""Usage reports: what a project has used, summed up by anything, and what that cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from common.errors import Invalid
from core.domain.access.scopes import PLATFORM, Caller, Scope
from core.domain.usage.usage_sums import Prices, UsageGrouping, UsageSum
from core.store import usage_sums
from core.store.database import Database

#: Most sums of a report: what more would say, a person does not read, and a program asks for day by day.
MOST_SUMS = 10_000


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The sums of a project by groupings, and their total; ``prices``: None where nothing has a price.

    ``project``: empty for the sums of all.
    """

    project: str
    by: Sequence[UsageGrouping]
    sums: Sequence[UsageSum]
    total: UsageSum
    prices: Prices | None

    def cost(self, of: UsageSum) -> Fraction | None:
        """Return what a sum cost; None where nothing has a price."""
        return None if self.prices is None else self.prices.of_sum(of)


class UsageReports:
    """Service of usage. An open interval counts until its last mark, a few seconds ago."""

    def __init__(self, database: Database, prices: Prices) -> None:
        self._database = database
        self._prices = prices

    def report(
        self, caller: Caller, by: Sequence[UsageGrouping], *, since: float | None = None, until: float | None = None
    ) -> UsageReport:
        """Return the usage of the caller's project; ``since``, ``until``: seconds since the epoch.

        Raise Invalid for more sums than MOST_SUMS.
        """
        return self._report(Scope(caller.scope.owner), by, since, until)

    def report_all(
        self, by: Sequence[UsageGrouping], *, since: float | None = None, until: float | None = None
    ) -> UsageReport:
        """Return the usage of all projects, also of those that are deleted, as `report` does."""
        return self._report(PLATFORM, by, since, until)

    def _report(
        self, scope: Scope, by: Sequence[UsageGrouping], since: float | None, until: float | None
    ) -> UsageReport:
        with self._database.read() as c:
            sums = usage_sums.sums(c, scope, by, since=since, until=until, most=MOST_SUMS + 1)
        if len(sums) > MOST_SUMS:
            raise Invalid(f"These are more than {MOST_SUMS:,} sums: name a shorter time, or fewer groups in `by`.")
        return UsageReport(scope.project or "", by, sums, sum(sums, UsageSum()), self._prices or None)
