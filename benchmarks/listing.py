"""Listing: server time of the list of 100,000 simulations and of its counts, by filter, on SQLite and PostgreSQL."""

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient
from sqlalchemy import Table, insert, select, text

from benchmarks.figures import tail
from benchmarks.long_queue import EXECUTOR, SilentNotifier
from benchmarks.platform_process import fresh_home
from benchmarks.results import aim, milliseconds, table
from benchmarks.summaries import play
from common.ids import new_id
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.states import State
from core.domain.submissions.listing import search_text
from core.services.platform import Platform, PlatformOptions, build
from core.settings import Settings
from core.store import tables
from core.store.database import Connection, Database
from core.store.migrate import migrate
from datasets.objectstore.filesystem import FilesystemStore
from server import composition as root
from tests.databases import postgres_url
from tests.postgres import own_postgres

SIZE, TASKS, STEP = 100_000, 288, 1000
DATASETS, MODELS, CALLERS = 20, 200, 30
#: Summaries with groups.
WHOLE = 2_000
#: Segments of a simulation that runs, and the numbers of simulations that run and that are queued.
SEGMENTS, RUNNING, QUEUED = 200, 40, 5000
REQUESTS = 30
#: Seconds between two submissions.
PAUSE = 20.0


def fill(platform: Platform, size: int, *, running: int = RUNNING, queued: int = QUEUED) -> None:
    """Add simulations of car_street with invented results; the newest ``running`` run, those after them are queued.

    Names of models, datasets and callers follow a skewed distribution; one label differs in every simulation. Only the
    newest WHOLE summaries have their groups, of which each takes sixty kilobytes.
    """
    platform.files.models.add(LOCAL_CALLER, (b"class Policy:\n    pass\n",), filename="model.py", name="mine")
    original = play(platform, platform.database, TASKS)
    platform.jobs.finalization.collect(original)
    with platform.database.read() as c:
        template = c.execute(select(tables.simulations).where(tables.simulations.c.id == original)).mappings().one()
        stage = c.execute(select(tables.stages).where(tables.stages.c.simulation_id == original)).mappings().one()
        segment = c.execute(select(tables.segments).where(tables.segments.c.stage_id == stage["id"])).mappings().one()
    short = json.dumps(json.loads(template["summary"]) | {"groups": {}})
    draw = random.Random(0)
    began = time.time() - size * PAUSE
    for start in range(0, size, STEP):
        simulations, stages, segments, ranges = [], [], [], []
        for number in range(start, min(start + STEP, size)):
            left = size - number
            state = State.RUNNING if left <= running else State.QUEUED if left <= running + queued else _end(draw)
            summary = template["summary"] if left <= WHOLE else short
            row = _simulation(draw, {**template, "summary": summary}, state, began + number * PAUSE)
            of_stage = {"stage_id": f"{row['id']}.0"}
            stages.append({**stage, "id": of_stage["stage_id"], "simulation_id": row["id"]})
            simulations.append(row)
            if state is State.QUEUED:
                stages[-1] |= {"next": 0, "state": "open"}
                continue
            parts = SEGMENTS if state is State.RUNNING else 1
            stages[-1] |= {"total": parts * TASKS * 2, "next": parts * TASKS, "state": "open"} if parts > 1 else {}
            for part in range(parts):
                span = {"start": part * TASKS, "stop": (part + 1) * TASKS}
                segments.append({**segment, **of_stage, **span, "arrival": part + 1})
                ranges.append({**of_stage, **span, "cursor": (part + 1) * TASKS, "state": "done"})

        added = (tables.simulations, simulations), (tables.stages, stages), (tables.segments, segments)
        platform.database.write(partial(_add, rows_of=(*added, (tables.ranges, ranges))))


def _add(c: Connection, rows_of: Sequence[tuple[Table, Sequence[dict[str, Any]]]]) -> None:
    for into, rows in rows_of:
        if rows:
            c.execute(insert(into), rows)


def _end(draw: random.Random) -> State:
    return draw.choices((State.SUCCEEDED, State.FAILED, State.ERRORED, State.CANCELLED), (90, 6, 1, 3))[0]


def _simulation(draw: random.Random, template: Any, state: State, moment: float) -> dict[str, Any]:
    """Return the row of a simulation."""
    dataset, model = (
        f"{name}-{int(most * draw.random() ** 3)}" for name, most in (("street", DATASETS), ("m", MODELS))
    )
    version = draw.randint(1, 5)
    digests = [f"sha256:{hashlib.sha256(name.encode()).hexdigest()}" for name in (model, f"{dataset}@{version}")]
    labels = {"branch": draw.choice(("main", "dev")), "commit": f"{draw.getrandbits(160):040x}", "Team": "Planning"}
    row = {
        **template,
        "id": new_id(datetime.now(UTC)),
        "state": state.value,
        "dataset": dataset,
        "dataset_version": str(version),
        "model": model,
        "digest": digests[0],
        "dataset_digest": digests[1],
        "labels": json.dumps(labels, sort_keys=True, separators=(",", ":")),
        "submitted_by": f"10.0.0.{int(CALLERS * draw.random() ** 2)}",
        "search": search_text(model, dataset, template["runtime"], labels),
        "created_at": moment,
        "started_at": moment + 1,
        "ended_at": moment + 60,
    }
    if state is State.QUEUED:
        row |= {"summary": None, "headline": None, "started_at": None}
    if state is State.RUNNING:
        metrics = {"score": {"count": 9, "mean": 7.5, "std": 1.0, "min": 1.0, "max": 10.0}}
        progress = {"total": 2, "done": 1, "failed": 0, "rate": 9.0, "eta": 60.0, "metrics": metrics}
        row |= {"summary": None, "headline": None, "progress": json.dumps(progress)}
    return row if row["summary"] else row | {"ended_at": None}


def queries(cursor: str) -> dict[str, str]:
    """Return the queries of the list by description; ``cursor``: of a page far from the first."""
    digest = f"sha256:{hashlib.sha256(b'm-0').hexdigest()}"
    return {
        "no filter": "",
        "deep cursor": f"after={cursor}",
        "running": "state=running",
        "two states": "state=failed&state=errored",
        "common model": "model=m-0",
        "rare model": f"model=m-{MODELS - 1}",
        "no such model": "model=nothing",
        "common model's digest": f"model_digest={digest}",
        "no such digest of a dataset": f"dataset_digest=sha256:{'0' * 64}",
        "caller": "submitted_by=10.0.0.1",
        "version of a dataset": "dataset=street-1&dataset_version=2",
        "label": "label=branch=main",
        "no such label": "label=branch=nothing",
        "common word": "q=main",
        "two words": "q=MAIN+street-3",
        "one commit": "q=",  # with the commit of the oldest simulation
        "no such word": "q=nothing",
        "no such word, deep cursor": f"q=nothing&after={cursor}",
        "rare combination": "state=errored&dataset=street-19&model=m-150&label=branch=main",
        "no such combination": "state=succeeded&model=m-0&q=nothing",
    }


def timed(request: Callable[[], Any]) -> dict[str, float]:
    """Return the spread of the seconds of a request, after a first one."""
    request()
    seconds = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        request()
        seconds.append(time.perf_counter() - began)
    return tail(seconds)


@contextmanager
def filled(home: Path, url: str, size: int) -> Iterator[Platform]:
    """Yield a platform whose database has this many simulations."""
    database = Database(url)
    migrate(database)
    options = PlatformOptions(
        home=home, executor_configs=[EXECUTOR], sandbox={"level": 3}, own_environments=[EXECUTOR.name]
    )
    platform = build(database, FilesystemStore(home / "objects"), SilentNotifier(), options)
    fill(platform, size)
    try:
        yield platform
    finally:
        database.close()


def measure_platform(platform: Platform, home: Path) -> dict[str, Any]:
    """Measure each query through the WSGI application, in this process."""
    client = root.create_flask(platform, Settings(home=home)).test_client()
    with platform.database.read() as c:
        if c.dialect.name == "postgresql":  # as autovacuum does after a minute
            c.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE simulations"))
        ids = tables.simulations.c.id
        cursor = str(c.scalar(select(ids).order_by(ids).offset(SIZE // 10).limit(1)))
        labels = str(c.scalar(select(tables.simulations.c.labels).order_by(ids).offset(1).limit(1)))
    figures: dict[str, Any] = {"list": {}, "counts": {}}
    for name, query in queries(cursor).items():
        query += json.loads(labels)["commit"] if query == "q=" else ""
        figures["list"][name] = timed(lambda: _get(client, f"/v1/simulations?{query}"))  # noqa: B023 - run at once
        print(f"{name}: {figures['list'][name]}", flush=True)
        if "state=" not in query and "after=" not in query:
            figures["counts"][name] = timed(lambda: _get(client, f"/v1/simulations/counts?{query}"))  # noqa: B023
            print(f"{name}, counts: {figures['counts'][name]}", flush=True)
    return figures


def _get(client: FlaskClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 200, response.data


def measure(size: int = SIZE) -> dict[str, Any]:
    """Measure on both databases, each in a new home folder."""
    figures: dict[str, Any] = {"size": size}
    with fresh_home() as home, own_postgres() as server:
        home.mkdir(parents=True, exist_ok=True)
        urls = {
            "sqlite": f"sqlite:///{home / 'windtunnel.db'}",
            "postgresql": postgres_url(server.url, "listing", migrated=False),
        }
        for name, url in urls.items():
            print(name, flush=True)
            with filled(home, url, size) as platform:
                figures[name] = measure_platform(platform, home)
    return figures


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    databases = ("sqlite", "postgresql")
    rows = [
        [
            name,
            *(_spread(figures[database]["list"][name]) for database in databases),
            *(_spread(figures[database]["counts"].get(name)) for database in databases),
        ]
        for name in figures["sqlite"]["list"]
    ]
    worst = max(spread["p50"] for database in databases for spread in figures[database]["list"].values())
    return "\n\n".join(
        [
            f"{figures['size']:,} simulations of `car_street`; `GET /v1/simulations` with a page of 50 and "
            "`GET /v1/simulations/counts`, through the WSGI application in one process, with the JSON of the "
            "response. Median and slowest of 30.",
            table(
                ["milliseconds", *(f"{kind}, {name}" for kind in ("list", "counts") for name in databases)],
                rows,
            ),
            aim("every page in less than 50 ms", worst < 0.05),
        ]
    )


def _spread(seconds: dict[str, float] | None) -> str:
    return "" if seconds is None else f"{milliseconds(seconds['p50'])}, {milliseconds(seconds['max'])}"
