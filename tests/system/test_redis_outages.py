"""Redis alive but unreachable: whole platforms stage, run and finalize simulations without it."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.severed_connections import SeveredConnections
from tests.system.conftest import StartPlatform
from tests.system.platform_process import MODELS, PlatformProcess, has_one_result_per_task
from tests.valkey import Valkey
from tests.waiting import until

#: Seconds of the long outage.
LONG_OUTAGE = float(os.environ.get("REDIS_OUTAGE_SECONDS", "600"))


def run_one(platform: PlatformProcess) -> None:
    """Run a simulation with an uploaded model; it is staged, run and finalized."""
    ended = platform.run(model=MODELS / "echo.py", dataset="noop", scenarios={"range": [0, 50]})
    assert ended["state"] == "succeeded", ended["reason"]
    assert has_one_result_per_task(platform.results(ended["id"]), 50)


def redis_problem(platform: PlatformProcess) -> str | None:
    """Return what /readyz says about Redis, None if all is well."""
    check = str(platform.http.get("/readyz").json()["checks"]["notifier"])
    return None if check == "ok" else check


def test_a_valkey_that_lost_its_socket_delays_a_simulation_and_is_restarted(start_platform: StartPlatform) -> None:
    platform = start_platform()
    run_one(platform)
    socket = platform.home / "run" / "valkey.sock"
    [before] = platform.pids("valkey")
    socket.unlink()
    assert "REDIS_URL" in (redis_problem(platform) or "")
    run_one(platform)
    until(socket.exists, message=platform.output)
    assert before not in platform.pids("valkey")
    until(lambda: redis_problem(platform) is None)
    run_one(platform)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[SeveredConnections]:
    """A proxy in front of a Redis of another machine."""
    (tmp_path / "redis").mkdir()
    server = Valkey(tmp_path / "redis")
    proxy = SeveredConnections(server.run / "valkey.sock")
    yield proxy
    proxy.close()
    server.kill()


def url_of(proxy: SeveredConnections, tmp_path: Path) -> str:
    password = (tmp_path / "redis" / "run" / "valkey.password").read_text()
    return f"redis://:{password}@127.0.0.1:{proxy.port}"


def test_simulations_are_staged_run_and_finalized_while_packets_to_redis_are_dropped(
    start_platform: StartPlatform, proxy: SeveredConnections, tmp_path: Path
) -> None:
    platform = start_platform(redis_url=url_of(proxy, tmp_path))
    run_one(platform)
    proxy.sever()
    run_one(platform)
    assert "REDIS_URL" in (redis_problem(platform) or "")
    proxy.restore()
    until(lambda: redis_problem(platform) is None)
    run_one(platform)


@pytest.mark.timeout(LONG_OUTAGE + 300)
def test_redis_away_for_minutes_under_load_stops_nothing(
    start_platform: StartPlatform, proxy: SeveredConnections, tmp_path: Path
) -> None:
    platform = start_platform(redis_url=url_of(proxy, tmp_path))
    proxy.sever()
    until_end = time.monotonic() + LONG_OUTAGE
    runs = 0
    while time.monotonic() < until_end:
        run_one(platform)
        runs += 1
    assert runs >= LONG_OUTAGE / 30.0, f"{runs} simulations in {LONG_OUTAGE:.0f} s"
    proxy.restore()
    until(lambda: redis_problem(platform) is None)
    run_one(platform)
    assert platform.http.get("/readyz").json()["ready"]


def test_a_role_that_hangs_is_killed_and_started_again(start_platform: StartPlatform) -> None:
    platform = start_platform()
    run_one(platform)
    [before] = platform.pids("valkey")
    os.kill(before, signal.SIGSTOP)
    until(lambda: platform.pids("valkey") not in ([before], []), message=platform.output)
    assert "valkey does not answer; it is killed" in platform.output()
    run_one(platform)


def test_a_role_that_is_stopped_is_named_by_readyz_and_by_what_waits_for_it(start_platform: StartPlatform) -> None:
    platform = start_platform()
    id = platform.submit(dataset="noop", runtime="python", scenarios={"range": [0, 50_000]})["id"]
    [runner_api] = platform.pids("runner-api")
    os.kill(runner_api, signal.SIGSTOP)

    def named() -> bool:
        checks = platform.http.get("/readyz").json()["checks"]
        return "runner-api does not answer (it takes results from runners)" in checks["roles"]

    until(named)
    assert platform.http.get("/readyz").status_code == 503
    assert "it may not progress: the role runner-api does not answer" in platform.get(id)["reason"]
    os.kill(runner_api, signal.SIGCONT)
    until(lambda: platform.http.get("/readyz").status_code == 200)
    assert not platform.get(id)["reason"]
    platform.http.post(f"/v1/simulations/{id}/cancel")
