"""A test cluster for manual use: `scripts/cluster up`, `status` and `down`."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.cluster import records
from tests.cluster.cluster import Cluster
from tests.cluster.machines import PATIENCE
from tests.cluster.tools import BUILDING
from tests.waiting import until

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Execute the subcommand; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="scripts/cluster", description="A Kubernetes on this machine, for manual tests."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, help in (("up", "start a cluster and leave it running"), ("hold", "the same, until a signal")):
        options = verbs.add_parser(verb, help=help)
        options.add_argument("--nodes", type=int, default=1, help="real nodes (1 to 8)")
        options.add_argument("--jobset", action="store_true", help="with JobSet")
        options.add_argument("--trainer", action="store_true", help="with JobSet and Kubeflow Trainer")
        options.add_argument("--mpi-operator", action="store_true", help="with the MPI operator")
        options.add_argument("--kueue", action="store_true", help="with JobSet and Kueue")
        options.add_argument("--kwok", type=int, default=0, metavar="N", help="with N simulated nodes")
        options.add_argument("--image", type=Path, action="append", default=[], metavar="TAR", help="images to import")
    verbs.add_parser("status", help="print the running clusters")
    options = verbs.add_parser("down", help="stop the cluster")
    options.add_argument("number", type=int, nargs="?", help="number of the cluster, if several run")
    arguments = parser.parse_args()
    if arguments.verb == "up":
        return up(sys.argv[2:])
    if arguments.verb == "hold":
        return hold(arguments)
    return status() if arguments.verb == "status" else down(arguments.number)


def hold(options: argparse.Namespace) -> int:
    """Start a cluster and keep it until a signal; all of it ends with this process, however the process ends."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # handlers, not a blocked mask: pods would inherit the mask
        signal.signal(number, lambda *_: stopped.set())
    cluster = Cluster(nodes=options.nodes)
    with cluster:
        for archive in options.image:
            cluster.import_image(archive.absolute())
        if options.jobset:
            cluster.jobset()
        if options.trainer:
            cluster.trainer()
        if options.mpi_operator:
            cluster.mpi_operator()
        if options.kueue:
            cluster.kueue()
        if options.kwok:
            cluster.kwok(options.kwok)
        cluster.write_record(ready=True, held=True)
        stopped.wait()
    return 0


def up(options: list[str]) -> int:
    """Start a process that holds the cluster in the background, and wait until the cluster is ready."""
    command = [sys.executable, "-m", "tests.cluster", "hold", *options]
    devnull = subprocess.DEVNULL
    holder = subprocess.Popen(
        command, cwd=ROOT, stdin=devnull, stdout=devnull, stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    ready: list[tuple[int, dict[str, Any]]] = []

    def settled() -> bool:
        ready[:] = [
            (number, record)
            for number, record in records.running_clusters()
            if record.get("pid") == holder.pid and record.get("ready")
        ]
        return bool(ready) or holder.poll() is not None

    with suppress(AssertionError):
        until(settled, BUILDING + PATIENCE)
    for number, record in ready:
        print(f"export KUBECONFIG={record['kubeconfig']}  # cluster {number}: {', '.join(record['nodes'])}")
        return 0
    if holder.poll() is None:
        holder.terminate()
    _, errors = holder.communicate(timeout=PATIENCE)
    print(errors or "the cluster does not become ready", file=sys.stderr)
    return 1


def status() -> int:
    """Print the running clusters."""
    clusters = list(records.running_clusters())
    for number, record in clusters:
        print(number, json.dumps(record))
    if not clusters:
        print("No cluster is running.")
    return 0


def down(number: int | None) -> int:
    """Stop the held cluster, or the cluster with a number, and wait until it has ended."""
    held_clusters = {running: record for running, record in records.running_clusters() if record.get("held")}
    if number is None and len(held_clusters) == 1:
        number = next(iter(held_clusters))
    if number not in held_clusters:
        numbers = ", ".join(map(str, held_clusters)) or "none"
        print(f"There is no such cluster; running clusters: {numbers}", file=sys.stderr)
        return 1
    os.kill(held_clusters[number]["pid"], signal.SIGTERM)
    with suppress(AssertionError):
        until(
            lambda: not any(held_clusters.get(running) == record for running, record in records.running_clusters()),
            PATIENCE,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
