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
    parser = argparse.ArgumentParser(prog="scripts/cluster", description="A Kubernetes on this machine, for trying.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, words in (("up", "bring one up and leave it running"), ("hold", "the same, until a signal")):
        options = verbs.add_parser(verb, help=words)
        options.add_argument("--nodes", type=int, default=1, help="real nodes (1 to 8)")
        options.add_argument("--jobset", action="store_true", help="with JobSet")
        options.add_argument("--trainer", action="store_true", help="with JobSet and Kubeflow Trainer")
        options.add_argument("--mpi-operator", action="store_true", help="with the MPI operator")
        options.add_argument("--kueue", action="store_true", help="with JobSet and Kueue")
        options.add_argument("--kwok", type=int, default=0, metavar="N", help="with N played nodes")
        options.add_argument("--image", type=Path, action="append", default=[], metavar="TAR", help="give it images")
    verbs.add_parser("status", help="say which there are")
    options = verbs.add_parser("down", help="end it")
    options.add_argument("number", type=int, nargs="?", help="which, where there are several")
    asked = parser.parse_args()
    if asked.verb == "up":
        return up(sys.argv[2:])
    if asked.verb == "hold":
        return hold(asked)
    return status() if asked.verb == "status" else down(asked.number)


def hold(asked: argparse.Namespace) -> int:
    """Start a cluster and keep it until a signal; all of it ends with this process, however that ends."""
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # handlers, not a blocked mask: pods would inherit the mask
        signal.signal(number, lambda *_: told.set())
    cluster = Cluster(nodes=asked.nodes)
    with cluster:
        for archive in asked.image:
            cluster.import_image(archive.absolute())
        if asked.jobset:
            cluster.jobset()
        if asked.trainer:
            cluster.trainer()
        if asked.mpi_operator:
            cluster.mpi_operator()
        if asked.kueue:
            cluster.kueue()
        if asked.kwok:
            cluster.kwok(asked.kwok)
        cluster.say(ready=True, held=True)
        told.wait()
    return 0


def up(options: list[str]) -> int:
    """Start a process that holds the cluster in the background, and wait until the cluster is ready."""
    command = [sys.executable, "-m", "tests.cluster", "hold", *options]
    null = subprocess.DEVNULL
    holder = subprocess.Popen(
        command, cwd=ROOT, stdin=null, stdout=null, stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    ready: list[tuple[int, dict[str, Any]]] = []

    def settled() -> bool:
        ready[:] = [(n, said) for n, said in records.living() if said.get("pid") == holder.pid and said.get("ready")]
        return bool(ready) or holder.poll() is not None

    with suppress(AssertionError):
        until(settled, BUILDING + PATIENCE)
    for number, said in ready:
        print(f"export KUBECONFIG={said['kubeconfig']}  # cluster {number}: {', '.join(said['nodes'])}")
        return 0
    if holder.poll() is None:
        holder.terminate()
    _, words = holder.communicate(timeout=PATIENCE)
    print(words or "it does not become ready", file=sys.stderr)
    return 1


def status() -> int:
    """Print the running clusters."""
    found = list(records.living())
    for number, said in found:
        print(number, json.dumps(said))
    if not found:
        print("There is none.")
    return 0


def down(number: int | None) -> int:
    """Stop the held cluster, or the cluster with a number, and wait until it is gone."""
    held = {found: said for found, said in records.living() if said.get("held")}
    if number is None and len(held) == 1:
        number = next(iter(held))
    if number not in held:
        which = f"held are: {', '.join(map(str, held)) or 'none'}"
        print(f"There is no such cluster; {which}", file=sys.stderr)
        return 1
    os.kill(held[number]["pid"], signal.SIGTERM)
    with suppress(AssertionError):
        until(lambda: not any(held.get(found) == said for found, said in records.living()), PATIENCE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
