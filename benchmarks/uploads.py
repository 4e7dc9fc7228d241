"""Resumable uploads against tusd, the reference server: one large PATCH, concurrent PATCHes, many small uploads.

The servers alternate and write to the same file system. The platform syncs every part before it reports its offset;
tusd does not sync.
"""

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

from benchmarks.figures import spread
from benchmarks.platform_process import free_port, running_platform
from benchmarks.results import number, spanned, table

TUS = {"Tus-Resumable": "1.0.0"}
BYTES = TUS | {"Content-Type": "application/offset+octet-stream"}
LARGE = 1 << 30
#: Concurrent uploads, and bytes of each.
CONCURRENT, CONCURRENT_BYTES = 8, 128 << 20
SMALL, SMALL_BYTES = 200, 16 << 10
RUNS = 3
CHUNK = bytes(range(256)) * 4096


@contextmanager
def tusd() -> Iterator[int]:
    """Run tusd in a new folder; yield its port."""
    binary = subprocess.run(["scripts/tools/tusd"], capture_output=True, text=True, check=True, timeout=600)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="windtunnel-bench-") as folder:
        command = [binary.stdout.strip(), "-host", "127.0.0.1", "-port", str(port), "-upload-dir", folder]
        command += ["-base-path", "/v1/uploads", "-disable-download", "-show-greeting=false", "-verbose=false"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 30
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("tusd does not start")
                time.sleep(0.05)
            yield port
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def platform_server() -> Iterator[int]:
    """Run the platform; yield its port."""
    with running_platform() as platform:
        yield platform.port


def _listens(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("OPTIONS", "/v1/uploads")
        return connection.getresponse().status < 500
    except OSError:
        return False
    finally:
        connection.close()


def upload(connection: HTTPConnection, size: int) -> str:
    """Upload ``size`` bytes in one request; return the upload's id."""
    connection.request("POST", "/v1/uploads", headers=TUS | {"Upload-Length": str(size)})
    response = connection.getresponse()
    response.read()
    address = (response.getheader("Location") or "").partition("/v1/uploads/")[2]
    body = CHUNK[:size] if size < len(CHUNK) else (CHUNK for _ in range(size // len(CHUNK)))
    headers = BYTES | {"Upload-Offset": "0", "Content-Length": str(size)}
    connection.request("PATCH", f"/v1/uploads/{address}", body=body, headers=headers)
    response = connection.getresponse()
    response.read()
    if response.status != 204 or response.getheader("Upload-Offset") != str(size):
        raise RuntimeError(f"a PATCH was answered {response.status}")
    return address


def large(port: int) -> float:
    """Return the MB/s of one large upload; delete it."""
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    began = time.perf_counter()
    address = upload(connection, LARGE)
    seconds = time.perf_counter() - began
    remove(connection, address)
    return LARGE / seconds / 1e6


def concurrent(port: int) -> float:
    """Return the total MB/s of several concurrent uploads."""
    addresses: list[str] = []

    def upload_share() -> None:
        addresses.append(upload(HTTPConnection("127.0.0.1", port, timeout=300), CONCURRENT_BYTES))

    threads = [threading.Thread(target=upload_share) for _ in range(CONCURRENT)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if len(addresses) != CONCURRENT:
        raise RuntimeError("an upload failed")
    for address in addresses:
        remove(HTTPConnection("127.0.0.1", port, timeout=300), address)
    return CONCURRENT * CONCURRENT_BYTES / seconds / 1e6


def small(port: int) -> float:
    """Return the small uploads per second of one client, in sequence."""
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    began = time.perf_counter()
    for _ in range(SMALL):
        upload(connection, SMALL_BYTES)
    return SMALL / (time.perf_counter() - began)


def remove(connection: HTTPConnection, address: str) -> None:
    """Delete an upload."""
    connection.request("DELETE", f"/v1/uploads/{address}", headers=TUS)
    connection.getresponse().read()


SCENARIOS: dict[str, Callable[[int], float]] = {"large": large, "beside": concurrent, "small": small}


def measure() -> dict[str, Any]:
    """Measure both servers in turn."""
    figures: dict[str, dict[str, list[float]]] = {
        name: {scenario: [] for scenario in SCENARIOS} for name in ("windtunnel", "tusd")
    }
    with platform_server() as platform_port, tusd() as tusd_port:
        for _ in range(RUNS):
            for name, port in (("windtunnel", platform_port), ("tusd", tusd_port)):
                for scenario, run in SCENARIOS.items():
                    figures[name][scenario].append(run(port))
    return {
        name: {scenario: spread(values) for scenario, values in by_scenario.items()}
        for name, by_scenario in figures.items()
    }


def section(figures: dict[str, Any]) -> str:
    """Return the section: both servers side by side."""
    titles = {
        "large": f"one upload of {LARGE >> 20} MiB, MB/s",
        "beside": f"{CONCURRENT} uploads of {CONCURRENT_BYTES >> 20} MiB concurrently, MB/s",
        "small": f"uploads of {SMALL_BYTES} bytes in sequence, uploads/s",
    }
    rows = [
        [titles[scenario], *(spanned(figures[name][scenario]) for name in ("windtunnel", "tusd")), number(ratio)]
        for scenario in SCENARIOS
        if (ratio := figures["windtunnel"][scenario]["median"] / figures["tusd"][scenario]["median"])
    ]
    return (
        "Alternating, on one machine: one API process with SQLite and a file store, every part synced before it is "
        "acknowledged; tusd with its file store, which does not sync.\n\n"
        + table(["", "Windtunnel", "tusd", "ratio"], rows)
        + "\n"
    )
