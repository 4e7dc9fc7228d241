"""Staging from S3 against `rclone copy`: the same files from the same MinIO, cold and verified; then warm."""

import hashlib
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figures import spread
from benchmarks.results import Figures, aim, milliseconds, spanned, table
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.connections import Connection
from datasets.objectstore.filesystem import FilesystemStore
from datasets.objectstore.s3 import S3Store
from datasets.versions.manifest import ManifestEntry, digest_of
from tests.s3_servers import S3Server, minio_server

RUNS = 3
FILE_SETS = {"10,000 x 16 KiB": (10_000, 16 << 10), "20 x 64 MiB": (20, 64 << 20)}
#: Concurrent transfers of rclone: its best run of these counts. Its default is 4.
TRANSFERS = (4, 16, 64)
WARM = 200


@contextmanager
def server() -> Iterator[S3Server]:
    """Start a MinIO on the disk of the node cache."""
    Path("var").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="var", prefix="bench-staging-") as folder:
        minio = minio_server(Path(folder).resolve()).start()
        try:
            yield minio
        finally:
            minio.kill()


def fill(connection: Connection, bucket: str, count: int, size: int) -> list[ManifestEntry]:
    """Upload files with random content and return their manifest, like a registration in place."""
    store = S3Store(connection, bucket)

    def put(number: int) -> ManifestEntry:
        content = os.urandom(size)
        key = f"{number // 100:03d}/{number:06d}.bin"
        store.put(key, [content])
        source = f"s3:{connection.name}/{bucket}/{key}"
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        return ManifestEntry(
            path=key,
            size=size,
            digest=digest,
            source=source,
            offset=0,
            etag=hashlib.md5(content).hexdigest() if size <= 16 << 20 else None,
        )

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(put, range(count)))


def stage(connection: Connection, entries: list[ManifestEntry], folder: Path) -> tuple[float, float, list[float]]:
    """Time a cold staging and its processor time, then warm stagings, each with a simulation's call."""
    digest = digest_of(entries)
    cache = NodeCache(folder, FilesystemStore(folder / "objects"), {connection.name: connection})
    before = processor_seconds(resource.RUSAGE_SELF)
    began = time.perf_counter()
    tree = cache.tree(digest, lambda: iter(entries), holder="bench")
    cold = time.perf_counter() - began
    used = processor_seconds(resource.RUSAGE_SELF) - before
    _check_count(tree, len(entries))
    warm = []
    for _ in range(WARM):
        began = time.perf_counter()
        cache.tree(digest, lambda: iter(entries), holder="bench")
        warm.append(time.perf_counter() - began)
    return cold, used, warm


def rclone(connection: Connection, bucket: str, transfers: int, entries: list[ManifestEntry], folder: Path) -> float:
    """Time `rclone copy` with ``transfers`` concurrent transfers; it also compares hashes where S3 has them."""
    # rclone fails if AWS_CA_BUNDLE is set
    environ = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}
    config = {"TYPE": "s3", "PROVIDER": "Minio", "ENDPOINT": connection.endpoint, "REGION": connection.region}
    config |= {"ACCESS_KEY_ID": connection.access_key, "SECRET_ACCESS_KEY": connection.secret_key}
    environ |= {f"RCLONE_CONFIG_BENCH_{name}": value for name, value in config.items()}
    number = str(transfers)
    command = ["rclone", "copy", f"bench:{bucket}", str(folder), "--transfers", number, "--checkers", number]
    began = time.perf_counter()
    subprocess.run([*command, "--config", "/dev/null", "--quiet"], env=environ, check=True)
    seconds = time.perf_counter() - began
    _check_count(folder, len(entries))
    return seconds


def _check_count(folder: Path, files: int) -> None:
    count = sum(len(names) for _, _, names in os.walk(folder))
    if count != files:
        raise RuntimeError(f"{count} files instead of {files} in {folder}")


def _clear(folder: Path, files: int) -> None:
    """Remove few files; many stay until the end, because ext4 is slow just after so many were deleted."""
    if files < 1000:
        shutil.rmtree(folder)


def processor_seconds(who: int) -> float:
    """Return processor seconds of this process, or of its ended children (MinIO still runs)."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def measure() -> dict[str, Any]:
    """Measure the node cache and rclone in turn."""
    if shutil.which("rclone") is None:
        raise RuntimeError("rclone is not installed: apt-get install rclone")
    version = subprocess.run(["rclone", "version"], capture_output=True, text=True, check=True).stdout.split()[1]
    figures: dict[str, Any] = {"rclone": version, "sets": {}}
    with server() as minio:
        connection = Connection(
            name="bench", endpoint=minio.endpoint, access_key=minio.access_key, secret_key=minio.secret_key
        )
        for number, (name, (count, size)) in enumerate(FILE_SETS.items()):
            bucket = f"bench-{number}"
            entries = fill(connection, bucket, count, size)
            cold: list[float] = []
            warm: list[float] = []
            rclone_samples: dict[int, list[float]] = {transfers: [] for transfers in TRANSFERS}
            cpu: dict[str, list[float]] = {"ours": [], "rclone": []}
            for run in range(RUNS):
                target = minio.folder / f"staged-{number}-{run}"
                seconds, used, warm_seconds = stage(connection, entries, target / "windtunnel")
                cpu["ours"].append(used)
                cold.append(seconds)
                warm += warm_seconds
                _clear(target / "windtunnel", count)
                for transfers, samples in rclone_samples.items():
                    before = processor_seconds(resource.RUSAGE_CHILDREN)
                    samples.append(rclone(connection, bucket, transfers, entries, target / f"rclone-{transfers}"))
                    cpu["rclone"].append(processor_seconds(resource.RUSAGE_CHILDREN) - before)
                    _clear(target / f"rclone-{transfers}", count)
                print(
                    f"{name}: {cold[-1]:.2f} s; rclone",
                    {key: f"{samples[-1]:.2f}" for key, samples in rclone_samples.items()},
                )
            best = min(rclone_samples, key=lambda transfers: sorted(rclone_samples[transfers])[RUNS // 2])
            figures["sets"][name] = {
                "cold": spread(cold),
                "warm": spread(warm),
                "rclone": spread(rclone_samples[best]),
                "transfers": best,
                "cpu": {program: spread(samples) for program, samples in cpu.items()},
            }
    return figures


def section(figures: Figures) -> str:
    """Return the section: both programs, and warm stagings."""
    rows = []
    for name, row in figures["sets"].items():
        ratio = row["rclone"]["median"] / row["cold"]["median"]
        rclone_cell = f"{spanned(row['rclone'])} ({row['transfers']} transfers)"
        warm = spanned(row["warm"], milliseconds)
        costs = [spanned(row["cpu"][program]) for program in ("ours", "rclone")]
        rows.append([name, spanned(row["cold"]), rclone_cell, f"{ratio:.2f}", *costs, warm])
    faster = all(row["cold"]["median"] < row["rclone"]["median"] for row in figures["sets"].values())
    quick = all(row["warm"]["median"] < 0.005 for row in figures["sets"].values())
    return "\n\n".join(
        [
            "From one MinIO on the same machine and disk, alternating, into an empty folder. Windtunnel: one thread "
            "with up to 32 concurrent requests for small files, eight threads for large files; every file is "
            f"verified by its sha256 before the tree is visible. rclone ({figures['rclone']}): the best of "
            f"{', '.join(map(str, TRANSFERS))} concurrent transfers. *Processor*: seconds of the process that stages. "
            "*Warm*: the same version again for another simulation: a pin, and a check of its completeness marker.",
            table(["seconds", "cold", "rclone copy", "rclone / Windtunnel", "processor", "rclone's", "warm"], rows),
            aim("faster than rclone, verified; warm in milliseconds", faster and quick),
        ]
    )
