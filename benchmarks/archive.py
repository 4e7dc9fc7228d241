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

import msgspec

from benchmarks.figures import spread
from benchmarks.platform_process import free_port, running_platform
from benchmarks.processes import memory
from benchmarks.results import Figures, aim, number, spanned, table
from benchmarks.scs import process
from core.domain.access.scopes import LOCAL_CALLER, PLATFORM
from core.notifications.change_notifier import ChangeNotifier, simulation_waiters
from core.notifications.redis_notifier import RedisNotifier, embedded
from core.services.simulations.headlines import summary_columns
from core.services.simulations.results import Results
from core.store import results as artifacts
from core.store import simulations
from core.store.database import Database
from core.store.results import Artifact
from datasets.objectstore.filesystem import FilesystemStore

SIZE, ARTIFACT_SIZE, RUNS = 10 << 30, 64 << 20, 3
NGINX = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ }}
http {{ access_log off; sendfile on; server {{ listen 127.0.0.1:{port}; root {folder}/files; }} }}
"""


def add_artifacts(home: Path, id: str, size: int) -> None:
    """Add artifacts of ``size`` bytes in all to a simulation that has ended, as if its tasks had reported them."""
    store, database = FilesystemStore(home / "objects"), Database(f"sqlite:///{home / 'windtunnel.db'}")
    with database.read() as c:
        row = simulations.find(c, PLATFORM, id)
    for task in range(size // ARTIFACT_SIZE):
        body = os.urandom(ARTIFACT_SIZE)
        key = f"bench/{id}/{task}"
        store.put(key, (body,))
        artifact = Artifact(
            task=task,
            name="recording.bin",
            media_type="application/octet-stream",
            object=key,
            offset=0,
            bytes=ARTIFACT_SIZE,
            crc32=zlib.crc32(body),
        )
        database.write(lambda c, artifact=artifact: artifacts.add_artifact(c, id, artifact))  # type: ignore[misc]
    notifier = RedisNotifier(embedded(home / "run"))
    results = Results(database, store, simulation_waiters(ChangeNotifier(database, notifier), slots=1))
    summary = json.loads(row.summary)
    archive = summary["archive"]
    described = results.describe_archive(LOCAL_CALLER, row, summary, archive["bytes"], archive["crc32"], None)
    columns = summary_columns(summary | {"archive": msgspec.to_builtins(described)})
    database.write(lambda c: simulations.describe(c, id, **columns))
    notifier.close()
    database.close()


def download_seconds(url: str, target: str) -> float:
    """Download with curl; return the seconds."""
    command = ["curl", "-sS", "--fail", "-o", target, "-w", "%{time_total}", url]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@contextmanager
def sampled_memory(root: int) -> Iterator[list[float]]:
    """Sample the API's memory in MiB, five times a second while the block runs."""
    samples: list[float] = [memory(root)["api"]["mib"]]
    stopped = threading.Event()

    def sample() -> None:
        while not stopped.wait(0.2):
            samples.append(memory(root)["api"]["mib"])

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield samples
    finally:
        stopped.set()
        sampler.join()


def measure(size: int = SIZE, runs: int = RUNS) -> dict[str, Any]:
    """Measure both servers in turn, with files in the page cache."""
    figures: dict[str, list[float]] = {"windtunnel": [], "nginx": []}
    with running_platform() as platform, tempfile.TemporaryDirectory(prefix="windtunnel-archive-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # nginx serves as another user
        client = platform.connect()
        id = client.submit({"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 100]}})["id"]
        client.until(id)
        client.close()
        add_artifacts(platform.home, id, size)
        url = f"http://127.0.0.1:{platform.port}/v1/simulations/{id}/archive"
        (folder / "files").mkdir()
        download_seconds(url, str(folder / "files" / "ready.zip"))
        subprocess.run(["unzip", "-tqq", str(folder / "files" / "ready.zip")], check=True)
        port = free_port()
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        before = memory(platform.process.pid)["api"]["mib"]
        peak = before
        with process([nginx, "-c", str(folder / "nginx.conf")], port):
            download_seconds(f"http://127.0.0.1:{port}/ready.zip", "/dev/null")
            for _ in range(runs):
                figures["nginx"].append(size / download_seconds(f"http://127.0.0.1:{port}/ready.zip", "/dev/null"))
                with sampled_memory(platform.process.pid) as samples:
                    figures["windtunnel"].append(size / download_seconds(url, "/dev/null"))
                peak = max(peak, *samples)
    return {
        "size": size,
        "rates": {name: spread(values) for name, values in figures.items()},
        "memory": {"before": before, "most": peak},
    }


def section(figures: Figures) -> str:
    """Return the section: both rates, and the API's memory."""
    rates, memory_ = figures["rates"], figures["memory"]
    ratio = rates["windtunnel"]["median"] / rates["nginx"]["median"]

    def megabytes(rate: float) -> str:
        return f"{number(rate / 1e6)} MB/s"

    rows = [
        ["**Windtunnel**, composed while it is sent", spanned(rates["windtunnel"], megabytes)],
        ["nginx, the same zip as a file, sendfile, one worker", spanned(rates["nginx"], megabytes)],
    ]
    growth = memory_["most"] - memory_["before"]  # MiB
    return (
        f"An archive of {figures['size'] / 2**30:.0f} GiB ({figures['size'] // ARTIFACT_SIZE} artifacts of 64 MiB and "
        "the results), downloaded by curl to /dev/null, alternating.\n\n"
        + table(["", "rate"], rows)
        + f"\n\nRatio {ratio:.2f}. The API's memory (PSS) before: {memory_['before']:.0f} MiB; while it sends: "
        f"{growth:+.0f} MiB at most. " + aim("memory does not grow", growth < 32) + "\n"
    )
