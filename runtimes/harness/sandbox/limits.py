"""Limits of a confined process: file descriptors, resource limits, capabilities, and a dedicated user id."""

import errno
import os
import resource
import struct
from collections.abc import Iterable, Mapping

from . import kernel
from .allowances import STACK

#: The first user id for confined processes when started by root, one per process id: above the ranges that
#: distributions, containers and systemd assign.
FIRST_USER = 0x70000000
SETGID, SETUID, SETPCAP, SYS_ADMIN = 6, 7, 8, 21
_CAPABILITY_VERSION = 0x20080522


def close_descriptors_except(descriptors: Iterable[int]) -> None:
    """Close every descriptor except these and the three standard streams; standard input becomes /dev/null."""
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    first = 3
    for descriptor in sorted(set(descriptors) - {0, 1, 2}):
        os.closerange(first, descriptor)
        first = descriptor + 1
    kernel.call("close_range", first, 0x7FFFFFFF, 0)


def has_root_capabilities() -> bool:
    """Whether this process may mount and change to another user, as root may."""
    return may_change_user() and _has_capabilities(SYS_ADMIN, SETPCAP)


def may_change_user() -> bool:
    """Whether this process may at least change to another user, as root in a container may."""
    return os.geteuid() == 0 and _count_mapped_users() > 1 and _has_capabilities(SETUID, SETGID)


def dedicated_user() -> int:
    """Return a user id that no other process of this machine has, within the mapped user ids."""
    users = _count_mapped_users()
    if users > 2 * FIRST_USER:
        return FIRST_USER + os.getpid()
    return users // 2 + os.getpid() % (users - users // 2)


def change_user(user: int) -> None:
    """Change to this user and group irrevocably."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def drop_bounding_set() -> None:
    """Empty the capability bounding set, so that execve cannot regain any; call it before the change of user."""
    for capability in range(64):
        try:
            kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM):
                raise
            break  # past the last capability that the kernel knows, or this process has no CAP_SETPCAP


def drop_capabilities() -> None:
    """Drop all capabilities."""
    kernel.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL)
    kernel.call("capset", struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24))


def set_resource_limits(*, memory: int, libraries: int, files: int, largest_file: int, tasks: int | None) -> None:
    """Set the resource limits, soft and hard.

    ``memory`` (bytes) bounds private writable memory, and with ``libraries`` (bytes) the address space, because
    RLIMIT_DATA counts neither shared mappings nor memory that is made read-only again. ``largest_file`` is in
    bytes. ``tasks`` counts the user's processes and threads; None leaves RLIMIT_NPROC as it is.
    """
    limits: Mapping[int, int] = {
        resource.RLIMIT_AS: memory + libraries,
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_NOFILE: files,
        resource.RLIMIT_FSIZE: largest_file,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 64,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_STACK: STACK,
    }
    if tasks is not None:
        limits = {**limits, resource.RLIMIT_NPROC: tasks}
    for limit, value in limits.items():
        _, hard = resource.getrlimit(limit)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (allowed, allowed))


def count_tasks(user: int) -> int:
    """Count the processes and threads of a user, as RLIMIT_NPROC counts them."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue  # the process ended meanwhile
    return count


def _count_mapped_users() -> int:
    """Return how many user ids are mapped from 0 on: 2**32 - 1 on a machine, fewer in a user namespace."""
    with open("/proc/self/uid_map") as ranges:
        spans = sorted(tuple(map(int, line.split())) for line in ranges)
    end = 0
    for first, _, length in spans:
        if first > end:
            break
        end = first + length
    return end


def _has_capabilities(*capabilities: int) -> bool:
    with open("/proc/self/status") as status:
        effective = next(int(line.split()[1], 16) for line in status if line.startswith("CapEff:"))
    return all(effective >> capability & 1 for capability in capabilities)
