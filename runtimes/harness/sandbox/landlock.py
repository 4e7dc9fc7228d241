"""Landlock rules: access rights per path; no TCP, no signals or abstract sockets to processes outside the domain."""

import ctypes
import errno
import os
from collections.abc import Mapping

from . import kernel

#: The first ABI that scopes signals and abstract sockets; without it, Landlock alone does not isolate two processes.
NEEDED_ABI = 6

EXECUTE, WRITE, READ, LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIRECTORY, REMOVE_FILE, MAKE_DIRECTORY, MAKE_FILE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
REFER, TRUNCATE, DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
FILE_RIGHTS = EXECUTE | WRITE | READ | TRUNCATE | DEVICE_CONTROL

READONLY = EXECUTE | READ | LIST
#: Without the rights to create links, devices, sockets or pipes, and without execution.
SCRATCH = READ | LIST | WRITE | REMOVE_DIRECTORY | REMOVE_FILE | MAKE_DIRECTORY | MAKE_FILE | REFER | TRUNCATE

MAKE_LINK = 1 << 12
#: Of a folder that a program fills: symbolic links too, which are followed within what it may reach.
FILLED = SCRATCH | MAKE_LINK
MAKE_SOCKET, MAKE_FIFO = 1 << 9, 1 << 10
#: Of the folders that the ranks of a coupled program share: they build programs there, and meet at sockets.
SHARED_ACCESS = FILLED | EXECUTE | MAKE_SOCKET | MAKE_FIFO

ALL_FILE_RIGHTS = (1 << 16) - 1  # ABI 5 and later
ALL_NETWORK_RIGHTS = 3  # TCP bind and connect
CONNECT = 2
ALL_SCOPES = 3  # abstract sockets and signals


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Port(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("port", ctypes.c_uint64))


def abi() -> int:
    """Return the kernel's Landlock ABI version; 0 if Landlock is missing or disabled."""
    try:
        return kernel.call("landlock_create_ruleset", None, 0, 1)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def restrict(rights: Mapping[str, int], *, port: int | None = None, tcp: bool = False) -> int:
    """Restrict this process irrevocably to these paths; return the ABI version. Requires no_new_privs.

    ``port``: the only TCP port that it may connect to; None: it may not connect. ``tcp``: there are no rules for TCP.
    """
    if (version := abi()) < NEEDED_ABI:
        raise OSError(errno.ENOSYS, f"Landlock ABI {version}, and {NEEDED_ABI} is needed (Linux 6.12)", "landlock")
    handled = _Ruleset(ALL_FILE_RIGHTS, 0 if tcp else ALL_NETWORK_RIGHTS, ALL_SCOPES)
    ruleset = kernel.call("landlock_create_ruleset", handled, ctypes.sizeof(_Ruleset), 0)
    for path, allowed in rights.items():
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not os.path.isdir(path):
            allowed &= FILE_RIGHTS
        kernel.call("landlock_add_rule", ruleset, 1, _PathBeneath(allowed, descriptor), 0)
        os.close(descriptor)
    if port is not None:
        kernel.call("landlock_add_rule", ruleset, 2, _Port(CONNECT, port), 0)
    kernel.call("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)
    return version


def keep_signals_inside() -> None:
    """Let this process, and those forked from it, signal only each other: not the processes it was forked from."""
    ruleset = kernel.call("landlock_create_ruleset", _Ruleset(0, 0, ALL_SCOPES), ctypes.sizeof(_Ruleset), 0)
    kernel.call("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)
