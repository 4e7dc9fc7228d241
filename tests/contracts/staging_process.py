"""Process that stages, reads, verifies, releases and sweeps in a shared node cache for a number of rounds."""

import hashlib
import os
import random
import sys
import time
from pathlib import Path

from common.errors import NodeFull
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.filesystem import FilesystemStore
from datasets.versions.manifest import ManifestEntry, digest_of

VERSIONS, FILES = 6, 25


def content(version: int, number: int) -> bytes:
    """Return the content of a file of a version."""
    return random.Random(version * 1000 + number).randbytes(1000 + number)


def manifest(version: int) -> list[ManifestEntry]:
    """Return a version's manifest; each of its files is an object."""
    entries = []
    for number in range(FILES):
        data = content(version, number)
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        entries.append(ManifestEntry(f"d{number // 10}/{number:03d}", len(data), digest, f"store:p/{version}-{number}"))
    return entries


def living(holders: set[str]) -> set[str]:
    """Return the holders whose process is alive."""
    return {holder for holder in holders if Path("/proc", holder.split("-")[0]).exists()}


def rounds(root: Path) -> int:
    """Return the number of rounds that all processes have completed."""
    path = root / "rounds"
    return path.stat().st_size if path.exists() else 0


def work(root: Path, seed: int, times: int) -> None:
    """Stage, release and sweep at random for a number of rounds; check that pinned datasets are complete."""
    rng = random.Random(seed)
    capacity = 4 * FILES * 1000  # room for four of the six versions
    cache = NodeCache(root / "cache", FilesystemStore(root / "objects"), capacity=capacity)
    versions = [(digest_of(entries), entries) for entries in map(manifest, range(VERSIONS))]
    for _ in range(times):
        digest, entries = rng.choice(versions)
        holder = f"{os.getpid()}-{rng.random()}"
        try:
            tree = cache.tree(digest, lambda entries=entries: iter(entries), holder=holder)
            time.sleep(rng.random() * 0.03)
            for entry in entries:
                data = (tree / entry.path).read_bytes()
                assert "sha256:" + hashlib.sha256(data).hexdigest() == entry.digest, entry.path
            if rng.random() < 0.2:
                assert cache.verify(digest) == []
        except NodeFull:
            time.sleep(0.01)
        finally:
            cache.release(holder)
        if rng.random() < 0.1:
            cache.sweep(living)
        with open(root / "rounds", "ab") as file:
            file.write(b".")


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
