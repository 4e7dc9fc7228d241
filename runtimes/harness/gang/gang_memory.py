"""Gang memory: what the processes of a sandbox and its files in memory use together.

Resource limits are per process, and an ordinary user has no control group, so it is looked at from time to time.
"""

import os
from collections.abc import Iterable
from pathlib import Path

#: The sandbox's own processes.
PROC = Path("/proc/own")


def exceeds(memory: int, mounted: Iterable[str], proc: Path = PROC) -> bool:
    """Return whether the processes that can be seen, and the files in memory, use more than this many bytes.

    ``mounted``: where file systems in memory are mounted. Memory that processes share counts once; only where it could
    matter is it looked for how many share it, because that walks through all pages.
    """
    files = sum((use.f_blocks - use.f_bfree) * use.f_frsize for use in map(os.statvfs, mounted))
    own, shared = _fields(proc, "status", "RssAnon", "RssShmem")
    if own + max(shared, files) <= memory:
        return False
    own, shared = _fields(proc, "smaps_rollup", "Pss_Anon", "Pss_Shmem")
    return own + max(shared, files) > memory


def _fields(proc: Path, name: str, *fields: str) -> list[int]:
    """Return the bytes in these fields of a file of each process, added up."""
    totals = dict.fromkeys(fields, 0)
    for path in proc.glob(f"[0-9]*/{name}"):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue  # it has just ended, or may not be looked at
        for field, _, value in (line.partition(":") for line in lines):
            if field in totals:
                totals[field] += int(value.split()[0]) << 10
    return list(totals.values())
