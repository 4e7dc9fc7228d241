"""System calls that Python's standard library does not wrap, by ctypes; errors are raised as OSError."""

import ctypes
import os
from collections.abc import Callable

from . import syscalls

LIBC = ctypes.CDLL(None, use_errno=True)
#: Keeps the interpreter's lock, without which the child of a fork could not go on.
_fork = ctypes.PyDLL(None, use_errno=True).fork

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 1, 4, 24, 38, 47
PR_SET_CHILD_SUBREAPER = 36
PR_CAP_AMBIENT_CLEAR_ALL = 4

#: The types that ctypes can pass where a call expects a pointer.
Pointer = bytes | ctypes.Array[ctypes.c_char] | ctypes.Structure | None


def _ctypes_argument(argument: int | Pointer) -> object:
    if isinstance(argument, int):
        return ctypes.c_long(argument)
    if isinstance(argument, ctypes.Structure):
        return ctypes.byref(argument)
    return argument


def call(name: str, *arguments: int | Pointer) -> int:
    """Make a system call by name; integers are passed as longs, structures by reference."""
    return prepare_call(name, *arguments)()


def prepare_call(name: str, *arguments: int | Pointer) -> Callable[[], int]:
    """Return a function that makes this system call: a process that is forked later has little left to do."""
    here = syscalls.architecture()
    number = -1 if here is None else here.numbers[name]  # fails as a call that the kernel does not have
    passed = (ctypes.c_long(number), *map(_ctypes_argument, arguments))
    syscall = LIBC.syscall

    def make() -> int:
        result: int = syscall(*passed)
        if result < 0:
            raise OSError(error := ctypes.get_errno(), os.strerror(error), name)
        return result

    return make


def prctl(option: int, *arguments: int) -> int:
    """Call prctl(2) on this process; missing arguments are zero."""
    padded = (option, *arguments, 0, 0, 0, 0)[:5]
    result = int(LIBC.prctl(ctypes.c_int(padded[0]), *map(ctypes.c_ulong, padded[1:])))
    if result < 0:
        raise OSError(error := ctypes.get_errno(), os.strerror(error), f"prctl {option}")
    return result


def fork() -> int:
    """Fork this process, which must have one thread, without what Python does after a fork.

    That is: new locks for other threads (`threading`), and a new seed of `random`. Both take about 0.4 ms in the child,
    most of it for copies of the pages that they write to.
    """
    pid = int(_fork())
    if pid < 0:
        raise OSError(error := ctypes.get_errno(), os.strerror(error), "fork")
    return pid


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Call mount(2)."""
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    if LIBC.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]) < 0:
        raise OSError(error := ctypes.get_errno(), os.strerror(error), f"mount on {target}")


def detach(target: str) -> None:
    """Detach a mount lazily (MNT_DETACH), even while it is in use."""
    if LIBC.umount2(os.fsencode(target), 2) < 0:
        raise OSError(error := ctypes.get_errno(), os.strerror(error), f"unmount {target}")
