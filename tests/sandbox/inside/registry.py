"""Registry of attacks: functions that return a true value if they succeed, and otherwise raise or return None."""

import ctypes
import os
import platform
from collections.abc import Callable, Mapping
from typing import Any

#: The paths, ports and process ids that attacks aim at, by name.
Targets = Mapping[str, Any]
Attack = Callable[[Targets], object]

ATTACKS: dict[str, Attack] = {}

LIBC = ctypes.CDLL(None, use_errno=True)

#: Numbers of system calls for which the C library has no function, by machine.
NUMBERS: Mapping[str, int] = {
    "x86_64": {
        "ioprio_set": 251,
        "keyctl": 250,
        "add_key": 248,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "kcmp": 312,
        "memfd_secret": 447,
        "kexec_load": 246,
        "finit_module": 313,
        "seccomp": 317,
        "setns": 308,
        "mq_open": 240,
        "quotactl": 179,
        "execveat": 322,
        "fork": 57,
        "migrate_pages": 256,
        "rt_sigqueueinfo": 129,
    },
    "aarch64": {
        "ioprio_set": 30,
        "keyctl": 219,
        "add_key": 217,
        "bpf": 280,
        "perf_event_open": 241,
        "userfaultfd": 282,
        "kcmp": 272,
        "memfd_secret": 447,
        "kexec_load": 104,
        "finit_module": 273,
        "seccomp": 277,
        "setns": 268,
        "mq_open": 180,
        "quotactl": 60,
        "execveat": 281,
        "fork": 220,
        "migrate_pages": 238,
        "rt_sigqueueinfo": 138,
    },
}[platform.machine()] | {
    "pidfd_send_signal": 424,
    "io_uring_setup": 425,
    "open_tree": 428,
    "fsopen": 430,
    "pidfd_open": 434,
    "clone3": 435,
    "openat2": 437,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "fanotify_init": 300 if platform.machine() == "x86_64" else 262,
}


def attack(function: Attack) -> Attack:
    """Register a function; its docstring stands in the documented table, in the column "what it tries"."""
    ATTACKS[function.__name__] = function
    return function


def checked(result: int) -> int:
    """Return a C function's result; raise OSError with its errno if it failed."""
    if result < 0:
        raise OSError(error := ctypes.get_errno(), os.strerror(error))
    return result


def call(name: str, *arguments: Any) -> int:
    """Make a system call by name; integers are passed as C longs."""
    values = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return checked(LIBC.syscall(ctypes.c_long(NUMBERS[name]), *values))
