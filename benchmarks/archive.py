"""An archive of ten gigabytes: download rate and memory, against nginx that serves a finished zip."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figures import spread
from benchmarks.platform_process import free_port, running_platform
from benchmarks.processes import memory
from benchmarks.results import Figures, aim, number, spanned, table
from benchmarks.scs import process
from core.notifications.change_notifier import ChangeNotifier, simulation_waiters
from core.notifications.redis_notifier import RedisNotifier, embedded
from core.services.simulations.results import Results
from core.store import results as artifacts
from core.store import simulations
from core.store.database import Database
from core.store.results import Artifact
from datasets.objectstore.filesystem import FilesystemStore

SIZE, EACH, RUNS = 10 << 30, 64 << 20, 3
NGINX = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ }}
http {{ access_log off; sendfile on; server {{ listen 127.0.0.1:{port}; root {folder}/files; }} }}
"""


def filled(home: Path, id: str, size: int) -> None:
    """Add artifacts of so many bytes to a simulation that has ended, as if its tasks had reported them."""
    store, database = FilesystemStore(home / "objects"), Database(f"sqlite:///{home / 'windtunnel.db'}")
    with database.read() as c:
        row = simulations.find(c, id)
    for task in range(size // EACH):
        body = os.urandom(EACH)
        key = f"bench/{id}/{task}"
        store.put(key, (body,))
        artifact = Artifact(
            task=task,
            name="recording.bin",
            media_type="application/octet-stream",
            object=key,
            offset=0,
            bytes=EACH,
            crc32=zlib.crc32(body),
        )
        database.write(lambda c, artifact=artifact: artifacts.add_artifact(c, id, artifact))  # type: ignore[misc]
    notifier = RedisNotifier(embedded(home / "run"))
    read = Results(database, store, simulation_waiters(ChangeNotifier(database, notifier), slots=1))
    summary = json.loads(row.summary)
    held = summary["archive"]
    summary["archive"] = read.describe_archive(row, summary, held["bytes"], held["crc32"])
    database.write(lambda c: simulations.set_summary(c, id, summary))
    notifier.close()
    database.close()


def took(url: str, to: str) -> float:
    """Download with curl; return the seconds."""
    command = ["curl", "-sS", "--fail", "-o", to, "-w", "%{time_total}", url]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@contextmanager
def watched(root: int) -> Iterator[list[float]]:
    """Sample the API's memory in MiB, five times a second while the block runs."""
    seen: list[float] = [memory(root)["api"]["mib"]]
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            seen.append(memory(root)["api"]["mib"])

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()


def measure(size: int = SIZE, runs: int = RUNS) -> dict[str, Any]:
    """Measure both in turn, from files in the page cache."""
    figures: dict[str, list[float]] = {"windtunnel": [], "nginx": []}
    with running_platform() as platform, tempfile.TemporaryDirectory(prefix="windtunnel-archive-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # nginx serves as another user
        wire = platform.wire()
        id = wire.submit({"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 100]}})["id"]
        wire.until(id)
        wire.close()
        filled(platform.home, id, size)
        url = f"http://127.0.0.1:{platform.port}/v1/simulations/{id}/archive"
        (folder / "files").mkdir()
        took(url, str(folder / "files" / "ready.zip"))
        subprocess.run(["unzip", "-tqq", str(folder / "files" / "ready.zip")], check=True)
        port = free_port()
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        before = memory(platform.process.pid)["api"]["mib"]
        most = before
        with process([nginx, "-c", str(folder / "nginx.conf")], port):
            took(f"http://127.0.0.1:{port}/ready.zip", "/dev/null")
            for _ in range(runs):
                figures["nginx"].append(size / took(f"http://127.0.0.1:{port}/ready.zip", "/dev/null"))
                with watched(platform.process.pid) as seen:
                    figures["windtunnel"].append(size / took(url, "/dev/null"))
                most = max(most, *seen)
    return {
        "size": size,
        "rates": {name: spread(values) for name, values in figures.items()},
        "memory": {"before": before, "most": most},
    }


def section(found: Figures) -> str:
    """Return the section: both rates, and the API's memory."""
    rates, memory_ = found["rates"], found["memory"]
    ratio = rates["windtunnel"]["median"] / rates["nginx"]["median"]

    def megabytes(rate: float) -> str:
        return f"{number(rate / 1e6)} MB/s"

    rows = [
        ["**Windtunnel**, composed while it is sent", spanned(rates["windtunnel"], megabytes)],
        ["nginx, the same zip as a file, sendfile, one worker", spanned(rates["nginx"], megabytes)],
    ]
    grown = memory_["most"] - memory_["before"]  # MiB
    return (
        f"An archive of {found['size'] / 2**30:.0f} GiB ({found['size'] // EACH} artifacts of 64 MiB and the results), "
        "downloaded by curl to /dev/null, alternating.\n\n"
        + table(["", "rate"], rows)
        + f"\n\nRatio {ratio:.2f}. The API's memory (PSS) before: {memory_['before']:.0f} MiB; while it sends: "
        f"{grown:+.0f} MiB at most. " + aim("memory does not grow", grown < 32) + "\n"
    )
