"""Registration of a million files, from a tar and from a bucket's listing, and paging through them: time and memory."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.results import Figures, aim, milliseconds, number, table
from core.domain.access.scopes import LOCAL_CALLER

#: Number of files, and bytes of each: a tar is stored, an object of a bucket only read.
COUNT, TAR_BYTES, OBJECT_BYTES = 1_000_000, 64, 16 << 10
PAGE = 1000


def header(name: str, size: int) -> bytes:
    """Return a tar header, built here because the standard library is slower than the measured code."""
    fixed = name.encode().ljust(100, b"\0") + b"0000644\x000000000\x000000000\x00%011o\x0000000000000\0" % size
    rest = b"0" + bytes(100) + b"ustar\x0000" + bytes(247)
    return fixed + b"%06o\0 " % (sum(fixed) + 8 * 32 + sum(rest)) + rest


def tar(count: int) -> Iterator[bytes]:
    """Yield a tar of many small files as a stream."""
    for start in range(0, count, 1000):
        yield b"".join(
            header(f"{index % 1000:03}/{index:07}.bin", TAR_BYTES)
            + (b"%016x" % index * (TAR_BYTES // 16)).ljust(512, b"\0")
            for index in range(start, min(count, start + 1000))
        )
    yield bytes(1024)


class Bucket:
    """A BucketReader of a fictitious bucket with many objects."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.reads = 0

    def listing(self, bucket: str, prefix: str) -> Iterator[Any]:
        from datasets.objectstore.bucket_reader import ListedObject

        for index in range(self.count):
            yield ListedObject(f"{prefix}{index // 1000:04}/{index:07}.bin", OBJECT_BYTES, f"{index:032x}")

    def read(self, bucket: str, key: str, etag: str | None = None, *part: int) -> Iterator[bytes]:
        self.reads += 1
        return iter((hashlib.sha256(key.encode()).digest() * (OBJECT_BYTES // 32),))


def resident() -> int:
    """Return this process's peak memory in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) << 10


def register_and_page(kind: str, count: int, home: Path) -> dict[str, float]:
    """Register a dataset and page through its files, in this process."""
    from core.domain.scheduling.executor_config import ExecutorConfig
    from core.notifications.local_notifier import LocalNotifier
    from core.services.platform import PlatformOptions, build
    from core.store.database import Database
    from core.store.migrate import migrate
    from datasets.objectstore.connections import Connection
    from datasets.objectstore.filesystem import FilesystemStore

    database = Database(f"sqlite:///{home / 'test.db'}")
    migrate(database)
    lab = Connection(name="lab", endpoint="http://127.0.0.1:9", access_key="a", secret_key="b")
    objects = FilesystemStore(home / "objects")
    local_executor = ExecutorConfig(name="local", kind="local", workers=1)
    platform = build(
        database,
        objects,
        LocalNotifier(),
        PlatformOptions(home=home, executor_configs=[local_executor], sandbox={}, connections={"lab": lab}),
    )
    bucket = Bucket(count)
    platform.catalogue.datasets._sources._readers["lab"] = bucket  # type: ignore[assignment]
    if kind == "tar":
        upload = platform.files.uploads.create(LOCAL_CALLER, None)
        platform.files.uploads.append(LOCAL_CALLER, upload.id, 0, tar(count), length=1024 + 1024 * count)
        source = {"upload": upload.id}
    else:
        source = {"s3": "s3://bench/all/", "connection": "lab"}
    before = resident()
    began = time.perf_counter()
    id = platform.catalogue.datasets.register(LOCAL_CALLER, "many", source)["id"]
    platform.jobs.dataset_registration.register(id)
    dataset = platform.catalogue.datasets.get(LOCAL_CALLER, id)
    assert (dataset["state"], dataset["file_count"]) == ("ready", count), dataset
    seconds = time.perf_counter() - began
    growth = resident() - before
    repeat_seconds = 0.0
    if kind == "bucket":
        reads, began = bucket.reads, time.perf_counter()
        platform.jobs.dataset_registration.register(
            platform.catalogue.datasets.register(LOCAL_CALLER, "many", source)["id"]
        )
        repeat_seconds = time.perf_counter() - began
        assert bucket.reads == reads, "unchanged objects were read again"
    before = resident()
    began = time.perf_counter()
    files, after, pages = 0, None, 0
    while True:
        page, after = platform.catalogue.datasets.files(LOCAL_CALLER, "many", after=after, limit=PAGE)
        files, pages = files + len(page), pages + 1
        if after is None:
            break
    assert files == count
    paging = time.perf_counter() - began
    assert (
        platform.catalogue.datasets.garbage.collect(0.0) == platform.catalogue.datasets.garbage.remove_orphans(0.0) == 0
    )
    database.close()
    return {
        "seconds": seconds,
        "again": repeat_seconds,
        "grown": float(growth),
        "resident": float(resident()),
        "page": paging / pages,
        "paged": float(resident() - before),
    }


def measure(count: int = COUNT) -> dict[str, Any]:
    """Measure each source in a process of its own, also with a tenth of the files: memory must not grow with them."""
    figures: dict[str, Any] = {"count": count, "object": OBJECT_BYTES}
    Path("var").mkdir(exist_ok=True)
    for kind in ("tar", "bucket"):
        for files in (count // 10, count):
            with tempfile.TemporaryDirectory(dir="var", prefix="bench-registering-") as home:
                command = [sys.executable, "-m", "benchmarks.registering", kind, str(files), os.path.abspath(home)]
                printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            figures[f"{kind}-{files}"] = json.loads(printed.splitlines()[-1])
    return figures


def section(figures: Figures) -> str:
    """Return the section: time and memory, for a tenth of the files and for all."""
    rows = []
    for kind, title in (("tar", "a tar, packed"), ("bucket", "a bucket's listing, in place")):
        for count in (figures["count"] // 10, figures["count"]):
            row = figures[f"{kind}-{count}"]
            rows.append(
                [
                    f"{title}: {count:,} files",
                    number(row["seconds"]),
                    number(row["again"]) if row["again"] else "",
                    f"{row['grown'] / (1 << 20):,.0f} MB",
                    f"{row['resident'] / (1 << 20):,.0f} MB",
                    milliseconds(row["page"]),
                ]
            )
    counts = (figures["count"] // 10, figures["count"])
    tenth_growth, full_growth = (figures[f"bucket-{count}"]["grown"] for count in counts)
    return "\n\n".join(
        [
            f"One process, SQLite and a folder. The tar is generated while it is read, and stored, {TAR_BYTES} bytes "
            f"per file; the bucket's objects of {figures['object'] >> 10} KiB are generated while they are read, and "
            "hashed. *Again*: the next version without changes. *Grown*: growth of the process's memory by the "
            f"registration. A page lists {PAGE} files.",
            table(["files", "seconds", "again", "grown", "memory", "page"], rows),
            aim("a million files in the memory of a hundred thousand", full_growth < tenth_growth + (32 << 20)),
        ]
    )


if __name__ == "__main__":
    print(json.dumps(register_and_page(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
