"""Figures of the revision in the current folder, as one JSON line: one short run of each benchmark of the platform.

Run from the folder of a revision, with its modules: it uses only functions that earlier revisions have.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import driving, fanout, latency, scs, uploads
from benchmarks.platform_process import running_platform

#: Tasks of a fan-out by tasks per frame.
TASKS = {1: 60_000, 16: 200_000}
POSTS, PAUSE = 15, 1.5
#: Short simulations in sequence, each submitted when the one before has ended.
SHORT, SHORT_TASKS = 10, 50
SECONDS, CONNECTIONS = 3, 16


def measure() -> dict[str, float]:
    """Return each figure by name; a name that ends with `ms` is a time, any other a rate."""
    figures: dict[str, float] = {}
    with running_platform(workers="2") as platform:
        client = platform.connect()
        for batch, tasks in TASKS.items():
            fanout.run_once(platform, batch, 1000)
            time.sleep(fanout.PAUSE)
            run = fanout.run_once(platform, batch, tasks)
            figures[f"fan-out, {batch} tasks per frame: tasks/s"] = run["done"]
        for name, submission in latency.SUBMISSIONS.items():
            firsts = []
            for _ in range(POSTS):
                time.sleep(PAUSE)
                firsts.append(latency.first_result(client, submission)[0] * 1000)
            figures[f"{name}: first result, ms"] = statistics.median(firsts[3:])
        began = time.perf_counter()
        for _ in range(SHORT):
            submission = {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, SHORT_TASKS]}}
            client.until(client.submit(submission)["id"], every=0.01)
        figures[f"{SHORT_TASKS} no-op tasks: POST to end, ms"] = (time.perf_counter() - began) / SHORT * 1000
        driving.through_platform(platform, 2, 1)
        figures["car_street, two workers: episodes/s"] = driving.through_platform(platform, 2, 1)["rate"]
        figures["one upload of 1 GiB: MB/s"] = uploads.large(platform.port)
        figures["small uploads in sequence: uploads/s"] = uploads.small(platform.port)
    with tempfile.TemporaryDirectory() as folder, scs.served(Path(folder)) as prefixes:
        for name, size in scs.SIZES.items():
            prefix = prefixes["scs"][0]
            scs.wrk(prefix, size, scs.FILES, CONNECTIONS, 1, Path(folder))
            rate = scs.wrk(prefix, size, scs.FILES, CONNECTIONS, SECONDS, Path(folder))
            figures[f"cache service, GET of {name}: requests/s"] = rate
    return figures


if __name__ == "__main__":
    json.dump(measure(), sys.stdout)
    print()
