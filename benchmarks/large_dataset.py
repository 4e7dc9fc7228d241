"""A large dataset: its page and leaderboard with 20,000 simulations, and the bytes of a list of 100 of them."""

import json
import random
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient
from sqlalchemy import insert, select

from benchmarks.figures import tail
from benchmarks.listing import MODELS, STEP
from benchmarks.long_queue import EXECUTOR, SilentNotifier
from benchmarks.platform_process import fresh_home
from benchmarks.results import aim, milliseconds, number, table
from benchmarks.summaries import play
from common.ids import new_id
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.submissions.listing import search_text
from core.services.platform import Platform, PlatformOptions, build
from core.settings import Settings
from core.store import tables
from core.store.database import Connection, Database
from core.store.migrate import migrate
from datasets.objectstore.filesystem import FilesystemStore
from server import composition as root

SIZE, TASKS, LISTED = 20_000, 288, 100
#: Simulations of the batches of each comparison; comparisons take so much of SIZE.
BATCHES, COMPARED = 30, 0.5
REQUESTS = 15
#: Seconds in which a page of the dataset must be answered, and kilobytes of the list.
ANSWERED, KILOBYTES = 0.3, 200


def fill(platform: Platform, size: int) -> None:
    """Add simulations of car_street that have succeeded, with whole summaries; half of them are of comparisons."""
    platform.files.models.add(LOCAL_CALLER, (b"class Policy:\n    pass\n",), filename="model.py", name="mine")
    original = play(platform, platform.database, TASKS)
    platform.jobs.finalization.collect(original)
    with platform.database.read() as c:
        template = c.execute(select(tables.simulations).where(tables.simulations.c.id == original)).mappings().one()
    draw = random.Random(0)
    began = time.time() - size
    for start in range(0, size, STEP):
        rows = [_simulation(template, draw, began + number) for number in range(start, min(start + STEP, size))]
        compared = rows[: int(len(rows) * COMPARED)]
        batches = [
            {
                "comparison_id": f"comparison-{start + number // BATCHES}",
                "ordinal": number % 2,
                "batch": number % BATCHES // 2,
                "simulation_id": row["id"],
            }
            for number, row in enumerate(compared)
        ]

        def write(c: Connection, rows: Any = rows, batches: Any = batches) -> None:
            c.execute(insert(tables.simulations), rows)
            c.execute(insert(tables.comparison_simulations), batches)

        platform.database.write(write)


def _simulation(template: Any, draw: random.Random, moment: float) -> dict[str, Any]:
    model = f"m-{int(MODELS * draw.random() ** 3)}"
    times = {"created_at": moment, "started_at": moment + 1, "ended_at": moment + 60}
    search = search_text(model, template["dataset"], template["runtime"], {})
    return {
        **template,
        "id": new_id(datetime.fromtimestamp(moment, UTC)),
        "model": model,
        "digest": model,
        "search": search,
        **times,
    }


def measure(size: int = SIZE) -> dict[str, Any]:
    """Measure each address through the WSGI application on SQLite, the first request apart."""
    with fresh_home() as home:
        home.mkdir(parents=True, exist_ok=True)
        database = Database(f"sqlite:///{home / 'windtunnel.db'}")
        migrate(database)
        options = PlatformOptions(
            home=home, executor_configs=[EXECUTOR], sandbox={"level": 3}, own_environments=[EXECUTOR.name]
        )
        platform = build(database, FilesystemStore(home / "objects"), SilentNotifier(), options)
        fill(platform, size)
        client = root.create_flask(platform, Settings(home=Path(home))).test_client()
        client.get("/data/noop")  # templates are compiled
        lists = "/v1/simulations?limit=" + str(LISTED)
        addresses = {
            "page of the dataset": "/data/car_street",
            "its leaderboard": "/v1/datasets/car_street/leaderboard",
            "page of the list": "/simulations",
            "list of 100": lists,
            "list of 100, whole": lists + "&include=metrics&include=spec&include=provenance",
            "list of 100, without batches": lists + "&comparison=none",
            "counts, without batches": "/v1/simulations/counts?comparison=none",
        }
        figures = {name: _timed(client, address) for name, address in addresses.items()}
        database.close()
    return {"size": size, "requests": figures}


def _timed(client: FlaskClient, address: str) -> dict[str, Any]:
    seconds, size = [], 0
    for _ in range(REQUESTS + 1):
        began = time.perf_counter()
        answer = client.get(address)
        seconds.append(time.perf_counter() - began)
        assert answer.status_code == 200, (address, answer.data[:200])
        size = len(answer.data)
    print(address, json.dumps(tail(seconds[1:])), size, flush=True)
    return {"first": seconds[0], "again": tail(seconds[1:]), "bytes": size}


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    requests = figures["requests"]
    rows = [
        [
            name,
            milliseconds(found["first"]),
            f"{milliseconds(found['again']['p50'])}, {milliseconds(found['again']['max'])}",
            number(found["bytes"] / 1000),
        ]
        for name, found in requests.items()
    ]
    page, listed = requests["page of the dataset"], requests["list of 100"]
    return "\n\n".join(
        [
            f"{figures['size']:,} simulations of one version, each with a whole summary of 288 tasks (60 kB), half of "
            "them batches of comparisons, on SQLite, through the WSGI application in one process. The first request, "
            f"then median and slowest of {REQUESTS}; kilobytes of the answer. The leaderboard reads the newest 5,000 "
            "once; the page loads it apart.",
            table(["milliseconds", "first", "again", "kB"], rows),
            aim(f"the page of the dataset in less than {ANSWERED * 1000:.0f} ms", page["first"] < ANSWERED),
            aim(f"a list of 100 in less than {KILOBYTES} kB", listed["bytes"] < KILOBYTES * 1000),
        ]
    )
