"""The runner that stands alone: in a pod beside its posts, or on a batch system's node; it ends with its launch.

It reads one JSON document (``--launch FILE``):

- ``id``, ``url``: the launch, and where the runner API answers. ``token_file``: where its token lies; a token of
  the pod for the cache service may lie beside it as ``scs``.
- ``workers``: pairs of evaluator and model server of this runner; a launch may have several runners.
- ``kit``: what ``runtimes.harness.runner.processes.WorkerSpec`` is made of. What is left out the runner API
  knows (format, isolation) or is fetched (the dataset's folder); without ``sandbox``, the best level that there is.
- ``model``: the model's file; fetched where it is null or left out.
- ``files``: the folder for what is fetched; in a pod the shared one, else a temporary one where it is left out.
- ``posts``: ``{"evaluator": uid, "model_server": uid}``, the users of the containers that start processes (with
  ``--posts``, the
  folder on which they meet); without that option, processes are this one's children.
- ``warm``: the launch is still to come. Evaluators and model servers are made at once, of a ``kit`` that says what the
  surface
  cannot say yet (format, isolation, world), and then it is waited for, for ever.
- ``name``: tells this runner from others of its launch; this machine's name where it is left out.

Exit codes are those of ``runtimes.harness.runner.runner``; the last words go to ``/dev/termination-log`` too.
"""

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

from runtimes.harness.runner.processes import LocalSpawner, Spawner, WorkerSpec
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
from workers.launch_inputs import PLAY, Deliveries

if TYPE_CHECKING:
    from datasets.scs_client.client import CacheClient

#: Where Kubernetes reads why a container ended.
LAST_WORDS = Path("/dev/termination-log")
#: What names the cache service's nodes, and what the pod's token for them is called.
NODES, CACHE_TOKEN = "WINDTUNNEL_SCS_NODES", "scs"
#: A pod's shared folder, and the users of its containers, as the manifests have them.
FILES, POSTS = "/run/windtunnel/files", {"evaluator": 10002, "model_server": 10003}


def main() -> None:
    """See one launch through."""
    parser = argparse.ArgumentParser(prog="workers.standalone_runner", description=__doc__.split("\n")[0])
    parser.add_argument("--launch", type=Path, required=True, help="the JSON document that describes the launch")
    parser.add_argument("--posts", type=Path, help="the folder where posts look for this runner's socket")
    given = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))  # there is nothing yet to be given back
    # Before anything can go wrong: posts that nobody answers would keep a pod for ever.
    posts = RemoteSpawner.open(given.posts) if given.posts else None
    try:
        code, reason = serve(json.loads(given.launch.read_bytes()), posts)
    except (OSError, ValueError, KeyError, TypeError) as error:
        code, reason = INTERNAL_ERROR, f"the launch cannot be read: {type(error).__name__}: {error}"
    except LaunchOver as error:
        code, reason = DONE, f"the launch is over ({error})"
    except (Unreachable, RequestRejected) as error:
        code, reason = UNREACHABLE, str(error)
    say(f"{reason} ({code})")
    os._exit(code)  # threads may still wait for answers that nobody needs


def serve(document: Mapping[str, Any], posts: RemoteSpawner | None) -> tuple[int, str]:
    """Run a runner to its end; return its exit code and why it ended."""
    given: dict[str, Any] = {"dataset": "", "sandbox": 0} | dict(document.get("kit") or {})
    if posts is None and given["sandbox"] == 0:
        from runtimes.harness.sandbox import level  # where posts confine, nobody here needs it

        best = level()
        if best.refusal is not None:
            return SETUP_FAILED, best.refusal
        given["sandbox"] = best.number
    # Nobody of the same user may read the token out of our memory. (Not before levels of confinement were tried.)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    token = Path(document["token_file"])
    credentials = Credentials(url=document["url"], launch=document["id"], token=token.read_text().strip())
    described = None if document.get("warm") else RunnerApiClient(credentials, threading.Event()).launch()
    named = given["dataset"]
    folder = document.get("files") or (FILES if posts else tempfile.mkdtemp(prefix="launch-"))
    if not named:  # evaluators need not wait for it in order to begin
        Path(folder).mkdir(parents=True, exist_ok=True)
        given |= {"dataset": f"{folder}/{PLAY}", "within": folder}
    kit = WorkerSpec.of((known(described, named) if described is not None else {}) | given)
    spawner: Spawner = LocalSpawner(kit)
    if posts is not None:
        users = document.get("posts") or POSTS
        posts.expect({int(users[module]): module for module in POSTS}, kit)
        spawner = posts
    workers = int(document["workers"])
    runner = Runner(kit, workers, spawner, reserve=0)
    signal.signal(signal.SIGTERM, lambda *_: runner.interrupt())
    cache = near(token.with_name(CACHE_TOKEN))

    def bring(described: Mapping[str, Any], stop: threading.Event) -> str:
        deliveries = Deliveries(credentials, stop, Path(folder), cache)
        model, _ = deliveries.bring(described.get("files", {}), model=document.get("model"), dataset=named)
        return model

    name = document.get("name", socket.gethostname())
    told = LaunchDocument(credentials=credentials, workers=workers, name=f"{name}-" if name else "")

    def of(described: Mapping[str, Any]) -> LaunchDocument:
        return replace(told, description=described, fetch_inputs=partial(bring, described), choose_cores=True)

    if described is not None:
        runner.start_launch(of(described))
    else:
        print("it waits for its launch", flush=True)
        runner.start_when_ready(lambda stop: of(RunnerApiClient(credentials, stop, patience=math.inf).wait()))
    code = runner.run()
    return code, runner.reason


def known(described: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """Return what the runner API says of a kit; of the world only where its folder is still to come."""
    play = described["play"]
    found = {"format": described.get("model", {}).get("format"), "isolation": play.get("isolation")}
    if not dataset:
        found["world"] = {name: play["definition"].get(name) for name in ("simulator", "package")}
    return found


def near(token: Path) -> "CacheClient | None":
    """Return the cache service as this pod reaches it, if it was named."""
    if not (nodes := os.environ.get(NODES)):
        return None
    from datasets.scs_client.client import SimpleCache
    from datasets.scs_client.membership import StaticMembership, parse

    return SimpleCache(StaticMembership(map(parse, nodes.split(","))), token=token if token.exists() else None)


def say(words: str) -> None:
    """Tell people why this ended, and the kubelet."""
    print(words, flush=True)
    with contextlib.suppress(OSError):  # only a pod has one
        descriptor = os.open(LAST_WORDS, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        with open(descriptor, "w") as file:
            file.write(words[:4000])


if __name__ == "__main__":
    main()
