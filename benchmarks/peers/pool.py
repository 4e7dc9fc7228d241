"""multiprocessing.Pool, two workers: pipes between processes of one program; no results are stored."""

import multiprocessing
import platform
import sys
from collections.abc import Sequence

from benchmarks.peers.clock import timed
from benchmarks.peers.noop import noop


def main() -> None:
    """Measure; a second argument is the number of tasks per message."""
    chunk = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with multiprocessing.Pool(2) as pool:

        def run_tasks(count: int) -> Sequence[int]:
            return list(pool.imap_unordered(noop, range(count), chunksize=chunk))

        timed(run_tasks, f"Python {platform.python_version()}")


if __name__ == "__main__":
    main()
