"""Page of usage: the use of the project by day, as a plot, and by user, simulation, kind or label, as a table."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import msgspec
from flask import Blueprint, render_template, request

from web.acting_project import visitor
from web.api_client import api, path_of

blueprint = Blueprint("usage", __name__, url_prefix="/operations/usage")

#: The project of a platform without accounts.
DEFAULT = "default"
#: Days of the plot, and what the table is by, with what its lines are called.
PERIODS = (7, 30, 90, 365)
GROUPS = {
    "user": "User",
    "simulation": "Simulation",
    "kind": "Kind",
    "executor": "Executor",
    "label": "Labels",
}
#: Most lines of the table.
MOST_LINES = 50


class ShownSum(msgspec.Struct, frozen=True):
    """The numbers of a sum that the page shows, and its group."""

    core_hours: float
    gib_seconds: float
    gpu_seconds: float
    lost_core_seconds: float
    estimated_core_seconds: float
    cost: float | None
    day: str = ""
    user: str = ""
    simulation: str = ""
    kind: str = ""
    executor: str = ""
    label: str = ""


class _Choices(msgspec.Struct, frozen=True):
    """The parameters of the address."""

    days: str = "30"
    by: str = "user"


class ShownUsage(msgspec.Struct, frozen=True):
    """Usage by day."""

    currency: str
    items: list[ShownSum]
    total: ShownSum


@dataclass(frozen=True, slots=True)
class UsageBar:
    """The bar of a day: where it is and how high, in percent of the plot."""

    day: str
    core_hours: float
    place: float
    width: float
    height: float


@blueprint.get("")
def show() -> str:
    """Show what the project has used in the last days."""
    chosen = msgspec.convert(request.args.to_dict(), _Choices)
    days = next((days for days in PERIODS if chosen.days == str(days)), 30)
    by = chosen.by if chosen.by in GROUPS else "user"
    known = visitor()
    project = DEFAULT if known is None else known.project or ""
    today = datetime.now(UTC).date()
    since = today - timedelta(days=days - 1)
    path = path_of("projects", project, "usage")
    usage = msgspec.convert(api().get(path, by="day", since=since.isoformat()), ShownUsage)
    groups = msgspec.convert(api().get(path, by=by, since=since.isoformat()), ShownUsage)
    lines = sorted(groups.items, key=lambda line: -line.core_hours)
    return render_template(
        "operations/usage.html",
        project=project,
        usage=usage,
        bars=_bars(usage, since, days),
        lines=lines[:MOST_LINES],
        omitted=max(0, len(lines) - MOST_LINES),
        by=by,
        days=days,
        groups=GROUPS,
        periods=PERIODS,
    )


def _bars(usage: ShownUsage, since: date, days: int) -> list[UsageBar]:
    hours = {each.day: each.core_hours for each in usage.items}
    most = max(hours.values(), default=0.0) or 1.0
    width = 100 / days
    bars = []
    for number in range(days):
        day = (since + timedelta(days=number)).isoformat()
        used = hours.get(day, 0.0)
        bars.append(UsageBar(day, used, round(number * width, 3), round(width * 0.8, 3), round(100 * used / most, 2)))
    return bars
