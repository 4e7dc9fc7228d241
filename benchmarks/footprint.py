"""Footprint of the platform: start, idle memory, submissions, and a thousand event streams."""

import http.client
import threading
import time
from typing import Any

from benchmarks.figures import spread, tail
from benchmarks.platform_client import PlatformClient
from benchmarks.platform_process import PlatformProcess, fresh_home, running_platform
from benchmarks.processes import memory, total

STARTS = 5
CLIENTS = 4
SUBMISSIONS = 600
STREAMS = 1000
ONE_TASK = {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 1]}}
#: Seconds without a request before memory is read, in which warm runners start and settle.
SETTLE = 10


def starts() -> dict[str, Any]:
    """Start the platform in a new home folder, and again in the same folder."""
    first: list[float] = []
    restarts: list[float] = []
    for _ in range(STARTS):
        with fresh_home() as home:
            for seconds in (first, restarts):
                platform = PlatformProcess(home)
                seconds.append(platform.start_seconds)
                platform.stop()
    return {"fresh": spread(first), "again": spread(restarts)}


def submissions(platform: PlatformProcess, count: int = SUBMISSIONS) -> dict[str, Any]:
    """Submit one-task simulations from several threads with a connection each, without waiting for results."""
    latencies: list[float] = []

    def submit_some() -> None:
        client = platform.connect()
        for _ in range(count // CLIENTS):
            began = time.perf_counter()
            client.submit(ONE_TASK)
            latencies.append(time.perf_counter() - began)
        client.close()

    threads = [threading.Thread(target=submit_some) for _ in range(CLIENTS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    return {"clients": CLIENTS, "rate": len(latencies) / seconds, "latency": tail(latencies)}


def get_latencies(client: PlatformClient, path: str, count: int = 300) -> dict[str, float]:
    """Time a single GET, a few times per second."""
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        client.get(path)
        seconds.append(time.perf_counter() - began)
        time.sleep(0.01)
    return tail(seconds)


def open_stream(port: int, path: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """Open an event stream and read its first line, so that it is live and not only connected."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Accept": "text/event-stream"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"a stream was answered {response.status}: {response.read(500)!r}")
    response.readline()
    return connection, response


def streams(platform: PlatformProcess, count: int = STREAMS) -> dict[str, Any]:
    """Open many event streams of one long, quiet simulation, and time other requests meanwhile."""
    client = platform.connect()
    # its few tasks sleep, so that only the streams are measured
    submission = {**ONE_TASK, "scenarios": {"range": [0, 10]}, "params": {"sleep_ms": 60_000}, "workers": 1}
    id = client.submit(submission)["id"]
    path = f"/v1/simulations/{id}"
    while client.get(path)["state"] != "running":
        time.sleep(0.1)
    time.sleep(SETTLE)
    before, latency_before = memory(platform.process.pid), get_latencies(client, path)
    began = time.perf_counter()
    opened = [open_stream(platform.port, f"{path}/events") for _ in range(count)]
    seconds = time.perf_counter() - began
    time.sleep(3)
    during, latency_during = memory(platform.process.pid), get_latencies(client, path)
    for connection, _ in opened:
        connection.close()
    client.open("POST", f"{path}/cancel").read()
    client.until_final(id)
    return {
        "streams": count,
        "seconds_to_open": seconds,
        "mib_before": before["api"]["mib"],
        "mib_during": during["api"]["mib"],
        "get_before": latency_before,
        "get_during": latency_during,
    }


def measure() -> dict[str, Any]:
    """Measure each figure on a platform without history that could affect it."""
    figures: dict[str, Any] = {"start": starts()}
    print(f"start to ready: {figures['start']}", flush=True)
    with running_platform() as platform:
        time.sleep(SETTLE)
        figures["cold"] = memory(platform.process.pid)
        print(f"idle, before the first request: {total(figures['cold']):.0f} MiB {figures['cold']}", flush=True)
        client = platform.connect()
        for submission in (ONE_TASK, {**ONE_TASK, "dataset": "car_street", "model": "idm"}):
            client.until(client.submit(submission)["id"])
        time.sleep(SETTLE)
        figures["idle"] = memory(platform.process.pid)
        print(f"idle, with warm runners: {total(figures['idle']):.0f} MiB {figures['idle']}", flush=True)
        figures["streams"] = streams(platform)
        print(f"streams: {figures['streams']}", flush=True)
    figures["submissions"] = []
    for _ in range(3):
        with running_platform() as platform:
            platform.connect().submit(ONE_TASK)
            time.sleep(SETTLE)
            figures["submissions"].append(submissions(platform))
            print(f"submissions: {figures['submissions'][-1]}", flush=True)
    return figures
