"""Standalone runner: a runner without a node agent, in a pod or as a batch job; it exits when its launch is over.

It reads a JSON document (``--launch FILE``):

- ``id``, ``url``: the launch's id and the runner API's URL. ``token_file``: the file with its token; a token of the pod
  for the cache service may be beside it, in the file ``scs``.
- ``workers``: this runner's number of workers; a launch may have several runners.
- ``worker_spec``: fields of ``runtimes.harness.runner.processes.WorkerSpec``. Missing ones are taken from the runner
  API (format, isolation) or downloaded (the dataset's folder); without ``sandbox``, the best available level is used.
- ``model``: path of the model's file; if null or missing, the model is downloaded.
- ``files``: folder for downloads; by default the shared one of a pod, else a temporary one.
- ``container_users``: ``{"evaluator": uid, "model_server": uid}``, the users of the containers whose inits start the
  processes. With ``--sockets``, the folder with the socket for these inits; without, it starts the processes itself.
- ``warm``: the launch is not known yet. Processes are started at once from a ``worker_spec`` with the fields that the
  runner API would supply (format, isolation, world); then the runner waits for its launch without a time limit.
- ``name``: distinguishes this runner from others of its launch; by default the machine's host name.

Exit codes are those of ``runtimes.harness.runner.runner``; the reason is also written to ``/dev/termination-log``.
"""

# isort: off
from runtimes.harness.runner import stop_signal  # noqa: F401 - first: until then the kernel drops a container's SIGTERM

# isort: on
import argparse
import contextlib
import ctypes
import json
import logging
import math
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtimes.harness.runner import model_folder
from runtimes.harness.runner.processes import WORLD, LocalSpawner, Spawner, WorkerSpec
from runtimes.harness.runner.remote_spawner import RemoteSpawner
from runtimes.harness.runner.runner import (
    DONE,
    INTERNAL_ERROR,
    PR_SET_DUMPABLE,
    SETUP_FAILED,
    STOPPED,
    UNREACHABLE,
    LaunchDocument,
    Runner,
)
from runtimes.harness.runner.runner_api_client import (
    Credentials,
    LaunchOver,
    RequestRejected,
    RunnerApiClient,
    Unreachable,
)
from runtimes.harness.sandbox.allowances import LIBRARIES
from workers.launch_inputs import DATASET_FOLDER, ENVIRONMENT_FOLDER, LaunchInputs, unpacked_model

if TYPE_CHECKING:
    from datasets.scs_client.client import CacheClient

#: File from which Kubernetes reads a container's termination message, and the most characters written to it.
TERMINATION_LOG, MAX_MESSAGE = Path("/dev/termination-log"), 4000
#: Environment variable with the cache service's nodes, and file name of the pod's token for them.
CACHE_NODES, CACHE_TOKEN = "WINDTUNNEL_SCS_NODES", "scs"
#: Name of the folder, among a launch's files, that model servers see.
MODEL_FOLDER = "model_server"
#: A pod's shared folder, and the users of its containers, as in the manifests.
FILES, CONTAINER_USERS = "/run/windtunnel/files", {"evaluator": 10002, "model_server": 10003}


def main() -> None:
    """Run the launch that the command line names; exit with the runner's code."""
    parser = argparse.ArgumentParser(prog="workers.standalone_runner", description=__doc__.split("\n")[0])
    parser.add_argument("--launch", type=Path, required=True, help="the JSON document that describes the launch")
    parser.add_argument("--sockets", type=Path, help="the folder of the socket to which container inits connect")
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))  # no lease is held yet that must be released
    # Before anything can fail: container inits that find no runner would keep the pod running.
    spawner = RemoteSpawner.open(options.sockets) if options.sockets else None
    try:
        code, reason = serve(json.loads(options.launch.read_bytes()), spawner)
    except (OSError, ValueError, KeyError, TypeError) as error:
        code, reason = INTERNAL_ERROR, f"the launch document cannot be read: {type(error).__name__}: {error}"
    except LaunchOver as error:
        code, reason = DONE, f"the launch is over ({error})"
    except (Unreachable, RequestRejected) as error:
        code, reason = UNREACHABLE, str(error)
    report_end(f"{reason} ({code})")
    os._exit(code)  # threads may still wait for responses that are not needed


def serve(document: Mapping[str, Any], remote_spawner: RemoteSpawner | None) -> tuple[int, str]:
    """Run a runner to its end; return its exit code and the reason.

    Processes are started by the remote spawner's container inits, or as children without one.
    """
    fields: dict[str, Any] = {"dataset": "", "sandbox": 0} | dict(document.get("worker_spec") or {})
    if remote_spawner is None and fields["sandbox"] == 0:
        from runtimes.harness.sandbox import level  # not needed if container inits confine the processes

        best = level()
        if best.refusal is not None:
            return SETUP_FAILED, best.refusal
        fields["sandbox"] = best.number
    # Processes of the same user must not read the token from this memory. After `level`, which needs it readable.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    token = Path(document["token_file"])
    credentials = Credentials(url=document["url"], launch=document["id"], token=token.read_text().strip())
    description = None if document.get("warm") else RunnerApiClient(credentials, threading.Event()).launch()
    dataset = fields["dataset"]
    folder = document.get("files") or (FILES if remote_spawner else tempfile.mkdtemp(prefix="launch-"))
    if not dataset:  # evaluators start before its folder exists
        Path(folder).mkdir(parents=True, exist_ok=True)
        fields |= {"dataset": f"{folder}/{DATASET_FOLDER}", "within": folder}
    model_folder.create(f"{folder}/{MODEL_FOLDER}")
    fields["model_folder"] = f"{folder}/{MODEL_FOLDER}"
    has_environment = description is not None and "environment" in description.get("files", {})
    if has_environment:
        fields["model_environment"] = f"{folder}/{ENVIRONMENT_FOLDER}"
        fields["model_server_libraries"] = LIBRARIES
    spec = WorkerSpec(**(described_fields(description, dataset) if description is not None else {}) | fields)
    spawner: Spawner = LocalSpawner(spec)
    if remote_spawner is not None:
        users = document.get("container_users") or CONTAINER_USERS
        remote_spawner.expect({int(users[module]): module for module in CONTAINER_USERS}, spec)
        spawner = remote_spawner
    workers = int(document["workers"])
    # The packages of a model that has its own are downloaded first: no model server is started until one is needed.
    runner = Runner(spec, workers, spawner, reserve=-workers if has_environment else 0)
    signal.signal(signal.SIGTERM, lambda *_: runner.interrupt())
    cache = cache_client(token.with_name(CACHE_TOKEN))

    def fetch_inputs(description: Mapping[str, Any], stop: threading.Event) -> str:
        inputs = LaunchInputs(credentials, stop, Path(folder), cache)
        model, _ = inputs.download(description.get("files", {}), model=document.get("model"), dataset=dataset)
        described = description.get("model", {})
        if (largest := described.get("largest_unpacked")) is None:
            return model
        return unpacked_model(model, Path(spec.model_folder), largest, described.get("placed", ""))

    name = document.get("name", socket.gethostname())
    launch = LaunchDocument(credentials=credentials, workers=workers, name=f"{name}-" if name else "")

    def with_description(description: Mapping[str, Any]) -> LaunchDocument:
        fetch = partial(fetch_inputs, description)
        return replace(launch, description=description, fetch_inputs=fetch, choose_cores=True)

    if description is not None:
        runner.start_launch(with_description(description))
    else:
        print("the warm runner waits for its launch", flush=True)
        runner.start_when_ready(
            lambda stop: with_description(RunnerApiClient(credentials, stop, patience=math.inf).wait())
        )
    code = runner.run()
    return code, runner.reason


def described_fields(description: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """Return the worker spec's fields from the runner API's description; ``world`` only without a dataset folder."""
    play = description["play"]
    fields = {name: play[name] for name in ("isolation", "trusted") if name in play}
    fields["format"] = description.get("model", {}).get("format")
    if not dataset:
        fields["world"] = {name: play["definition"].get(name) for name in WORLD}
    return fields


def cache_client(token: Path) -> "CacheClient | None":
    """Return a client of the cache service with the pod's token, if any; None if no nodes are configured."""
    if not (nodes := os.environ.get(CACHE_NODES)):
        return None
    from datasets.scs_client.cache_nodes import StaticMembership, parse
    from datasets.scs_client.client import SimpleCache

    return SimpleCache(StaticMembership(map(parse, nodes.split(","))), token=token if token.exists() else None)


def report_end(message: str) -> None:
    """Write the reason for the exit to the log and to the container's termination message."""
    print(message, flush=True)
    with contextlib.suppress(OSError):  # the file exists only in a pod
        descriptor = os.open(TERMINATION_LOG, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        with open(descriptor, "w") as file:
            file.write(message[:MAX_MESSAGE])


if __name__ == "__main__":
    main()
