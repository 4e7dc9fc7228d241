"""Summaries of large simulations: finalization, and the results as Parquet while other requests are answered."""

import json
import random
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from flask.testing import FlaskClient
from sqlalchemy import text

from benchmarks.figures import tail
from benchmarks.fresh_processes import measure_sizes
from benchmarks.long_queue import EXECUTOR, SilentNotifier
from benchmarks.results import milliseconds, table
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

#: Tasks of the simulations, and of a report; different lines are invented for the first tasks only.
SIZES = (100_000, 1_000_000)
REPORT, DIFFERENT = 500, 20_000
SCENARIOS = 288
METRICS = (
    *("score", "route_completion", "min_ttc", "max_jerk", "mean_speed", "time_lost", "lane_changes"),
    *("clipped_actions", "seconds"),
)


def reports(tasks: int) -> Iterator[tuple[bytes, int]]:
    """Yield the lines of reports, in the form of car_street's, and the number of failures in each."""
    draw = random.Random(0)
    bodies: list[list[bytes]] = []
    for since in range(0, tasks, REPORT):
        if since < DIFFERENT:
            bodies.append([_rest_of_line(draw, task) for task in range(since, min(since + REPORT, tasks))])
        body = bodies[since // REPORT % len(bodies)][: tasks - since]
        failed = sum(b'"crashed"' in line for line in body)
        yield b"".join(b'{"task":%d,%s' % (since + at, line) for at, line in enumerate(body)), failed


def _rest_of_line(draw: random.Random, task: int) -> bytes:
    ok = draw.random() < 0.99
    latencies = {name: draw.random() / 100 for name in ("p50", "p99", "p999", "max")}
    groups = {"street": draw.choice("abcdef"), "density": draw.choice("xyz"), "event": draw.choice("12345678")}
    result = {
        "status": "ok" if ok else "crashed",
        "scenario": {"index": task % SCENARIOS, "repeat": task // SCENARIOS, "seed": draw.getrandbits(63)}
        | {"name": f"scenario {task % SCENARIOS}", **groups, "mix": draw.choice("pq")},
        "metrics": {name: draw.random() * 10 for name in METRICS} | {"outcome": "arrived"} if ok else {},
        "error": None if ok else "model: the model's process ended",
        "artifacts": [],
        "timing": {"seconds": draw.random(), "inference": latencies | {"misses": 0}},
    }
    return msgspec.json.encode(result)[1:] + b"\n"


def play(platform: Platform, database: Database, tasks: int) -> str:
    """Store a simulation of car_street whose tasks all have results; return its id."""
    submission = Submission(
        dataset="car_street", runtime="python", model="mine", workers=1, repeat=-(-tasks // SCENARIOS)
    )
    id = platform.submissions.simulations.submit(LOCAL_CALLER, submission)[0].id
    stage, segments, start = f"{id}.0", [], 0
    for body, failed in reports(tasks):
        key = f"results/{id}/{start:012d}-0"
        platform.store.put(key, (body,))
        stop = min(tasks, start + REPORT)
        crc = zlib.crc32(body)
        segments.append(
            Segment(start=start, stop=stop, object=key, offset=0, bytes=len(body), crc32=crc, failed=failed)
        )
        start = stop

    def finish(c: Connection) -> None:
        leases.lay(c, stage, 0, tasks, done=True)
        for segment in segments:
            leases.record(c, stage, segment)
        c.execute(text("UPDATE stages SET next=:n, total=:n, state='done' WHERE id=:s"), {"n": tasks, "s": stage})
        c.execute(text("UPDATE simulations SET state='running' WHERE id=:i"), {"i": id})

    database.write(finish)
    return id


@contextmanager
def peak_memory() -> Iterator[dict[str, int]]:
    """Measure by how many bytes the resident memory of this process exceeds its present size in the block."""
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets VmHWM, the peak
    before, figures = _status("VmRSS"), {"memory": 0}
    yield figures
    figures["memory"] = _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def read_parquet(client: FlaskClient, id: str) -> dict[str, Any]:
    """Read the results as Parquet; return seconds to the first and the last byte, and of another request meanwhile."""
    others: list[float] = []
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(0.02):
            began = time.perf_counter()
            client.application.test_client().get(f"/v1/simulations/{id}")
            others.append(time.perf_counter() - began)

    asking = threading.Thread(target=ask)
    asking.start()
    began = time.perf_counter()
    response = client.get(f"/v1/simulations/{id}/results?format=parquet", buffered=False)
    pieces = iter(response.response)
    first, size = 0.0, 0
    for piece in pieces:
        first = first or time.perf_counter() - began
        size += len(piece)
    last = time.perf_counter() - began
    response.close()
    ended.set()
    asking.join()
    return {"first": first, "last": last, "bytes": size, "others": tail(others)}


def measure_one(home: Path, tasks: int) -> dict[str, Any]:
    """Measure one simulation in this process."""
    database = Database(f"sqlite:///{home / 'windtunnel.db'}")
    migrate(database)
    options = PlatformOptions(
        home=home, executor_configs=[EXECUTOR], sandbox={"level": 3}, own_environments=[EXECUTOR.name]
    )
    platform = build(database, FilesystemStore(home / "objects"), SilentNotifier(), options)
    platform.files.models.add(LOCAL_CALLER, (b"class Policy:\n    pass\n",), filename="model.py", name="mine")
    id = play(platform, database, tasks)
    began, processor = time.perf_counter(), time.process_time()
    with peak_memory() as memory:
        platform.jobs.finalization.collect(id)
    figures: dict[str, Any] = {
        "seconds": time.perf_counter() - began,
        "processor": time.process_time() - processor,
        **memory,
    }
    assert platform.submissions.simulations.summary(LOCAL_CALLER, id)["tasks"]["done"] == tasks
    client = root.create_flask(platform, Settings(home=home)).test_client()
    with peak_memory() as memory:
        parquet = read_parquet(client, id)
    figures["parquet"] = parquet | memory
    database.close()
    return figures


def measure(sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Measure each size in a process of its own and a new home folder."""
    return {"sizes": measure_sizes("benchmarks.summaries", sizes)}


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    rows = [
        [
            f"{int(tasks):,}",
            f"{values['seconds']:.1f} s, {values['processor']:.1f} s",
            f"{values['memory'] / 2**20:.0f} MiB",
            f"{values['parquet']['first']:.2f} s, {values['parquet']['last']:.1f} s",
            f"{values['parquet']['memory'] / 2**20:.0f} MiB",
            f"{milliseconds(values['parquet']['others']['p50'])}, {milliseconds(values['parquet']['others']['p99'])}",
        ]
        for tasks, values in figures["sizes"].items()
    ]
    head = (
        "tasks",
        "finalization, processor",
        "more memory",
        "Parquet: first, last byte",
        "more memory",
        "another GET meanwhile p50, p99",
    )
    return (
        "A simulation of `car_street` with invented results of nine metrics and four groupings, reported 500 at a\n"
        "time: the whole finalization (summary, digest, description of the archive, compaction), then\n"
        "`/results?format=parquet` through the WSGI application while another thread gets the simulation. *More\n"
        "memory*: the peak of the resident size above the size before.\n\n" + table(head, rows)
    )


if __name__ == "__main__":
    print(json.dumps(measure_one(Path(sys.argv[1]), int(sys.argv[2]))))
