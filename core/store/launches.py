"""Launches in SQL: one row per launch, with its token's hash, its simulation, attempt and executor.

Its resources are recorded in the same transactions: `core/store/usage_intervals.py`.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping

import msgspec
from sqlalchemy import Connection, CursorResult, bindparam, exists, insert, select, text, update

from core.domain.access.scopes import Scope
from core.domain.scheduling.reservations import Reservation
from core.domain.scheduling.states import LIVE, State
from core.domain.scheduling.worker_resources import ONE_WORKER
from core.domain.submissions.stored_documents import decode_document, load_document
from core.domain.usage.granted_resources import GrantedResources
from core.store import usage_intervals
from core.store.owned import within
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import launches, simulations
from core.store.tables import usage_intervals as intervals


class LaunchRow(StoredRow, frozen=True, gc=False):
    """A launch, with the state of its simulation; what follows the state is the simulation's too."""

    id: str
    simulation_id: str
    attempt: int
    executor: str
    token_hash: str
    resources: str
    state: str
    reservation: str
    created_at: float
    simulation_state: str
    outcome: str | None
    submitted_at: float
    project: str
    submitted_by: str

    @property
    def workers(self) -> int:
        """Its number of workers."""
        return self.launched.cpu

    @property
    def launched(self) -> "LaunchedResources":
        """Its workers, and what each has."""
        return decode_document(self.resources, LaunchedResources)

    @property
    def accepts_results(self) -> bool:
        """Whether its runners may lease and report."""
        return self.state == "live" and State(self.simulation_state) in LIVE and self.outcome is None


class LaunchedResources(msgspec.Struct, frozen=True):
    """The resources of a launch, without the members that no list reads: its workers, and what ``each`` of them has.

    An earlier version has not stored the latter.
    """

    cpu: int = 1
    each: dict[str, int] = msgspec.field(default_factory=lambda: dict(ONE_WORKER))


#: Value of ``done`` in a launch that no executor took.
UNTAKEN = -1
_INSERT = insert(launches)
_KNOWN = select(launches.c.id).where(launches.c.id.in_(bindparam("ids", expanding=True)))
_SIMULATION = {
    "simulation_state": simulations.c.state,
    "outcome": simulations.c.outcome,
    "submitted_at": simulations.c.created_at,
    "project": simulations.c.project,
    "submitted_by": simulations.c.submitted_by,
}
_WITH_SIMULATION = select(*columns_of(launches, LaunchRow, **_SIMULATION)).join(
    simulations, simulations.c.id == launches.c.simulation_id
)
_FIND = _WITH_SIMULATION.where(launches.c.id == bindparam("i"))
_LIVE = _WITH_SIMULATION.where(text("launches.state='live'"))
_END = text("UPDATE launches SET state='over' WHERE id=:i AND state='live' RETURNING simulation_id")
_AT_WORK = text("SELECT id FROM launches WHERE simulation_id=:i AND state='live' LIMIT 1")
_RESERVE = text(
    "UPDATE launches SET reservation=:after WHERE id=:i AND state='live' AND reservation=:before RETURNING id"
)
_BEGIN = text(
    "UPDATE launches SET reservation='begun' WHERE id=:i AND state='live'"
    " AND reservation IN ('held', 'granted', 'begun') RETURNING id"
)
_WITHOUT_INTERVAL = _WITH_SIMULATION.where(
    launches.c.state == "live",
    launches.c.id.in_(bindparam("ids", expanding=True)),
    ~exists().where(intervals.c.launch_id == launches.c.id),
)
_TRIES = text("SELECT count(*) FROM launches WHERE simulation_id=:i")


def add(c: Connection, id: str, now: float, values: Mapping[str, object], granted: GrantedResources) -> None:
    """Insert a launch with what it is granted; its row commits before the executor is called."""
    c.execute(_INSERT, {**values, "id": id, "created_at": now})
    usage_intervals.begin(c, id, now, values, granted)


def mark(c: Connection, ids: Collection[str], now: float, elapsed: float | None) -> None:
    """Record that launches were still there (core/store/usage_intervals.py), also those of a version without usage."""
    if usage_intervals.mark(c, ids, now, elapsed) == len(ids):
        return
    without = read_rows(c.execute(_WITHOUT_INTERVAL, {"ids": sorted(ids)}), LaunchRow)
    for row in without:
        granted = GrantedResources.of_workers(row.workers, row.launched.each)
        values = {"simulation_id": row.simulation_id, "executor": row.executor}
        usage_intervals.begin(c, row.id, row.created_at, values, granted)
    usage_intervals.mark(c, [row.id for row in without], now, None)


def known(c: Connection, ids: Collection[str]) -> set[str]:
    """Return which of these launch ids exist, in any state."""
    return set(c.scalars(_KNOWN, {"ids": list(ids)}))


def find(c: Connection, id: str) -> LaunchRow | None:
    """Return a launch with the state and the outcome of its simulation."""
    return read_row(c.execute(_FIND, {"i": id}).first(), LaunchRow)


def live(c: Connection) -> list[LaunchRow]:
    """Return every launch that is not over, with the state and the outcome of its simulation."""
    return read_rows(c.execute(_LIVE), LaunchRow)


def end(c: Connection, id: str, now: float, *, lost: bool = False) -> bool:
    """End a launch, which invalidates its token; return False if it was over already.

    ``lost``: because of the platform, which repeats what the launch has not finished.
    """
    simulation = c.scalar(_END, {"i": id})
    if simulation is None:
        return False
    usage_intervals.end(c, id, str(simulation), now, lost=lost)
    return True


def reserve(c: Connection, id: str, before: Reservation, after: Reservation) -> bool:
    """Change the reservation of a live launch; False if it is over, or is not ``before`` any more."""
    return c.execute(_RESERVE, {"i": id, "before": before.value, "after": after.value}).first() is not None


def begin(c: Connection, id: str) -> bool:
    """Record that a launch takes a lease: its workers are in use until it is over. False if it has lent them."""
    return c.execute(_BEGIN, {"i": id}).first() is not None


def resize(c: Connection, id: str, workers: int, now: float) -> None:
    """Store a launch's new number of workers."""
    _change_resources(c, id, {"cpu": workers})
    usage_intervals.resize(c, id, workers, now)


def at_work(c: Connection, simulation: str) -> bool:
    """Return whether a simulation has a live launch."""
    return c.execute(_AT_WORK, {"i": simulation}).first() is not None


def living(c: Connection, executor: str) -> set[str]:
    """Return the ids of an executor's live launches."""
    query = select(launches.c.id).where(launches.c.state == "live", launches.c.executor == executor)
    return set(c.scalars(query))


def in_use(c: Connection, scope: Scope) -> dict[str, int]:
    """Return the workers of live launches of a scope, by executor."""
    used: Counter[str] = Counter()
    for executor, _, _, resources in _live_in(c, scope):
        used[executor] += decode_document(resources, LaunchedResources).cpu
    return dict(used)


def workers_of(c: Connection, scope: Scope) -> list[tuple[str, str, LaunchedResources]]:
    """Return project, submitter and resources of the live launches of a scope."""
    return [
        (project, user, decode_document(resources, LaunchedResources))
        for _, project, user, resources in _live_in(c, scope)
    ]


def _live_in(c: Connection, scope: Scope) -> "CursorResult[*tuple[str, str, str, str]]":
    s = simulations.c
    columns = (launches.c.executor, s.project, s.submitted_by, launches.c.resources)
    live = select(*columns).join(simulations, s.id == launches.c.simulation_id)
    rows: CursorResult[*tuple[str, str, str, str]] = c.execute(
        live.where(launches.c.state == "live", within(simulations, scope))
    )
    return rows


def tries(c: Connection, simulation: str) -> int:
    """Count the launches of a simulation so far."""
    return int(c.scalar(_TRIES, {"i": simulation}) or 0)


def discount(c: Connection, id: str) -> None:
    """Record that no executor took a launch, so that it does not count as a barren attempt."""
    _change_resources(c, id, {"done": UNTAKEN})


def _change_resources(c: Connection, id: str, changes: dict[str, int]) -> None:
    resources = c.scalar(select(launches.c.resources).where(launches.c.id == id))
    if resources is not None:
        changed = json.dumps(load_document(resources) | changes)
        c.execute(update(launches).where(launches.c.id == id).values(resources=changed))


def barren(c: Connection, simulation: str, done: int) -> int:
    """Count the newest launches in a row that began with as many results as there are now, so brought none."""
    query = select(launches.c.resources).where(launches.c.simulation_id == simulation)
    counts = (json.loads(resources)["done"] for resources in c.scalars(query.order_by(launches.c.created_at.desc())))
    history = [before for before in counts if before != UNTAKEN]
    return next((at for at, before in enumerate(history) if before != done), len(history))
