"""File locks between the threads and processes of a node. The kernel releases them when their holder dies."""

import contextlib
import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

#: Seconds between two attempts to take a lock that is held elsewhere.
_POLL_INTERVAL = 0.1


def _open_lock_file(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextlib.contextmanager
def locked(path: Path, while_waiting: Callable[[], None] | None = None) -> Iterator[bool]:
    """Hold a lock; yield whether it was held elsewhere before. ``while_waiting`` is called between two attempts."""
    descriptor = _open_lock_file(path)
    waited = False
    try:
        if while_waiting is None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        else:
            while not _acquire(descriptor):
                waited = True
                while_waiting()
                time.sleep(_POLL_INTERVAL * (0.5 + random.random()))
        yield waited
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def try_locked(path: Path) -> Iterator[bool]:
    """Try to take a lock without waiting; yield whether it was acquired."""
    descriptor = _open_lock_file(path)
    try:
        yield _acquire(descriptor)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
