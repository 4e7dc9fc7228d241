"""Landlock: which paths the process may open and in what way, no TCP, no signals or abstract sockets outwards."""

import ctypes
import errno
import os
from collections.abc import Mapping

from . import kernel

#: Signals and abstract sockets are scoped from here on; without that, Landlock alone does not part two processes.
NEEDED_ABI = 6

EXECUTE, WRITE, READ, LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIRECTORY, REMOVE_FILE, MAKE_DIRECTORY, MAKE_FILE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
REFER, TRUNCATE, DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
OF_A_FILE = EXECUTE | WRITE | READ | TRUNCATE | DEVICE_CONTROL

READONLY = EXECUTE | READ | LIST
#: No links, devices, sockets or pipes are made, and nothing there is executed.
SCRATCH = READ | LIST | WRITE | REMOVE_DIRECTORY | REMOVE_FILE | MAKE_DIRECTORY | MAKE_FILE | REFER | TRUNCATE

ALL_FILE_RIGHTS = (1 << 16) - 1  # ABI 5 and later
ALL_NETWORK_RIGHTS = 3  # TCP bind and connect
ALL_SCOPES = 3  # abstract sockets and signals


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """The version the kernel offers; 0 where it has none or keeps it switched off."""
    try:
        return kernel.call("landlock_create_ruleset", None, 0, 1)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def restrict(rights: Mapping[str, int]) -> int:
    """Hold this process to these paths, for good, and return the ABI. Needs no_new_privs."""
    if (offered := abi()) < NEEDED_ABI:
        raise OSError(errno.ENOSYS, f"Landlock ABI {offered}, and {NEEDED_ABI} is needed (Linux 6.12)", "landlock")
    ruleset = kernel.call(
        "landlock_create_ruleset", _Ruleset(ALL_FILE_RIGHTS, ALL_NETWORK_RIGHTS, ALL_SCOPES), ctypes.sizeof(_Ruleset), 0
    )
    for path, granted in rights.items():
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not os.path.isdir(path):
            granted &= OF_A_FILE
        kernel.call("landlock_add_rule", ruleset, 1, _Beneath(granted, place), 0)
        os.close(place)
    kernel.call("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)
    return offered
