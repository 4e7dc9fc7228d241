"""Timing of peers: from the submission of the first task to the receipt of the last result."""

import json
import sys
import time
from collections.abc import Callable, Sequence

#: Tasks before the clock starts, so that the start of workers is not measured.
WARM_UP = 200


def timed(run_tasks: Callable[[int], Sequence[int]], version: str) -> None:
    """Run as many no-op tasks as the command line names, check that no result is lost, and print the rate."""
    count = int(sys.argv[1])
    run_tasks(WARM_UP)
    began = time.perf_counter()
    results = run_tasks(count)
    seconds = time.perf_counter() - began
    if sorted(results) != list(range(count)):
        raise SystemExit(f"results were lost: {len(results)} of {count}")
    print(json.dumps({"tasks": count, "seconds": seconds, "rate": count / seconds, "version": version}))
