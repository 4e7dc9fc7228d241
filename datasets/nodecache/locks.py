"""Locks between threads and processes of a node: the kernel frees them, also by kill -9."""

import contextlib
import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

#: Seconds between two looks at a lock that another holds.
_LOOK = 0.1


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextlib.contextmanager
def locked(path: Path, meanwhile: Callable[[], None] | None = None) -> Iterator[bool]:
    """Hold a lock; yield whether another had to be waited for. ``meanwhile`` is called while it is."""
    descriptor = _opened(path)
    waited = False
    try:
        if meanwhile is None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        else:
            while not _taken(descriptor):
                waited = True
                meanwhile()
                time.sleep(_LOOK * (0.5 + random.random()))
        yield waited
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def tried(path: Path) -> Iterator[bool]:
    """Hold a lock if nobody else does; yield whether."""
    descriptor = _opened(path)
    try:
        yield _taken(descriptor)
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
