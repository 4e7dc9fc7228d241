"""How every peer is timed: from the first task handed in to the last result in the caller's hands."""

import json
import sys
import time
from collections.abc import Callable, Sequence

#: Played before the clock starts, so that no worker is measured while it wakes.
WARM_UP = 200


def timed(play: Callable[[int], Sequence[int]], version: str) -> None:
    """Play as many no-op tasks as the command line says, check that none is lost, and print the rate."""
    count = int(sys.argv[1])
    play(WARM_UP)
    began = time.perf_counter()
    results = play(count)
    seconds = time.perf_counter() - began
    if sorted(results) != list(range(count)):
        raise SystemExit(f"results were lost: {len(results)} of {count}")
    print(json.dumps({"tasks": count, "seconds": seconds, "rate": count / seconds, "version": version}))
