"""Footprint of the platform: start, idle memory, submissions, and a thousand event streams."""

import http.client
import threading
import time
from typing import Any

from benchmarks.figures import spread, tail
from benchmarks.platform_process import PlatformProcess, fresh_home, running_platform
from benchmarks.processes import memory, total
from benchmarks.platform_client import PlatformClient

STARTS = 5
CLIENTS = 4
SUBMISSIONS = 600
STREAMS = 1000
ONE_TASK = {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 1]}}
#: Seconds without a request before memory is read, in which warm runners start and settle.
SETTLE = 10


def starts() -> dict[str, Any]:
    """Start the platform in new home folders, and again in an existing one."""
    first: list[float] = []
    again: list[float] = []
    for _ in range(STARTS):
        with fresh_home() as home:
            for seconds in (first, again):
                started = PlatformProcess(home)
                seconds.append(started.start_seconds)
                started.stop()
    return {"fresh": spread(first), "again": spread(again)}


def submissions(platform: PlatformProcess, count: int = SUBMISSIONS) -> dict[str, Any]:
    """Submit one-task simulations from several threads with a connection each, without waiting for results."""
    latencies: list[float] = []

    def submit_some() -> None:
        wire = platform.wire()
        for _ in range(count // CLIENTS):
            began = time.perf_counter()
            wire.submit(ONE_TASK)
            latencies.append(time.perf_counter() - began)
        wire.close()

    threads = [threading.Thread(target=submit_some) for _ in range(CLIENTS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    return {"clients": CLIENTS, "rate": len(latencies) / seconds, "latency": tail(latencies)}


def looks(wire: PlatformClient, path: str, count: int = 300) -> dict[str, float]:
    """Time a single GET, a few times per second."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        wire.get(path)
        seconds.append(time.perf_counter() - began)
        time.sleep(0.01)
    return tail(seconds)


def watch(port: int, path: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """Open an event stream and read its first line, so that it is live and not only connected."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"a stream was answered {answer.status}: {answer.read(500)!r}")
    answer.readline()
    return connection, answer


def streams(platform: PlatformProcess, count: int = STREAMS) -> dict[str, Any]:
    """Open many event streams of one long, quiet simulation, and time other requests meanwhile."""
    wire = platform.wire()
    # its few tasks sleep, so what is measured is the watchers
    quiet = {**ONE_TASK, "scenarios": {"range": [0, 10]}, "params": {"sleep_ms": 60_000}, "workers": 1}
    id = wire.submit(quiet)["id"]
    path = f"/v1/simulations/{id}"
    while wire.get(path)["state"] != "running":
        time.sleep(0.1)
    time.sleep(SETTLE)
    before, alone = memory(platform.process.pid), looks(wire, path)
    began = time.perf_counter()
    opened = [watch(platform.port, f"{path}/events") for _ in range(count)]
    seconds = time.perf_counter() - began
    time.sleep(3)
    during, beside = memory(platform.process.pid), looks(wire, path)
    for connection, _ in opened:
        connection.close()
    wire.open("POST", f"{path}/cancel").read()
    wire.until_final(id)
    return {
        "streams": count,
        "seconds_to_open": seconds,
        "mib_before": before["api"]["mib"],
        "mib_during": during["api"]["mib"],
        "get_before": alone,
        "get_during": beside,
    }


def measure() -> dict[str, Any]:
    """Measure each figure on a platform without history that could affect it."""
    figures: dict[str, Any] = {"start": starts()}
    print(f"start to ready: {figures['start']}", flush=True)
    with running_platform() as platform:
        time.sleep(SETTLE)
        figures["cold"] = memory(platform.process.pid)
        print(f"idle, nothing asked yet: {total(figures['cold']):.0f} MiB {figures['cold']}", flush=True)
        wire = platform.wire()
        for asked in (ONE_TASK, {**ONE_TASK, "dataset": "car_street", "model": "idm"}):
            wire.until(wire.submit(asked)["id"])
        time.sleep(SETTLE)
        figures["idle"] = memory(platform.process.pid)
        print(f"idle, warm runners warm: {total(figures['idle']):.0f} MiB {figures['idle']}", flush=True)
        figures["streams"] = streams(platform)
        print(f"streams: {figures['streams']}", flush=True)
    figures["submissions"] = []
    for _ in range(3):
        with running_platform() as platform:
            platform.wire().submit(ONE_TASK)
            time.sleep(SETTLE)
            figures["submissions"].append(submissions(platform))
            print(f"submissions: {figures['submissions'][-1]}", flush=True)
    return figures
