"""What a process may use and hold: file descriptors, resource limits, capabilities, and a user of its own."""

import errno
import os
import resource
import struct
from collections.abc import Iterable, Mapping

from . import kernel

#: Users for model servers where we are root: above what distributions, containers and systemd hand out, one per process
#: id.
FIRST_USER = 0x70000000
SETGID, SETUID, SETPCAP, SYS_ADMIN = 6, 7, 8, 21
_CAPABILITY_VERSION = 0x20080522


def keep_only(descriptors: Iterable[int]) -> None:
    """Close every descriptor but these and the three standard ones; standard input is /dev/null."""
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    last = 3
    for descriptor in sorted(set(descriptors) - {0, 1, 2}):
        os.closerange(last, descriptor)
        last = descriptor + 1
    kernel.call("close_range", last, 0x7FFFFFFF, 0)


def is_master() -> bool:
    """Whether this process may mount and hand out users, as root does."""
    return may_change_user() and _may(SYS_ADMIN, SETPCAP)


def may_change_user() -> bool:
    """Whether this process may at least step down to another user, as root in a container does."""
    return os.geteuid() == 0 and _users() > 1 and _may(SETUID, SETGID)


def own_user() -> int:
    """A user for this process that no other process of this machine has, within the users there are."""
    users = _users()
    if users > 2 * FIRST_USER:
        return FIRST_USER + os.getpid()
    return users // 2 + os.getpid() % (users - users // 2)


def become(user: int) -> None:
    """Change to this user and group for good."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def drop_bounding() -> None:
    """Give up what executing a file could bring back; before a change of user, which takes the right to do so."""
    for capability in range(64):
        try:
            kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM):
                raise
            break  # the kernel knows no more of them, or we have none to give up


def drop_capabilities() -> None:
    """Give up every capability."""
    kernel.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL)
    kernel.call("capset", struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24))


def usage(*, memory: int, files: int, largest_file: int, tasks: int | None) -> None:
    """Set the resource limits, soft and hard alike.

    ``memory`` bounds the address space: RLIMIT_DATA leaves shared mappings out. ``tasks`` counts processes and threads
    of the user, and is left alone where None.
    """
    limits: Mapping[int, int] = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_NOFILE: files,
        resource.RLIMIT_FSIZE: largest_file,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 64,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_STACK: 8 << 20,
    }
    if tasks is not None:
        limits = {**limits, resource.RLIMIT_NPROC: tasks}
    for limit, wanted in limits.items():
        _, hard = resource.getrlimit(limit)
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (allowed, allowed))


def tasks_of(user: int) -> int:
    """Count the processes and threads a user has now, as RLIMIT_NPROC does."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue  # it ended meanwhile
    return count


def _users() -> int:
    """How many users there are from 0 on: 2**32 - 1 on a machine, fewer in a user namespace."""
    with open("/proc/self/uid_map") as ranges:
        spans = sorted(tuple(map(int, line.split())) for line in ranges)
    end = 0
    for first, _, length in spans:
        if first > end:
            break
        end = first + length
    return end


def _may(*capabilities: int) -> bool:
    with open("/proc/self/status") as status:
        effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    return all(effective >> capability & 1 for capability in capabilities)
