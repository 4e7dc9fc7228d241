"""Dispatcher with two executors: either may be unreachable, slow or refuse launches; every task gets one result."""

import json
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from common.errors import Gone, NotGranted, PlatformError, Unsupported
from core.domain.access.scopes import LOCAL_CALLER, PLATFORM
from core.domain.scheduling.executor_config import ExecutorConfig, GangSupport
from core.domain.scheduling.launches import Launch, LaunchStatus, Note, Phase
from core.domain.scheduling.ranges import Ended, Later
from core.domain.scheduling.states import State
from core.domain.submissions.submission import Submission
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.services.scheduling.dispatch import MAX_BARREN_ATTEMPTS, Dispatch
from core.store import events, simulations
from core.store.database import Connection, Database
from datasets.objectstore.base import ObjectStore
from datasets.objectstore.filesystem import FilesystemStore
from tests.api.answers import MODEL, line
from tests.conftest import Clock
from tests.databases import sqlite_database
from tests.fake_executor import FakeExecutor
from tests.reports import report_of
from tests.waiting import until
from workers.dispatcher import Dispatcher
from workers.managed_executor import ManagedExecutor


class ControllableExecutor(FakeExecutor):
    """Executor that a test makes unreachable, slow or refusing, and whose reported statuses it sets."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.calls = 0
        self.unreachable = False
        self.pause = 0.0
        self.resumed = threading.Event()
        self.reported: dict[str, Any] = {}
        self.refuses_resize = False
        self.refuses_launches = False
        self.refusal: PlatformError | None = None

    def _answer(self) -> None:
        self.calls += 1
        if self.pause:
            self.resumed.wait(self.pause)
        if self.unreachable:
            raise ConnectionError(f"{self.name} is away")

    def submit(self, launch: Launch) -> None:
        self._answer()
        if self.refusal is not None:
            raise self.refusal
        if self.refuses_launches:
            raise ConnectionError("failed calling webhook")
        super().submit(launch)

    def observe(self, ids: Iterable[str]) -> Mapping[str, LaunchStatus]:
        self._answer()
        return {id: replace(status, **self.reported) for id, status in super().observe(ids).items()}

    def cancel(self, launch_id: str) -> None:
        self._answer()
        super().cancel(launch_id)

    def resize(self, launch_id: str, workers: int) -> None:
        self._answer()
        if self.refuses_resize:
            raise Unsupported("The launch cannot be resized.")
        super().resize(launch_id, workers)

    def orphans(self, known: Collection[str]) -> Sequence[str]:
        self._answer()
        return super().orphans(known)


@dataclass
class DispatcherRig:
    """A platform with two executors, and its dispatcher, which a test runs pass by pass."""

    platform: Platform
    run_dir: Path
    east: ControllableExecutor
    west: ControllableExecutor
    managed: Mapping[str, ManagedExecutor]

    def __post_init__(self) -> None:
        self.configure(*self.managed.values())

    def configure(self, *executors: ManagedExecutor) -> None:
        """Replace the dispatcher with a dispatcher of these executors only."""
        self.dispatch = Dispatch(
            self.platform.database,
            self.platform.notifier,
            executor_configs=[executor.config for executor in executors],
            runner_api_url="http://127.0.0.1:1",
        )
        self.dispatcher = Dispatcher(
            self.platform.scheduling, self.dispatch, executors, run_dir=self.run_dir, ttl=1.0, interval=0.1
        )

    def submit(self, **fields: Any) -> str:
        defaults = {
            "dataset": "noop",
            "runtime": "python",
            "model": "mine",
            "scenarios": {"range": [0, 40]},
            "workers": 2,
        }
        submission = Submission(**defaults | fields)
        return self.platform.submissions.simulations.submit(LOCAL_CALLER, submission)[0].id

    def until(self, condition: Callable[[], object]) -> None:
        def condition_after_step() -> bool:
            if condition():
                return True
            self.dispatcher.step()
            return False

        until(condition_after_step, every=0.01)

    def end_pauses(self) -> None:
        """Let every queued simulation be tried again at once."""

        def end(c: Connection) -> None:
            c.execute(text("UPDATE simulations SET not_before=0"))
            c.execute(text("INSERT INTO scheduling_changes(simulation_id) SELECT id FROM simulations"))

        self.platform.database.write(end)

    def launch(self, id: str) -> tuple[ControllableExecutor, Launch]:
        """Wait until a simulation is submitted to an executor; return the executor and the launch."""
        submitted: list[tuple[ControllableExecutor, Launch]] = []

        def is_submitted() -> bool:
            submitted[:] = [
                (executor, launch)
                for executor in (self.east, self.west)
                for launch in executor.launches.values()
                if launch.simulation_id == id and launch.id in self.active_launches
            ]
            return bool(submitted)

        self.until(is_submitted)
        return submitted[0]

    @property
    def active_launches(self) -> set[str]:
        with self.platform.database.read() as c:
            from core.store import launches

            return launches.living(c, "east") | launches.living(c, "west")

    def play(self, launch: Launch, tasks: int | None = None) -> None:
        """Report results of a number of tasks, or of all, as a runner does."""
        leases = self.platform.scheduling.leases
        identity = leases.authenticate(launch.id, launch.token)
        reported = 0

        def lease_tasks() -> Any:
            """Lease tasks; those of an earlier worker are available after its lease expires."""
            lease = leases.lease(identity, "d", None)
            if isinstance(lease, Later):
                self.dispatcher.step()
                return None
            return lease

        while tasks is None or reported < tasks:
            lease = until(lease_tasks, message="no task became available")
            if isinstance(lease, Ended):
                return
            stop = lease.stop if tasks is None else min(lease.stop, lease.cursor + tasks - reported)
            lines = b"".join(line(task) for task in range(lease.cursor, stop))
            report = report_of(lease, lease.cursor, stop, lines)
            assert leases.report(identity, report).accepted
            reported += stop - lease.cursor

    def results(self, id: str) -> list[dict[str, Any]]:
        """Return the results of a simulation that has ended."""
        return [
            json.loads(text) for text in b"".join(self.platform.analysis.results.lines(LOCAL_CALLER, id)).splitlines()
        ]

    def messages(self, id: str) -> list[str]:
        with self.platform.database.read() as c:
            return [body["message"] for body in events.bodies(c, id, "launch")]

    def state(self, id: str) -> State:
        return self.platform.submissions.simulations.get(LOCAL_CALLER, id).state

    def end(self, id: str, state: State = State.SUCCEEDED) -> None:
        def finalized() -> bool:
            self.platform.jobs.finalization.collect(id)
            return self.state(id) is state

        self.until(finalized)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[DispatcherRig]:
    with dispatcher_rig(tmp_path, sqlite_database(tmp_path / "platform.db")) as rig:
        rig.platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
        yield rig


@contextmanager
def dispatcher_rig(home: Path, database: Database, objects: ObjectStore | None = None) -> Iterator[DispatcherRig]:
    """Open a platform in a home, with a dispatcher; the database is closed at the end."""
    allowed = {"queue": ["team-*"], "runtime_ref": ["torch-*"], "image": ["site/*"]}
    gangs = GangSupport(unattended=True)
    executor_configs = [
        ExecutorConfig(name=name, kind="fake", workers=2, grace=0.4, allowed=allowed, gangs=gangs)
        for name in ("east", "west")
    ]
    platform = build(
        database,
        objects or FilesystemStore(home / "objects"),
        LocalNotifier(),
        PlatformOptions(
            home=home,
            executor_configs=executor_configs,
            sandbox={"level": 3},
            own_environments=["east", "west"],  # nothing is prepared on this machine
            lease_ttl=1.0,
        ),
    )
    east, west = ControllableExecutor("east"), ControllableExecutor("west")
    managed = [ManagedExecutor(executor_configs[0], east, refill=0.05), ManagedExecutor(executor_configs[1], west)]
    (home / "run").mkdir()
    enqueue = platform.notifier.enqueue

    def run_or_enqueue(job: str, id: str) -> None:
        """Stage at once, and finalize at once what ends early; ``end`` finalizes what has all its results."""
        if job in {"stage", "prepare"}:
            platform.scheduling.staging.stage(id)
        elif job == "collect" and ends_early(id):
            platform.jobs.finalization.collect(id)
        else:
            enqueue(job, id)

    def ends_early(id: str) -> bool:
        with database.read() as c:
            row = simulations.find(c, PLATFORM, id)
        return row.outcome is not None or row.state == State.CANCELLING

    platform.notifier.enqueue = run_or_enqueue  # type: ignore[method-assign]
    yield DispatcherRig(
        platform=platform,
        run_dir=home / "run",
        east=east,
        west=west,
        managed={executor.name: executor for executor in managed},
    )
    for executor in managed:
        executor.close()
    database.close()


def test_simulations_spread_over_the_executors(rig: DispatcherRig) -> None:
    first, second = rig.submit(), rig.submit()
    assert {rig.launch(first)[0].name, rig.launch(second)[0].name} == {"east", "west"}
    third = rig.submit()
    rig.until(
        lambda: rig.platform.submissions.simulations.get(LOCAL_CALLER, third).reason == "waits for 2 free workers"
    )
    assert rig.state(third) is State.QUEUED


def test_a_simulation_says_what_is_prepared_for_it_before_the_job_that_prepares_it_has_begun(
    rig: DispatcherRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig.platform.scheduling.staging, "stage", lambda id: None)
    id = rig.submit()
    rig.until(lambda: rig.state(id) is State.STAGING)
    expected = "waits for a preparation slot: its files are prepared for (east|west)"
    assert re.fullmatch(expected, rig.platform.submissions.simulations.get(LOCAL_CALLER, id).reason or "")


def test_a_launch_whose_tasks_all_have_results_makes_room_before_its_summary_is_written(rig: DispatcherRig) -> None:
    first, second = rig.submit(), rig.submit()
    _, launch = rig.launch(first)
    rig.launch(second)
    third = rig.submit()
    rig.dispatcher.step()
    assert rig.state(third) is State.QUEUED
    rig.play(launch)
    executor, _ = rig.launch(third)
    assert rig.state(first) is State.RUNNING and launch.id in executor.launches
    rig.end(first)


def test_the_event_of_the_end_is_the_last_also_if_progress_is_summed_up_meanwhile(rig: DispatcherRig) -> None:
    id = rig.submit()
    rig.play(rig.launch(id)[1], 39)
    running = rig.dispatch.simulation(id)
    rig.play(rig.launch(id)[1])
    rig.end(id)
    rig.dispatch.tick([], time.time())  # forgets what it has summed up
    rig.dispatch.tick([running], time.time())  # by a snapshot that was read before the end
    with rig.platform.database.read() as c:
        last = events.read_after(c, id, 0)[-1]
    assert (last.type, json.loads(last.body)["state"]) == ("state", "succeeded")


def test_a_simulation_of_a_lost_executor_continues_on_another_and_each_task_counts_once(rig: DispatcherRig) -> None:
    id = rig.submit()
    executor, launch = rig.launch(id)
    rig.play(launch, 10)
    executor.unreachable = True
    second_executor, other = rig.launch(id)
    while second_executor is executor:  # until its grace period has ended
        rig.dispatcher.step()
        second_executor, other = rig.launch(id)
    with pytest.raises(Gone):
        rig.play(launch)  # its runners continue, and their reports are refused
    rig.play(other)
    rig.end(id)
    results = rig.platform.submissions.simulations.get(LOCAL_CALLER, id)
    assert (results.tasks.done, results.tasks.failed, results.attempt) == (40, 0, 2)
    assert list(executor.launches) == [launch.id]
    executor.unreachable = False
    rig.until(lambda: not executor.launches)  # an orphan: removed when the executor is reachable again
    assert rig.managed[executor.name].healthy


def test_a_launch_with_heartbeats_is_not_lost_with_an_unreachable_executor(rig: DispatcherRig) -> None:
    id = rig.submit()
    executor, launch = rig.launch(id)
    identity = rig.platform.scheduling.leases.authenticate(launch.id, launch.token)
    lease = rig.platform.scheduling.leases.lease(identity, "d", None)
    assert not isinstance(lease, Ended | Later)
    managed = rig.managed[executor.name]

    def after_heartbeat(condition: bool) -> bool:
        rig.platform.scheduling.leases.heartbeat(identity, [(lease.stage, lease.start, lease.fencing_token, -1)])
        return condition

    executor.unreachable = True
    rig.until(lambda: after_heartbeat(managed.lost))
    for _ in range(10):
        rig.dispatcher.step()
    executor.unreachable = False
    rig.until(lambda: after_heartbeat(managed.healthy))
    lines = b"".join(line(task) for task in range(lease.cursor, lease.stop))
    report = report_of(lease, lease.cursor, lease.stop, lines)
    assert rig.platform.scheduling.leases.report(identity, report).accepted
    rig.play(launch)
    rig.end(id)
    assert rig.platform.submissions.simulations.get(LOCAL_CALLER, id).attempt == 1


def test_an_unreachable_executor_is_called_with_exponential_back_off(rig: DispatcherRig, clock: Clock) -> None:
    rig.east.unreachable = True
    timed = ManagedExecutor(rig.managed["east"].config, rig.east, clock=clock)
    rig.configure(timed, rig.managed["west"])
    for _ in range(200):  # two seconds of the executor's clock
        rig.dispatcher.step()
        clock.now += 0.01
    timed.close()
    assert 2 <= rig.east.calls <= 12
    (east, west) = rig.platform.operations.executors.list(LOCAL_CALLER)
    assert (east.healthy, east.reason, west.healthy) == (False, "east is away", True)


def test_a_slow_executor_does_not_delay_another(rig: DispatcherRig) -> None:
    slow = rig.submit(placement={"executor": "east"})
    assert rig.launch(slow)[0] is rig.east
    rig.east.pause = 60.0
    start = time.monotonic()
    quick = rig.submit(placement={"executor": "west"})
    _, launch = rig.launch(quick)
    rig.play(launch)
    rig.end(quick)
    assert time.monotonic() - start < 60.0
    rig.east.pause = 0.0
    rig.east.resumed.set()


def test_a_launch_that_an_unreachable_executor_did_not_accept_goes_to_another(rig: DispatcherRig) -> None:
    rig.east.unreachable = rig.west.unreachable = True
    id = rig.submit()
    rig.until(lambda: not rig.managed["east"].healthy and not rig.managed["west"].healthy)
    rig.west.unreachable = False
    assert rig.launch(id)[0] is rig.west


def test_a_simulation_waits_without_limit_for_an_executor_that_accepts_no_launch(rig: DispatcherRig) -> None:
    rig.east.refuses_launches = rig.west.refuses_launches = True
    id = rig.submit()
    refused: list[str] = []
    for executor in (rig.east, rig.west):
        refuse = executor.submit

        def record_and_refuse(launch: Launch, refuse: Callable[[Launch], None] = refuse) -> None:
            refused.append(launch.id)
            refuse(launch)

        executor.submit = record_and_refuse  # type: ignore[method-assign]
    for managed in rig.managed.values():
        managed.launch_accepted()
    rig.until(
        lambda: (
            [managed.launch_accepted() for managed in rig.managed.values()] and len(refused) > MAX_BARREN_ATTEMPTS + 2
        )
    )
    assert rig.state(id) not in {State.ERRORED, State.FAILED}
    rig.until(lambda: rig.state(id) is State.QUEUED)
    rig.until(
        lambda: "failed calling webhook" in (rig.platform.submissions.simulations.get(LOCAL_CALLER, id).reason or "")
    )
    rig.east.refuses_launches = False
    assert rig.launch(id)[0] is rig.east


@pytest.mark.parametrize("before", [False, True], ids=["at once", "after it ran there"])
def test_a_missing_permission_ends_a_simulation_unless_it_was_granted_before(rig: DispatcherRig, before: bool) -> None:
    rig.west.unreachable = True
    if before:
        id = rig.submit()
        _, launch = rig.launch(id)
        rig.play(launch, 10)
        rig.east.refusal = NotGranted("Grant it to create jobsets in windtunnel-default.")
        rig.east.end(launch.id, 1, "its namespace was deleted")
        rig.until(lambda: rig.platform.submissions.simulations.get(LOCAL_CALLER, id).attempt > 2)
        assert "Grant it" in (rig.platform.submissions.simulations.get(LOCAL_CALLER, id).reason or "")
        rig.platform.submissions.simulations.cancel(LOCAL_CALLER, id)
    else:
        rig.east.refusal = NotGranted("Grant it to create jobsets in windtunnel-default.")
        id = rig.submit()
        rig.until(lambda: rig.state(id) is State.FAILED)


def test_a_simulation_whose_queue_is_not_allowed_any_more_ends_with_the_setting(rig: DispatcherRig) -> None:
    """Both while it waits, and when it is queued again after the loss of its launch; a running launch continues."""
    running = rig.submit(placement={"queue": "team-a"})
    executor, launch = rig.launch(running)
    rig.play(launch, 10)
    waiting = rig.submit(placement={"queue": "team-b"})
    shortened = {name: replace(managed.config, allowed={}) for name, managed in rig.managed.items()}
    executors = {"east": rig.east, "west": rig.west}
    restarted = {name: ManagedExecutor(config, executors[name]) for name, config in shortened.items()}
    rig.configure(*restarted.values())
    rig.until(lambda: rig.state(waiting) is State.ERRORED)
    assert "allowed.queue (empty)" in (rig.platform.submissions.simulations.get(LOCAL_CALLER, waiting).reason or "")
    assert rig.state(running) is State.RUNNING
    executor.end(launch.id, 1, "its node was lost")
    rig.until(lambda: rig.state(running) is State.ERRORED)
    assert "placement.queue: team-a is not in" in (
        rig.platform.submissions.simulations.get(LOCAL_CALLER, running).reason or ""
    )
    assert rig.platform.submissions.simulations.get(LOCAL_CALLER, running).tasks.done == 10
    for managed in restarted.values():
        managed.close()


def test_a_simulation_moves_to_an_executor_that_allows_its_queue(rig: DispatcherRig) -> None:
    shortened = replace(rig.managed["east"].config, allowed={})
    east = ManagedExecutor(shortened, rig.east)
    rig.configure(east, rig.managed["west"])
    first, second = rig.submit(placement={"queue": "team-a"}), rig.submit(placement={"queue": "team-a"})
    executor, launch = rig.launch(first)
    assert executor is rig.west
    rig.until(
        lambda: rig.platform.submissions.simulations.get(LOCAL_CALLER, second).reason == "waits for 2 free workers"
    )
    rig.play(launch)
    rig.end(first)
    assert rig.launch(second)[0] is rig.west and not rig.east.launches
    east.close()


def test_a_launch_that_can_never_start_ends_at_once_with_the_reason(rig: DispatcherRig) -> None:
    id = rig.submit()
    executor, launch = rig.launch(id)
    reason = "The image windtunnel-onnx:1 cannot be pulled: check its name and the pull secret."
    executor.reported = {"phase": Phase.STARTING, "hopeless": True, "reason": reason}
    rig.until(lambda: rig.state(id) is State.ERRORED)
    assert rig.platform.submissions.simulations.get(LOCAL_CALLER, id).reason == reason
    assert launch.id not in executor.launches


def test_a_message_of_a_launch_status_is_recorded_once_in_the_events_of_its_simulation(rig: DispatcherRig) -> None:
    id = rig.submit()
    executor, _ = rig.launch(id)
    executor.reported = {"notes": (Note(key="unschedulable", message="No node has 2 free GPUs; ask for fewer."),)}
    rig.until(lambda: rig.messages(id))
    for _ in range(5):
        rig.dispatcher.step()
    executor.reported = {
        "notes": (*executor.reported["notes"], Note(key="oom", message="The evaluator was out of memory."))
    }
    rig.until(lambda: len(rig.messages(id)) > 1)
    assert rig.messages(id) == ["No node has 2 free GPUs; ask for fewer.", "The evaluator was out of memory."]


def test_the_number_of_workers_of_a_running_simulation_changes_without_a_restart(rig: DispatcherRig) -> None:
    id = rig.submit(workers=1)
    executor, launch = rig.launch(id)
    rig.play(launch, 5)
    rig.platform.submissions.simulations.resize(LOCAL_CALLER, id, 2)
    rig.until(lambda: executor.launches[launch.id].workers == 2)
    rig.play(launch)
    rig.end(id)
    assert rig.platform.submissions.simulations.get(LOCAL_CALLER, id).attempt == 1


def test_an_executor_that_cannot_resize_a_launch_says_so_and_the_launch_continues(rig: DispatcherRig) -> None:
    rig.east.refuses_resize = rig.west.refuses_resize = True
    id = rig.submit(workers=1)
    _, launch = rig.launch(id)
    rig.play(launch, 5)
    rig.platform.submissions.simulations.resize(LOCAL_CALLER, id, 2)
    rig.until(lambda: rig.messages(id))
    for _ in range(3):
        rig.dispatcher.step()
    assert rig.messages(id) == ["The launch cannot be resized."]
    rig.play(launch)
    rig.end(id)


def test_an_orphan_is_removed(rig: DispatcherRig) -> None:
    id = rig.submit()
    executor, launch = rig.launch(id)
    executor.submit(replace(launch, id="forgotten"))
    rig.managed[executor.name].search_orphans_soon()
    rig.until(lambda: "forgotten" not in executor.launches)
    assert launch.id in executor.launches


def test_metrics_say_that_a_dispatcher_leads_and_how_many_passes_failed(rig: DispatcherRig) -> None:
    metrics, stop = rig.dispatcher.metrics, threading.Event()

    def value(name: str, labels: Mapping[str, str]) -> float:
        return metrics.registry.get_sample_value(name, dict(labels)) or 0.0

    def passes(outcome: str) -> float:
        return value("windtunnel_dispatcher_passes_total", {"outcome": outcome})

    assert value("windtunnel_dispatcher_leads", {}) == 0 == passes("done")
    running = threading.Thread(target=rig.dispatcher.run, args=(stop,))
    running.start()
    try:
        until(lambda: passes("done") > 1)
        assert value("windtunnel_dispatcher_leads", {}) == 1 and passes("failed") == 0
        rig.platform.database.write(lambda c: c.execute(text("ALTER TABLE scheduling_changes RENAME TO hidden")))
        until(lambda: passes("failed") > 0)
    finally:
        stop.set()
        running.join()
