"""Accounts: the cost of a request's check, lists of one project among a thousand, and submissions with counters."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from flask.testing import FlaskClient
from sqlalchemy import text

from benchmarks.figures import tail
from benchmarks.latency import PAUSE, first_result
from benchmarks.latency import SUBMISSIONS as SUBMISSIONS_OF_LATENCY
from benchmarks.listing import SIZE, filled
from benchmarks.platform_client import PlatformClient
from benchmarks.platform_process import fresh_home, running_platform
from benchmarks.results import aim, milliseconds, table
from core.domain.access.credentials import new_credential
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.submissions.submission import Submission
from core.services.platform import Platform
from core.settings import Settings
from core.store import quotas
from core.store.database import Connection
from server import composition as root
from tests.databases import postgres_url
from tests.postgres import own_postgres

PROJECTS = 1000
CHECKS, REQUESTS, SUBMISSIONS = 2000, 200, 1600
THREADS = 8
#: Platforms of each kind that are started, and submissions to each.
PLATFORMS, POSTS = 3, 20
SUBMISSION = Submission(dataset="noop", runtime="python", model="mine", scenarios={"range": [0, 40]}, workers=2)


def timed(act: Callable[[], object], times: int) -> dict[str, float]:
    """Return the spread of the seconds of an act, after a first one."""
    act()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - began)
    return tail(seconds)


def checks(platform: Platform, client: FlaskClient, token: str) -> dict[str, Any]:
    """Measure the check of a token that is new, of one that was seen, and a whole request."""
    authentication = platform.access.authentication
    credential = token.encode()

    def unseen() -> None:
        authentication._kept.clear()
        assert authentication.identify(credential, "127.0.0.1", session=False) is not None

    headers = {"Authorization": f"Bearer {token}"}

    def request() -> None:
        response = client.get("/v1/simulations?limit=1", headers=headers)
        assert response.status_code == 200, response.data

    return {
        "unseen": timed(unseen, CHECKS),
        "seen": timed(partial(authentication.identify, credential, "127.0.0.1", session=False), CHECKS),
        "request": timed(request, REQUESTS),
    }


def lists(client: FlaskClient, token: str) -> dict[str, Any]:
    """Measure the list of a project, and searches in it."""
    headers = {"Authorization": f"Bearer {token}"}
    found = {}
    for name, query in (("list", ""), ("search", "q=main"), ("search without a match", "q=nothing")):

        def request(query: str = query) -> None:
            response = client.get(f"/v1/simulations?{query}", headers=headers)
            assert response.status_code == 200, response.data

        found[name] = timed(request, REQUESTS)
    return found


def scatter(c: Connection) -> None:
    """Give each simulation to one of many projects; `default` keeps its share."""
    number = f"(length(id) + created_at * 7) % {PROJECTS}"
    if c.dialect.name == "postgresql":
        number = f"mod(cast(created_at * 7 as bigint), {PROJECTS})"
    c.execute(
        text(f"UPDATE simulations SET project='p-' || cast({number} as integer) WHERE cast({number} as integer) <> 0")
    )


def vacuum(platform: Platform) -> None:
    """Do what autovacuum does after a minute: until then indexes have an entry of each old row, and no statistics."""
    with platform.database.read() as c:
        if c.dialect.name == "postgresql":
            c.execute(text("VACUUM ANALYZE"))


@contextmanager
def uncounted() -> Iterator[None]:
    """Submit without counting, which is the peer."""
    with patch.object(quotas, "charge", lambda *_, **__: None):
        yield


def submissions(platform: Platform, threads: int) -> float:
    """Return submissions per second to one project."""
    each = SUBMISSIONS // threads
    caller = replace(LOCAL_CALLER, user="ada")

    def submit() -> None:
        for _ in range(each):
            platform.submissions.simulations.accept(caller, SUBMISSION)

    workers = [threading.Thread(target=submit) for _ in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return threads * each / (time.perf_counter() - began)


def measure_platform(platform: Platform, home: Path) -> dict[str, Any]:
    """Measure a platform with 100,000 simulations."""
    token = new_credential()
    application = root.create_flask(platform, Settings(home=home, token=token, multi_user=True), {"level": 3})
    client = application.test_client()
    vacuum(platform)
    figures: dict[str, Any] = {"checks": checks(platform, client, token), "one project": lists(client, token)}
    figures["submissions"] = {}
    for threads in (1, THREADS):
        submissions(platform, threads)
        counted = [submissions(platform, threads) for _ in range(3)]
        with uncounted():
            peers = [submissions(platform, threads) for _ in range(3)]
        figures["submissions"][threads] = {"counted": max(counted), "uncounted": max(peers)}
    platform.database.write(scatter)
    vacuum(platform)
    figures[f"{PROJECTS} projects"] = lists(client, token)
    return figures


def first_results() -> dict[str, list[float]]:
    """Measure POST to first result without accounts and with, in turns, on platforms that take turns too."""
    seconds: dict[str, list[float]] = {"without accounts": [], "with accounts": []}
    body = SUBMISSIONS_OF_LATENCY["noop, 10 tasks"]
    for _ in range(PLATFORMS):
        for name, settings in (("without accounts", {}), ("with accounts", {"multi_user": "yes"})):
            with running_platform(**settings) as platform:
                token = platform.home / "operator-token"
                client = PlatformClient(platform.port, token=token.read_text().strip() if token.exists() else "")
                first_result(client, body)
                for _ in range(POSTS):
                    time.sleep(PAUSE)
                    seconds[name].append(first_result(client, body)[0])
    return seconds


def measure(size: int = SIZE) -> dict[str, Any]:
    """Measure on both databases, each in a new home folder."""
    figures: dict[str, Any] = {"size": size, "first results": {k: tail(v) for k, v in first_results().items()}}
    with fresh_home() as home, own_postgres() as server:
        home.mkdir(parents=True, exist_ok=True)
        urls = {
            "sqlite": f"sqlite:///{home / 'windtunnel.db'}",
            "postgresql": postgres_url(server.url, "accounts", migrated=False),
        }
        for name, url in urls.items():
            print(name, flush=True)
            with filled(home, url, size) as platform:
                figures[name] = measure_platform(platform, home)
                print(figures[name], flush=True)
    return figures


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    databases = ("sqlite", "postgresql")
    check_rows = [
        [name, *(_spread(figures[database]["checks"][name]) for database in databases)]
        for name in ("unseen", "seen", "request")
    ]
    list_rows = [
        [f"{what}, {where}", *(_p99(figures[database][where][what]) for database in databases)]
        for what in figures["sqlite"]["one project"]
        for where in ("one project", f"{PROJECTS} projects")
    ]
    rate_rows = [
        [f"{threads} threads, {database}", f"{rates['counted']:.0f}", f"{rates['uncounted']:.0f}"]
        for database in databases
        for threads, rates in figures[database]["submissions"].items()
    ]
    first_rows = [[name, _p99(spread)] for name, spread in figures["first results"].items()]
    shares = [
        figures[database]["checks"]["seen"]["p50"] / figures[database]["checks"]["request"]["p50"]
        for database in databases
    ]
    slowest = max(figures[database]["checks"]["unseen"]["p50"] for database in databases)
    return "\n\n".join(
        [
            f"A platform with accounts and {figures['size']:,} simulations, in one process. Checks of a token: one that"
            " was not seen in the last second, one that was, and beside them a whole request. Median and slowest.",
            table(["milliseconds", *databases], check_rows),
            aim("less than 0.3 ms for a token that was not seen", slowest < 0.0003),
            f"The check of a token that was seen is {max(shares):.2%} of a request of the list's first simulation.",
            f"The list of a project and searches in it: all in one, or in {PROJECTS:,}. Median and 99th percentile.",
            table(["milliseconds", *databases], list_rows),
            "Submissions per second to one project, with the counters of its quotas, and without.",
            table(["submissions per second", "counted", "uncounted"], rate_rows),
            f"POST to first result of 10 tasks of noop on SQLite, {PLATFORMS * POSTS} times, with pauses, on platforms"
            " that are started in turns. Median and 99th percentile.",
            table(["milliseconds", "POST to first result"], first_rows),
        ]
    )


def _spread(seconds: dict[str, float]) -> str:
    return f"{milliseconds(seconds['p50'])}, {milliseconds(seconds['max'])}"


def _p99(seconds: dict[str, float]) -> str:
    return f"{milliseconds(seconds['p50'])}, {milliseconds(seconds['p99'])}"
