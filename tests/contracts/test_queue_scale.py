"""Cost of a long queue: the work of a pass and of a page of the list does not grow with what waits.

The work is counted in instructions of SQLite's virtual machine, which the load of the test's machine does not change.
"""

import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from sqlalchemy import event, text

from common.errors import Conflict
from common.ids import new_id
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.states import State
from core.domain.submissions.listing import Listing
from core.services.scheduling import snapshots
from core.services.scheduling.dispatch import Dispatch
from core.store import idempotency_keys, scheduling_changes, simulations
from core.store.database import Connection, Database
from tests.contracts.test_dispatcher import DispatcherRig
from tests.contracts.test_dispatcher import rig as rig  # a fixture
from tests.databases import postgres_url
from tests.dispatching import unended

COLUMNS = (
    "project, state, attempt, event_seq, spec, provenance, dataset, runtime, model, digest, labels, dry_run,"
    " claim_until, not_before, created_at"
)


class InstructionCounter:
    """Counts instructions of SQLite on all connections that a database opens from now on."""

    def __init__(self, rig: DispatcherRig) -> None:
        self._count = 0
        database = rig.platform.database
        for engine in (database._reader, database._writer):
            event.listen(engine, "checkout", self._attach)

    def _attach(self, raw: sqlite3.Connection, *_: object) -> None:
        raw.set_progress_handler(self._add, 1)  # in larger steps, short statements count as nothing

    def _add(self) -> int:
        self._count += 1
        return 0

    def during(self, work: Callable[[], object]) -> int:
        """Return the number of instructions that a call takes."""
        before = self._count
        work()
        return self._count - before


def fill_queue(rig: DispatcherRig, size: int) -> None:
    """Queue copies of a submitted simulation, as this many submissions do."""
    original = rig.submit()

    def copy(c: Connection) -> None:
        for _ in range(size - 1):
            id = new_id(datetime.now(UTC))
            c.execute(
                text(
                    f"INSERT INTO simulations(id, {COLUMNS}) SELECT :id, {COLUMNS} FROM simulations WHERE id=:original"
                ),
                {"id": id, "original": original},
            )
            c.execute(
                text(
                    "INSERT INTO stages(id, simulation_id, ordinal, total, state)"
                    " SELECT :id || '.0', :id, 0, total, state FROM stages WHERE simulation_id=:original"
                ),
                {"id": id, "original": original},
            )
            c.execute(text("INSERT INTO scheduling_changes(simulation_id) VALUES(:id)"), {"id": id})

    rig.platform.database.write(copy)


@pytest.fixture
def full(rig: DispatcherRig) -> DispatcherRig:
    """A platform whose executors are busy: what is queued waits."""
    for _ in range(2):
        rig.launch(rig.submit())
    return rig


def test_a_pass_costs_the_same_with_ten_and_with_two_thousand_simulations_queued(full: DispatcherRig) -> None:
    counter = InstructionCounter(full)
    costs = []
    for size in (10, 1990):
        fill_queue(full, size)
        # Three passes read what was submitted, and prepare the next of it: their cost shows that the counter counts.
        read = counter.during(lambda: [full.dispatcher.step() for _ in range(3)])
        assert read > max(100, 4 * size), "the counter counts"
        costs.append(counter.during(full.dispatcher.step))
    assert costs[1] < costs[0] + 500, costs


def test_a_submission_costs_the_same_with_ten_and_with_two_thousand_simulations_queued(full: DispatcherRig) -> None:
    counter = InstructionCounter(full)
    costs = []
    for size in (10, 1990):
        fill_queue(full, size)
        full.dispatcher.step()
        costs.append(counter.during(lambda: (full.submit(), full.dispatcher.step())))
    # The submission's own position is counted once: an instruction or two for each simulation before it.
    assert costs[1] < 1.2 * costs[0] + 10 * 2000, costs


def test_ended_simulations_do_not_add_to_the_cost_of_a_pass(full: DispatcherRig) -> None:
    counter = InstructionCounter(full)
    before = counter.during(full.dispatcher.step)
    fill_queue(full, 1000)
    ending = "UPDATE simulations SET state='cancelled', summary='{}', ended_at=1.0 WHERE state='queued'"
    imported = (
        "INSERT INTO model_imports(id, reference, connection, options, state, bytes, failures, not_before, claim_until,"
        " created_at) SELECT id, 's3://models/m', 'c', '{}', 'ready', 0, 0, 0, 0, 0 FROM simulations"
    )
    logged = (
        "INSERT INTO run_logs(simulation_id, connection, state, failures, not_before, claim_until)"
        " SELECT id, 'c', 'logged', 0, 0, 0 FROM simulations"
    )
    for statement in (ending, imported, logged):
        full.platform.database.write(lambda c: c.execute(text(statement)) and None)  # noqa: B023 - run at once
    full.dispatcher.step()
    assert counter.during(full.dispatcher.step) < 1.1 * before + 1000


def test_the_counts_of_metrics_and_an_idempotency_key_do_not_read_all_rows(full: DispatcherRig) -> None:
    counter = InstructionCounter(full)
    fill_queue(full, 2000)
    database = full.platform.database

    def count() -> None:
        with database.read() as c:
            assert simulations.by_state(c)["queued"] == 2000
            plan = c.execute(text("EXPLAIN QUERY PLAN SELECT state, count(*) FROM simulations GROUP BY state")).all()
        assert "COVERING INDEX" in plan[0][-1]

    assert counter.during(count) < 20 * 2000
    for number in range(300):
        database.write(
            lambda c: idempotency_keys.remember(c, LOCAL_CALLER, str(number), "d", "s", 1.0)  # noqa: B023 - run at once
        )
    assert (
        counter.during(lambda: database.write(lambda c: idempotency_keys.find(c, LOCAL_CALLER, "7", "d", 1.0))) < 1000
    )
    remember = counter.during(
        lambda: database.write(lambda c: idempotency_keys.remember(c, LOCAL_CALLER, "301", "d", "s", 1.0))
    )
    assert remember < 1000, "expired keys are found by an index"


def test_a_page_of_the_list_counts_the_queue_once_and_not_once_per_row(full: DispatcherRig) -> None:
    counter = InstructionCounter(full)
    fill_queue(full, 2000)
    list_page = full.platform.submissions.simulations.list
    one, fifty = (counter.during(lambda: list_page(LOCAL_CALLER, limit=limit)) for limit in (1, 50))  # noqa: B023 - run at once
    assert fifty - one < 50 * 1000, (one, fifty)


def test_positions_are_those_of_the_queue_also_on_a_filtered_page(full: DispatcherRig) -> None:
    ids = [full.submit(labels={"odd": str(number % 2)}) for number in range(6)]
    page, _ = full.platform.submissions.simulations.list(LOCAL_CALLER, Listing(labels=(("odd", "1"),)))
    assert {item.id: item.position for item in page} == {ids[1]: 2, ids[3]: 4, ids[5]: 6}
    page, _ = full.platform.submissions.simulations.list(LOCAL_CALLER, Listing(states=(State.QUEUED,)))
    assert [item.position for item in page] == [6, 5, 4, 3, 2, 1]


def test_a_change_without_a_log_entry_is_found_by_the_comparison_with_all_rows(
    full: DispatcherRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, cancelled = full.submit(), full.submit()
    full.dispatcher.step()

    def cancel(c: Connection) -> None:
        simulations.move(c, cancelled, State.QUEUED, State.CANCELLED, 1.0, summary="{}")
        c.execute(text("DELETE FROM scheduling_changes"))  # an earlier version writes none

    full.platform.database.write(cancel)
    assert cancelled in full.dispatch.snapshot().queue
    in_half_a_minute = time.monotonic() + snapshots.VERIFY_INTERVAL
    monkeypatch.setattr("core.services.scheduling.dispatch.time.monotonic", lambda: in_half_a_minute)
    assert set(full.dispatch.snapshot().queue) == {waiting}


def test_a_dispatcher_that_takes_over_knows_what_its_predecessor_had_read(full: DispatcherRig) -> None:
    waiting = full.submit()
    full.dispatcher.step()  # the log is empty now
    successor = Dispatch(
        full.platform.database,
        full.platform.notifier,
        executor_configs=[managed.config for managed in full.managed.values()],
        runner_api_url="http://127.0.0.1:1",
    )
    assert {simulation.id for simulation in unended(successor)} >= {waiting}


def test_a_dispatcher_without_leadership_leaves_the_log_to_the_leader(full: DispatcherRig) -> None:
    id = full.submit()
    full.dispatch.lead(7)  # another dispatcher has taken epoch 8
    with pytest.raises(Conflict):
        full.dispatch.snapshot()
    with full.platform.database.read() as c:
        assert id in [changed for _, changed in scheduling_changes.entries(c)]


def test_an_entry_that_commits_late_is_not_lost_although_a_later_entry_was_read(
    postgres: str, request: pytest.FixtureRequest
) -> None:
    database = Database(postgres_url(postgres, request.node.nodeid))
    insertion = text("INSERT INTO scheduling_changes(simulation_id) VALUES(:id)")
    with database.engine.begin() as slow:
        slow.execute(insertion, {"id": "first"})
        database.write(lambda c: c.execute(insertion, {"id": "second"}) and None)
        with database.read() as c:
            entries = scheduling_changes.entries(c)
        assert [id for _, id in entries] == ["second"]
        database.write(lambda c: scheduling_changes.acknowledge(c, [number for number, _ in entries]))
    with database.read() as c:
        assert [id for _, id in scheduling_changes.entries(c)] == ["first"]
    database.close()
