"""Distributions of large simulations: the first request of a process, and further ones while results arrive."""

import json
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient
from sqlalchemy import text

from benchmarks.figures import spread
from benchmarks.fresh_processes import measure_sizes
from benchmarks.long_queue import EXECUTOR, SilentNotifier
from benchmarks.results import milliseconds, spanned, table
from benchmarks.summaries import REPORT, SCENARIOS, peak_memory, reports
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.submissions.submission import Submission
from core.services.platform import Platform, PlatformOptions, build
from core.settings import Settings
from core.store import leases
from core.store.database import Connection, Database
from core.store.leases import Segment
from core.store.migrate import migrate
from datasets.objectstore.filesystem import FilesystemStore
from server import composition as root

SIZES = (1_000, 100_000, 1_000_000)
#: Rounds of requests while results arrive, and the reports of REPORT results before each round.
ROUNDS, ARRIVING = 20, 4
#: Requests by name: the path after that of the simulation.
REQUESTS = {
    "distributions": "distributions",
    "by_category": "dependence?metric=score&parameter=street",
    "by_number": "dependence?metric=score&parameter=start.pos",
    "heat_map": "dependence?metric=failed&parameter=street&parameter=event",
    "worst": "worst?limit=50",
}


def report(platform: Platform, database: Database, id: str, bodies: Iterator[tuple[bytes, int]], start: int) -> int:
    """Store reports of a simulation from task ``start`` on, as the runner API does; return the next task."""
    segments = []
    for body, failed in bodies:
        stop = start + body.count(b"\n")
        key = f"results/{id}/{start:012d}-0"
        platform.store.put(key, (body,))
        segments.append(
            Segment(
                start=start, stop=stop, object=key, offset=0, bytes=len(body), crc32=zlib.crc32(body), failed=failed
            )
        )
        start = stop

    def write(c: Connection) -> None:
        for segment in segments:
            leases.record(c, f"{id}.0", segment)

    database.write(write)
    return start


def seconds(client: FlaskClient, id: str, path: str) -> float:
    """Return the seconds of a request."""
    began = time.perf_counter()
    response = client.get(f"/v1/simulations/{id}/{path}")
    elapsed = time.perf_counter() - began
    assert response.status_code == 200, response.data
    return elapsed


def measure_one(home: Path, tasks: int) -> dict[str, Any]:
    """Measure one simulation in this process: requests while its last results arrive, then a first request of all."""
    database = Database(f"sqlite:///{home / 'windtunnel.db'}")
    migrate(database)
    platform = platform_on(home, database)
    platform.files.models.add(LOCAL_CALLER, (b"class Policy:\n    pass\n",), filename="model.py", name="mine")
    repeat = -(-tasks // SCENARIOS)
    submission = Submission(dataset="car_street", runtime="python", model="mine", workers=1, repeat=repeat)
    id = platform.submissions.simulations.submit(LOCAL_CALLER, submission)[0].id
    start_running(database, id)
    bodies = reports(tasks)
    followed = tasks - min(ROUNDS * ARRIVING * REPORT, tasks // 2)
    position = report(platform, database, id, islice(bodies, followed // REPORT), 0)
    client = client_of(platform, home)
    seconds(client, id, "distributions")
    following: dict[str, list[float]] = {name: [] for name in REQUESTS}
    for _ in range(ROUNDS):
        position = report(platform, database, id, islice(bodies, ARRIVING), position)
        for name, path in REQUESTS.items():
            following[name].append(seconds(client, id, path))
    figures: dict[str, Any] = {"following": {name: spread(values) for name, values in following.items()}}
    client = client_of(platform_on(home, database), home)  # with nothing in memory
    began = time.process_time()
    with peak_memory() as memory:
        figures["first"] = seconds(client, id, "distributions")
    figures |= {"processor": time.process_time() - began, **memory}
    document = client.get(f"/v1/simulations/{id}/distributions").json
    assert document is not None and document["read"] == document["sampled"] == tasks
    database.close()
    return figures


def platform_on(home: Path, database: Database) -> Platform:
    """Return the services of a process that has just started."""
    options = PlatformOptions(
        home=home, executor_configs=[EXECUTOR], sandbox={"level": 3}, own_environments=[EXECUTOR.name]
    )
    return build(database, FilesystemStore(home / "objects"), SilentNotifier(), options)


def client_of(platform: Platform, home: Path) -> FlaskClient:
    """Return a client of the WSGI application."""
    return root.create_flask(platform, Settings(home=home)).test_client()


def start_running(database: Database, id: str) -> None:
    """Set a simulation to RUNNING."""

    def write(c: Connection) -> None:
        c.execute(text("UPDATE simulations SET state='running' WHERE id=:i"), {"i": id})

    database.write(write)


def measure(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Measure each size in a process of its own and a new home folder."""
    return {"sizes": measure_sizes("benchmarks.distributions", sizes), "arriving": ARRIVING * REPORT}


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    rows = [
        [
            f"{int(tasks):,}",
            f"{values['first']:.2f} s, {values['processor']:.2f} s",
            f"{values['memory'] / 2**20:.0f} MiB",
            *(spanned(values["following"][name], milliseconds) for name in REQUESTS),
        ]
        for tasks, values in figures["sizes"].items()
    ]
    first = ("results", "first request, processor", "more memory")
    head = (*first, "distributions", "by street", "by start", "heat map", "50 worst")
    return (
        "A running simulation of `car_street` with invented results of nine metrics and an outcome, through the WSGI\n"
        "application of one process. *First*: `/distributions` when nothing is in memory: all results are read and\n"
        f"parsed. Before that, its last results arrive, up to {figures['arriving']:,} before each of {ROUNDS} rounds\n"
        "of requests: `/distributions`, which reads them, and `/dependence` of a metric on a category, on a number\n"
        "(bins, quartiles and points) and on two categories, and `/worst?limit=50`. *More memory*: the peak of the\n"
        "resident size above the size before.\n\n" + table(head, rows)
    )


if __name__ == "__main__":
    print(json.dumps(measure_one(Path(sys.argv[1]), int(sys.argv[2]))))
