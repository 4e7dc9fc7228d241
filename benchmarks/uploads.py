"""Uploads against tusd, the reference server: one large PATCH, several concurrent, many small; servers alternate.

Both write to the same file system. The platform syncs every part before it reports its offset; tusd does not sync.
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
BESIDE, SHARE = 8, 128 << 20
SMALL, FEW_BYTES = 200, 16 << 10
RUNS = 3
PIECE = bytes(range(256)) * 4096


@contextmanager
def tusd() -> Iterator[int]:
    """Run tusd in a new folder; yield its port."""
    found = subprocess.run(["scripts/tools/tusd"], capture_output=True, text=True, check=True, timeout=600)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="windtunnel-bench-") as folder:
        command = [found.stdout.strip(), "-host", "127.0.0.1", "-port", str(port), "-upload-dir", folder]
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
def ours() -> Iterator[int]:
    """Run the platform; yield its port."""
    with running_platform() as started:
        yield started.port


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
    """Upload so many bytes in one request; return the upload's URL."""
    connection.request("POST", "/v1/uploads", headers=TUS | {"Upload-Length": str(size)})
    answer = connection.getresponse()
    answer.read()
    address = (answer.getheader("Location") or "").partition("/v1/uploads/")[2]
    body = PIECE[:size] if size < len(PIECE) else (PIECE for _ in range(size // len(PIECE)))
    headers = BYTES | {"Upload-Offset": "0", "Content-Length": str(size)}
    connection.request("PATCH", f"/v1/uploads/{address}", body=body, headers=headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 204 or answer.getheader("Upload-Offset") != str(size):
        raise RuntimeError(f"a PATCH was answered {answer.status}")
    return address


def large(port: int) -> float:
    """Return the MB/s of one large upload; delete it."""
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    began = time.perf_counter()
    address = upload(connection, LARGE)
    seconds = time.perf_counter() - began
    remove(connection, address)
    return LARGE / seconds / 1e6


def beside(port: int) -> float:
    """Return the total MB/s of several concurrent uploads."""
    addresses: list[str] = []

    def upload_share() -> None:
        addresses.append(upload(HTTPConnection("127.0.0.1", port, timeout=300), SHARE))

    threads = [threading.Thread(target=upload_share) for _ in range(BESIDE)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if len(addresses) != BESIDE:
        raise RuntimeError("an upload failed")
    for address in addresses:
        remove(HTTPConnection("127.0.0.1", port, timeout=300), address)
    return BESIDE * SHARE / seconds / 1e6


def small(port: int) -> float:
    """Return the small uploads per second of one client, in sequence."""
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    began = time.perf_counter()
    for _ in range(SMALL):
        upload(connection, FEW_BYTES)
    return SMALL / (time.perf_counter() - began)


def remove(connection: HTTPConnection, address: str) -> None:
    """Delete an upload."""
    connection.request("DELETE", f"/v1/uploads/{address}", headers=TUS)
    connection.getresponse().read()


WAYS: dict[str, Callable[[int], float]] = {"large": large, "beside": beside, "small": small}


def measure() -> dict[str, Any]:
    """Measure both in turn."""
    figures: dict[str, dict[str, list[float]]] = {name: {way: [] for way in WAYS} for name in ("windtunnel", "tusd")}
    with ours() as first, tusd() as second:
        for _ in range(RUNS):
            for name, port in (("windtunnel", first), ("tusd", second)):
                for way, run in WAYS.items():
                    figures[name][way].append(run(port))
    return {name: {way: spread(values) for way, values in ways.items()} for name, ways in figures.items()}


def section(found: dict[str, Any]) -> str:
    """Return the section: both servers side by side."""
    titles = {
        "large": f"one upload of {LARGE >> 20} MiB, MB/s",
        "beside": f"{BESIDE} uploads of {SHARE >> 20} MiB concurrently, MB/s",
        "small": f"uploads of {FEW_BYTES} bytes in sequence, uploads/s",
    }
    rows = [
        [titles[way], *(spanned(found[name][way]) for name in ("windtunnel", "tusd")), number(ratio)]
        for way in WAYS
        if (ratio := found["windtunnel"][way]["median"] / found["tusd"][way]["median"])
    ]
    return (
        "Alternating, on one machine: one API process with SQLite and a file store, every part synced before it is "
        "acknowledged; tusd with its file store, which does not sync.\n\n"
        + table(["", "Windtunnel", "tusd", "ratio"], rows)
        + "\n"
    )
