"""The courier that stands alone: in a pod beside its posts, or on a batch system's node; it ends with its launch.

It reads one JSON document (``--launch FILE``):

- ``id``, ``url``: the launch, and where the drivers' surface answers. ``token_file``: where its token lies.
- ``workers``: pairs of player and host of this courier; a launch may have several couriers.
- ``kit``: what ``runtimes.harness.processes.Kit`` is made of; with ``sandbox`` left out, the best level that this
  machine has, and with ``dataset`` left out or empty, the folder is fetched.
- ``model``: the model's file; fetched where it is null or left out.
- ``files``: the folder for what is fetched; a temporary one where it is left out.
- ``posts``: ``{"folder": ..., "player": uid, "host": uid}`` where containers of those users start the processes;
  left out, they are this process's children.
- ``name``: tells this courier from others of its launch; this machine's name where it is left out.

Exit codes are those of ``runtimes.harness.courier``; the last words go to ``/dev/termination-log`` too.
"""

import argparse
import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtimes.harness.courier import BROKEN, HOPELESS, PR_SET_DUMPABLE, Courier, Told
from runtimes.harness.posts import Posts
from runtimes.harness.processes import Here, Kit, Spawner
from runtimes.harness.surface import Credentials
from workers.deliveries import Deliveries

if TYPE_CHECKING:
    from datasets.cache import Near

#: Where Kubernetes reads why a container ended.
LAST_WORDS = Path("/dev/termination-log")
#: What the cache service's nodes are to be told, and where the pod's own token for them lies.
NODES, AUDIENCE_TOKEN = "WINDTUNNEL_SCS_NODES", "WINDTUNNEL_SCS_TOKEN_FILE"


def main() -> None:
    """See one launch through."""
    parser = argparse.ArgumentParser(prog="workers.courier", description=__doc__.split("\n")[0])
    parser.add_argument("--launch", type=Path, required=True, help="the JSON document that describes the launch")
    parser.add_argument("--posts", type=Path, help="the folder where posts look for this courier's socket")
    given = parser.parse_args()
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s", level=logging.INFO)
    # Before anything can go wrong: posts that nobody answers would keep a pod for ever.
    posts = Posts.open(given.posts) if given.posts else None
    try:
        code, reason = serve(json.loads(given.launch.read_bytes()), posts)
    except (OSError, ValueError, KeyError, TypeError) as error:
        code, reason = BROKEN, f"the launch cannot be read: {type(error).__name__}: {error}"
    say(f"{reason} ({code})")
    os._exit(code)  # threads may still wait for answers that nobody needs


def serve(document: Mapping[str, Any], posts: Posts | None) -> tuple[int, str]:
    """Run a courier to its end; return its exit code and why it ended."""
    kit, refusal = kit_of(document["kit"], alone=posts is None)
    if refusal is not None:
        return HOPELESS, refusal
    spawner: Spawner = Here(kit)
    if posts is not None:
        posts.expect({int(document["posts"][module]): module for module in ("player", "host")}, kit)
        spawner = posts
    workers = int(document["workers"])
    courier = Courier(kit, workers, spawner)
    signal.signal(signal.SIGTERM, lambda *_: courier.interrupt())
    # Nobody of the same user may read the token out of our memory. (Not before levels of confinement were tried.)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    token = Path(document["token_file"]).read_text().strip()
    credentials = Credentials(url=document["url"], launch=document["id"], token=token)
    folder = Path(document.get("files") or tempfile.mkdtemp(prefix="launch-"))

    def bring(described: Mapping[str, Any], stop: threading.Event) -> tuple[str, str]:
        deliveries = Deliveries(credentials, stop, folder, near())
        return deliveries.bring(described.get("files", {}), model=document.get("model"), dataset=kit.dataset)

    name = document.get("name", socket.gethostname())
    courier.begin(Told(credentials=credentials, workers=workers, name=f"{name}-" if name else "", bring=bring))
    code = courier.run()
    return code, courier.reason


def kit_of(values: Mapping[str, Any], *, alone: bool) -> tuple[Kit, str | None]:
    """Make the kit; where it is we who start the processes, at the best level there is, or tell why there is none."""
    kit = Kit.of({"dataset": "", "sandbox": 0} | dict(values))
    if not alone or kit.sandbox != 0:
        return kit, None
    from runtimes.harness.sandbox import level  # where posts confine, nobody here needs it

    best = level()
    return Kit.of(kit.describe() | {"sandbox": best.number}), best.refusal


def near() -> "Near | None":
    """Return the cache service as this pod reaches it, if it was named."""
    if not (nodes := os.environ.get(NODES)):
        return None
    from datasets.cache import SimpleCache
    from datasets.membership import Fixed, parse

    token = os.environ.get(AUDIENCE_TOKEN)
    return SimpleCache(Fixed(map(parse, nodes.split(","))), token=Path(token) if token else None)


def say(words: str) -> None:
    """Tell people why this ended, and the kubelet."""
    print(words, flush=True)
    with contextlib.suppress(OSError):  # only a pod has one
        descriptor = os.open(LAST_WORDS, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        with open(descriptor, "w") as file:
            file.write(words[:4000])


if __name__ == "__main__":
    main()
