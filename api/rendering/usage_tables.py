"""Usage tables: reports of usage as documents and as CSV, and estimates as documents."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from api.tabular import csv_of
from core.domain.usage.usage_sums import UsageSum
from core.services.operations.usage_reports import UsageReport
from core.services.submissions.estimates import AskedQuota, AskedResource, SubmissionEstimate

#: Digits after the point of costs.
COST_DIGITS = 6
_SUMS = (
    "core_seconds",
    "core_hours",
    "gib_seconds",
    "gpu_seconds",
    "worker_seconds",
    "lost_core_seconds",
    "estimated_core_seconds",
    "cost",
)


def as_document(report: UsageReport) -> dict[str, object]:
    """Return a report as JSON has it."""
    return {
        "project": report.project,
        "by": [grouping.name for grouping in report.by],
        "currency": "" if report.prices is None else report.prices.currency,
        "items": [_row(report, each) for each in report.sums],
        "total": _numbers(report, report.total),
    }


def as_csv(report: UsageReport) -> Iterator[bytes]:
    """Yield a report as CSV: a line for each sum, without the total."""
    names = [grouping.name for grouping in report.by]
    kinds = dict.fromkeys(names, "str") | dict.fromkeys(_SUMS, "float")
    return csv_of((_row(report, each) for each in report.sums), kinds)


def _row(report: UsageReport, each: UsageSum) -> dict[str, object]:
    group = {grouping.name: value for grouping, value in zip(report.by, each.group, strict=True)}
    return {**group, **_numbers(report, each)}


def _numbers(report: UsageReport, each: UsageSum) -> dict[str, object]:
    used = each.used
    numbers = (
        used.millicores / 1_000_000,
        used.core_hours,
        used.mebibytes / 1_024_000,
        used.gpus / 1000,
        used.workers / 1000,
        each.lost.millicores / 1_000_000,
        each.estimated.millicores / 1_000_000,
        _amount(report.cost(each)),
    )
    return dict(zip(_SUMS, numbers, strict=True))


def _amount(cost: Fraction | None) -> float | None:
    return None if cost is None else round(float(cost), COST_DIGITS)


def estimate_document(estimate: SubmissionEstimate) -> dict[str, object]:
    """Return an estimate as JSON has it."""
    costs, used = estimate.costs, estimate.used
    return {
        "tasks": estimate.tasks,
        "workers": estimate.granted.workers,
        "seconds": estimate.seconds,
        "core_hours": None if used is None else used.core_hours,
        "cost": _amount(estimate.cost),
        "currency": estimate.currency,
        "basis": {
            "kind": estimate.basis.value,
            "simulations": 0 if costs is None else costs.simulations,
            "tasks": 0 if costs is None else costs.tasks,
            "core_seconds_per_task": None if used is None else used.millicores / 1_000_000 / estimate.tasks,
        },
        "quotas": _parts(estimate.project),
        "user_quotas": _parts(estimate.user),
        "resources": _resource_parts(estimate.project_resources),
        "user_resources": _resource_parts(estimate.user_resources),
        "never_starts": estimate.held,
    }


def _parts(parts: Sequence[AskedQuota]) -> dict[str, object]:
    return {
        part.quota.value: {"limit": part.limit, "used": part.used, "asked": part.asked, "part": part.part}
        for part in parts
    }


def _resource_parts(parts: Sequence[AskedResource]) -> dict[str, object]:
    return {
        part.name: {"limit": part.limit, "used": part.used, "asked": part.asked, "part": part.part} for part in parts
    }
