"""`python -m datasets.scs --config FILE`: serve a cache; `--verify`: read every object once, and drop the damaged."""

import argparse
import ctypes
import logging
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

from datasets.scs.authenticators import open_reviewer
from datasets.scs.config import Config, load
from datasets.scs.server import Server
from datasets.scs.store import Store

logger = logging.getLogger("datasets.scs")
#: Exit statuses: what it was told cannot be done, a wrong configuration or a port that is taken; or it broke.
UNUSABLE, BROKEN = 2, 1
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(prog="python -m datasets.scs", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the buckets, as JSON; docs/scs.md describes it")
    parser.add_argument("--host", help="where to listen, instead of what the configuration says")
    parser.add_argument("--port", type=int)
    parser.add_argument("--directory", type=Path, help="where objects are kept")
    parser.add_argument("--processes", type=int, help="processes on one folder and one port")
    parser.add_argument(
        "--kept-by", type=int, help=argparse.SUPPRESS
    )  # the process that keeps several of these at work
    parser.add_argument("--verify", action="store_true", help="read every object once, drop the damaged, and exit")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s scs[%(process)d] %(levelname)s %(message)s")
    told = {
        key: value for key in ("host", "port", "directory", "processes") if (value := getattr(given, key)) is not None
    }
    try:
        config = replace(load(given.config), **told)
        if given.verify:
            return verify(config)
        if config.processes > 1:
            return supervise(arguments, config.processes)
        return serve(config, keeper=given.kept_by)
    except (ValueError, OSError) as error:
        print(f"scs: {error}", file=sys.stderr)
        return UNUSABLE


def serve(config: Config, *, keeper: int | None = None) -> int:
    """Serve with one process until SIGTERM or SIGINT."""
    if keeper is not None:  # none of several outlives whoever keeps them at work
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            return 0
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if "Kind" not in config.reviewer and "Tokens" not in config.reviewer:
        logger.warning("no Reviewer is configured: no token is good, so nothing can be put")
    reviewer = open_reviewer(config.reviewer)
    listener = listen(config.host, config.port, share=keeper is not None)
    store = Store(config)
    server = Server(config, store, reviewer, listener)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    host, port = listener.getsockname()[:2]
    names = ", ".join(config.buckets)
    logger.info("http://%s:%d serves %s from %s", host, port, names, store.folder)
    try:
        server.run()
    except (OSError, sqlite3.Error):  # no fault of the configuration: the next one may do better
        logger.exception("the loop broke")
        return BROKEN
    finally:
        store.close()
    return BROKEN if store.ledger.broken else 0


def listen(host: str, port: int, *, share: bool) -> socket.socket:
    """Open the port."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{host}:{port}: {error.strerror}") from None
    listener.listen(4096)
    return listener


def supervise(arguments: list[str], processes: int) -> int:
    """Keep several processes at work on one port; the kernel deals connections out among them."""
    command = [sys.executable, "-m", "datasets.scs", *arguments, "--processes", "1", "--kept-by", str(os.getpid())]
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    children = [subprocess.Popen(command) for _ in range(processes)]
    while not stopping.wait(0.2):
        for place, child in enumerate(children):
            if child.poll() is None:
                continue
            if child.returncode == UNUSABLE:  # so would be the next
                stopping.set()
                break
            logger.error("a process ended with %s and is started again", child.returncode)
            children[place] = subprocess.Popen(command)
            stopping.wait(1.0)
    for child in children:
        child.terminate()
    return max(abs(child.wait()) for child in children)


def verify(config: Config) -> int:
    """Read every object; return 1 if some were damaged, which are dropped. May run beside those that serve."""
    store = Store(config)
    try:
        found = list(store.verify(threading.Event()))
    finally:
        store.close()
    print(f"{len(found)} objects, {found.count(False)} damaged and dropped")
    return 1 if False in found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
