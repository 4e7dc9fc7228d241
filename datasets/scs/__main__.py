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
from ipaddress import ip_address
from pathlib import Path

from datasets.scs.authenticators import open_authenticator
from datasets.scs.config import Config, load
from datasets.scs.scrub import scrub
from datasets.scs.server import CacheServer
from datasets.scs.store import Store

logger = logging.getLogger("datasets.scs")
#: Exit statuses: unusable configuration or port, which a restart does not repair; or a failure at run time.
UNUSABLE, BROKEN = 2, 1
PR_SET_PDEATHSIG = 1


def main(arguments: list[str], program: str = "python -m datasets.scs") -> int:
    """Parse the command line, and serve or verify."""
    os.umask(0o077)  # the objects are for this user, and for the clients that have a token
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the buckets, as JSON; see docs/scs.md")
    parser.add_argument("--host", help="address to listen on, instead of the configuration's Listen")
    parser.add_argument("--port", type=int)
    parser.add_argument("--directory", type=Path, help="folder of the objects")
    parser.add_argument("--processes", type=int, help="processes that share the folder and the port")
    parser.add_argument("--kept-by", type=int, help=argparse.SUPPRESS)  # process id of the supervisor
    parser.add_argument("--verify", action="store_true", help="read every object once, drop the damaged, and exit")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s scs[%(process)d] %(levelname)s %(message)s")
    overrides = {
        key: value for key in ("host", "port", "directory", "processes") if (value := getattr(options, key)) is not None
    }
    try:
        config = replace(load(options.config), **overrides)
        if options.verify:
            return verify(config)
        if config.processes > 1:
            return supervise(arguments, config.processes)
        return serve(config, parent=options.kept_by)
    except (ValueError, OSError) as error:
        print(f"scs: {error}", file=sys.stderr)
        return UNUSABLE


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    return host == "localhost" or (not set(host) - set("0123456789abcdef.:") and ip_address(host).is_loopback)


def serve(config: Config, *, parent: int | None = None) -> int:
    """Serve with one process until SIGTERM or SIGINT."""
    if parent is not None:  # a serving process ends with its supervisor
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return 0
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    if "Kind" not in config.authenticator and "Tokens" not in config.authenticator:
        logger.warning("no Reviewer is configured: every token is rejected, so nothing can be stored")
    authenticator = open_authenticator(config.authenticator, local=is_loopback(config.host))
    listener = listen(config.host, config.port, share=parent is not None)
    store = Store(config)
    server = CacheServer(config, store, authenticator, listener)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    host, port = listener.getsockname()[:2]
    names = ", ".join(config.buckets)
    logger.info("http://%s:%d serves %s from %s", host, port, names, store.folder)
    try:
        server.run()
    except (OSError, sqlite3.Error):  # not a configuration error: a restart may help
        logger.exception("cache server failed")
        return BROKEN
    finally:
        store.close()
    return BROKEN if store.index.corrupt else 0


def listen(host: str, port: int, *, share: bool) -> socket.socket:
    """Return a listening socket."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise OSError(f"{host}:{port} cannot be listened on: {error.strerror}. Choose another port.") from None
    listener.listen(4096)
    return listener


def supervise(arguments: list[str], processes: int) -> int:
    """Run several processes on one port, and restart those that end; the kernel distributes connections among them."""
    command = [sys.executable, "-m", "datasets.scs", *arguments, "--processes", "1", "--kept-by", str(os.getpid())]
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    children = [subprocess.Popen(command) for _ in range(processes)]
    while not stopping.wait(0.2):
        for position, child in enumerate(children):
            if child.poll() is None:
                continue
            if child.returncode == UNUSABLE:  # a restart would end the same way
                stopping.set()
                break
            logger.error("cache process ended with status %s; restarting it", child.returncode)
            children[position] = subprocess.Popen(command)
            stopping.wait(1.0)
    for child in children:
        child.terminate()
    return max(abs(child.wait()) for child in children)


def verify(config: Config) -> int:
    """Verify every object, dropping the damaged; return 1 if there were any. May run beside a running service."""
    store = Store(config)
    try:
        results = list(scrub(store, threading.Event()))
    finally:
        store.close()
    print(f"{len(results)} objects, {results.count(False)} damaged and dropped")
    return 1 if False in results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
