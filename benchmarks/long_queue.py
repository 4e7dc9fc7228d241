"""Long queue: seconds of a dispatcher's pass, of a page of the list and of a submission, by what is queued."""

import resource
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import inspect, text

from benchmarks.figures import tail
from benchmarks.platform_process import fresh_home
from benchmarks.results import milliseconds, table
from common.ids import new_id
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.executor_config import ExecutorConfig
from core.domain.scheduling.launches import Launch, LaunchStatus, Phase
from core.domain.submissions.submission import Submission
from core.services.platform import Platform, PlatformOptions, build
from core.services.scheduling.dispatch import Dispatch
from core.store.database import Connection, Database
from core.store.migrate import migrate
from datasets.objectstore.filesystem import FilesystemStore
from workers.dispatcher import Dispatcher
from workers.managed_executor import ManagedExecutor

SIZES = (10, 10_000, 100_000)
PASSES, PAGES, SUBMISSIONS = 50, 100, 50
EXECUTOR = ExecutorConfig(name="busy", kind="fake", workers=1)
COLUMNS = (
    "project, state, attempt, event_seq, spec, provenance, dataset, runtime, model, digest, labels, dry_run,"
    " claim_until, not_before, created_at"
)


class SilentNotifier:
    """Notifier that delivers nothing: every consumer also polls."""

    def wake(self, role: str) -> None:
        """Do nothing."""

    def wait(self, role: str, timeout: float) -> bool:
        """Return at once."""
        return False

    def publish(self, simulation_id: str) -> None:
        """Do nothing."""

    def published(self, timeout: float) -> list[str]:
        """Wait, and return nothing."""
        time.sleep(timeout)
        return []

    def enqueue(self, job: str, id: str) -> bool:
        """Do nothing."""
        return False

    def alive(self) -> bool:
        """Return that nothing is delivered."""
        return False


class BusyExecutor:
    """Executor whose launches run without end."""

    name = EXECUTOR.name

    def submit(self, launch: Launch) -> None:
        """Accept the launch."""

    def observe(self, ids: Iterable[str]) -> Mapping[str, LaunchStatus]:
        """Return that every launch runs."""
        return {id: LaunchStatus(id=id, phase=Phase.RUNNING) for id in ids}

    def cancel(self, launch_id: str) -> None:
        """Do nothing."""

    def resize(self, launch_id: str, workers: int) -> None:
        """Do nothing."""

    def orphans(self, known: Collection[str]) -> Sequence[str]:
        """Return nothing."""
        return ()


def submit(platform: Platform) -> None:
    """Submit a simulation of one task."""
    platform.submissions.simulations.submit(
        LOCAL_CALLER, Submission(dataset="noop", runtime="python", model="mine", scenarios={"range": [0, 1]}, workers=1)
    )


def fill(database: Database, size: int) -> None:
    """Queue copies of the newest simulation until this many are queued."""
    with database.read() as c:
        logged = inspect(c).has_table("scheduling_changes")

    def copy(c: Connection, count: int) -> None:
        original = c.scalar(text("SELECT max(id) FROM simulations"))
        for _ in range(count):
            values = {"id": new_id(datetime.now(UTC)), "original": original}
            row = f"INSERT INTO simulations(id, {COLUMNS}) SELECT :id, {COLUMNS} FROM simulations WHERE id=:original"
            c.execute(text(row), values)
            stage = (
                "INSERT INTO stages(id, simulation_id, ordinal, total, state)"
                " SELECT :id || '.0', :id, 0, total, state FROM stages WHERE simulation_id=:original"
            )
            c.execute(text(stage), values)
            if logged:
                c.execute(text("INSERT INTO scheduling_changes(simulation_id) VALUES(:id)"), values)

    with database.read() as c:
        queued = c.scalar(text("SELECT count(*) FROM simulations WHERE state='queued'")) or 0
    for at in range(queued, size, 1000):
        count = min(1000, size - at)
        database.write(lambda c: copy(c, count))  # noqa: B023 - run at once


def timed(work: Callable[[], object], runs: int) -> list[float]:
    """Return the seconds of each of several calls."""
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return seconds


def measure_queue(home: Path, sizes: Sequence[int]) -> dict[str, Any]:
    """Measure passes, pages and submissions in one process, by the length of the queue."""
    database = Database(f"sqlite:///{home / 'windtunnel.db'}")
    migrate(database)
    options = PlatformOptions(
        home=home, executor_configs=[EXECUTOR], sandbox={"level": 3}, own_environments=[EXECUTOR.name]
    )
    platform = build(database, FilesystemStore(home / "objects"), SilentNotifier(), options)
    platform.files.models.add(LOCAL_CALLER, (b"class Policy:\n    pass\n",), filename="model.py", name="mine")
    dispatch = Dispatch(database, platform.notifier, executor_configs=[EXECUTOR], runner_api_url="http://127.0.0.1:1")
    managed = ManagedExecutor(EXECUTOR, BusyExecutor())
    dispatcher = Dispatcher(platform.scheduling, dispatch, [managed], run_dir=home, ttl=10.0, interval=0.1)
    figures: dict[str, Any] = {}
    submit(platform)
    dispatcher.step()  # admits it: the only worker is in use from now on
    for size in sizes:
        submit(platform)
        fill(database, size)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        first = timed(dispatcher.step, 1)[0]
        figures[str(size)] = {
            "first_pass": first,
            "pass": tail(timed(dispatcher.step, PASSES)),
            "memory": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024,
            "page": tail(timed(lambda: platform.submissions.simulations.list(LOCAL_CALLER, limit=50), PAGES)),
            "submission": tail(timed(lambda: submit(platform), SUBMISSIONS)),
        }
        print(f"{size} queued: {figures[str(size)]}", flush=True)
    managed.close()
    database.close()
    return figures


def measure(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Measure in a new home folder."""
    with fresh_home() as home:
        home.mkdir(parents=True, exist_ok=True)
        return {"sizes": measure_queue(home, sizes)}


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    rows = [
        [
            f"{int(size):,}",
            f"{milliseconds(values['pass']['p50'])}, {milliseconds(values['pass']['p99'])}",
            milliseconds(values["first_pass"]),
            f"{milliseconds(values['page']['p50'])}, {milliseconds(values['page']['p99'])}",
            f"{milliseconds(values['submission']['p50'])}, {milliseconds(values['submission']['p99'])}",
            f"{values['memory'] / 2**20:.0f} MiB",
        ]
        for size, values in figures["sizes"].items()
    ]
    head = (
        "queued",
        "pass p50, p99",
        "pass that reads them",
        "page of 50 p50, p99",
        "submission p50, p99",
        "peak memory",
    )
    return (
        "One worker, in use; the dispatcher, the list (`GET /v1/simulations`, without HTTP) and submissions in one\n"
        "process on SQLite. *Pass that reads them*: the first after they were submitted all at once.\n\n"
        + table(head, rows)
    )
