"""The recipe: the steps that confine the process they run in, in the order that makes each of them hold."""

import errno
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from . import kernel, landlock, limits, namespaces, seccomp, syscalls

#: What a program needs of the system: shared libraries, and how many processors there are and what they can do.
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/sys/devices/system/cpu", "/proc/cpuinfo")

ENVIRONMENT: Mapping[str, str] = {
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "MPLCONFIGDIR": "/tmp",
    "PATH": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    # One thread each: the machine is shared by many model servers, and sums over threads differ from run to run.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}

#: mallopt(M_ARENA_MAX): a thread's own arena reserves 64 MB of address space, which is what ``memory`` bounds.
ARENA_MAX, ARENAS = -8, 2

#: Threads and processes a user of the machine may still start at level 2, where they are counted together with his own.
SHARED_TASKS = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Confinement:
    """What a confined process may see and use.

    ``readonly`` are paths it sees under the same names, besides Python, this harness and the shared libraries.
    ``memory`` is address space in bytes; ``processes`` counts threads too; ``keep`` are descriptors besides the
    standard ones. ``uid`` is a user of its own where we are root, and chosen when None. ``level`` None is the best
    there is; naming it saves the trial.
    ``may_fork`` is for a model server that forks a child for every scenario.
    """

    readonly: tuple[str, ...] = ()
    writable_tmp_mb: int = 64
    memory: int = 4 << 30
    processes: int = 64
    files: int = 64
    uid: int | None = None
    keep: tuple[int, ...] = ()
    level: int | None = None
    may_fork: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    #: Its niceness, and how readily the kernel kills it (0 to 1000) when the machine is short of memory.
    nice: int = 5
    oom_score: int = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What is in force on this process: each layer in words, or None."""

    level: int
    uid: int
    layers: Mapping[str, str | None]
    seconds: float


LAYERS = ("processes", "files", "network", "user", "limits", "landlock", "seccomp")


def follow(wanted: Confinement, level: int) -> Report:
    """Confine this process, which must have one thread, at this level exactly or raise.

    At level 3 it is the grandchild that returns; the process that called waits for it and ends as it ends.
    """
    began = time.perf_counter()
    for path in wanted.readonly:
        os.stat(path)
    paths = (*filter(os.path.exists, (*SYSTEM, *own_paths())), *wanted.readonly)
    scratch_mb = wanted.writable_tmp_mb if level == 3 else 0
    _step_aside(wanted)
    own = level > 1 and (limits.is_master() if level == 3 else limits.may_change_user())
    user, group = os.getuid(), os.getgid()
    if own:
        user = group = limits.own_user() if wanted.uid is None else wanted.uid
    layers: dict[str, str | None] = dict.fromkeys(LAYERS)
    parent: int | None = None
    proc: str | None = "/proc/self"
    if level == 3:
        namespaces.leave(as_user=not own)
        parent = _become_first()
        proc = namespaces.enter(namespaces.layout(paths), scratch_mb=scratch_mb, user=user, group=group)
        room = f"{scratch_mb} MB of /tmp" if scratch_mb else "nothing writable"
        layers["files"] = f"a read-only root of its own, {room}"
        layers["network"] = "an empty namespace"
    layers["user"] = _change_user(user, own=own, level=level)
    if unreadable := namespaces.unreadable(paths):
        raise PermissionError(f"user {user}, as whom it would run, may not read {unreadable} (chmod -R a+rX)")
    layers["limits"] = _limit(wanted, level, user=user, own=own)
    if parent is not None:
        _insist(parent)
        _become_second()
        layers["processes"] = "a namespace that ends with its first process, which is ours"
    if level > 1:
        layers["processes"] = layers["processes"] or "killed with its parent"
        version = landlock.restrict(_rights(paths, proc=proc, scratch=scratch_mb > 0))
        layers["landlock"] = f"ABI {version}: paths, TCP, signals, abstract sockets"
        layers["seccomp"] = _filter(may_fork=wanted.may_fork)
    if not scratch_mb:
        _promise_tmp()
    os.environ.clear()
    os.environ.update({**ENVIRONMENT, **wanted.environ})
    return Report(level=level, uid=user, layers=layers, seconds=time.perf_counter() - began)


def _rights(paths: Sequence[str], *, proc: str | None, scratch: bool) -> Mapping[str, int]:
    """Say what may be done where; ``proc`` is its own part of /proc, without which tensorflow aborts."""
    rights = dict.fromkeys(paths, landlock.READONLY)
    rights |= dict.fromkeys(("/dev/zero", "/dev/urandom"), landlock.READ)
    rights["/dev/null"] = landlock.READ | landlock.WRITE
    if proc:
        rights[proc] = landlock.READ | landlock.LIST
    if scratch:
        rights["/tmp"] = landlock.SCRATCH
    return rights


def own_paths() -> Sequence[str]:
    """Python's libraries and executable, and this harness."""
    harness = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    python = (f"{sys.base_prefix}/lib", f"{sys.base_prefix}/{sys.platlibdir}", os.path.realpath(sys.executable))
    return (*python, harness)


def _step_aside(wanted: Confinement) -> None:
    """Leave the parent's descriptors, session and schedule, while /proc and the privileges are still there."""
    limits.keep_only(wanted.keep)
    if os.getpgrp() != os.getpid():
        os.setsid()
    os.umask(0o022)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    with open("/proc/self/oom_score_adj", "r+") as score:
        if int(score.read()) < wanted.oom_score:
            score.seek(0)
            score.write(str(wanted.oom_score))
    os.nice(wanted.nice)
    if mallopt := getattr(kernel.LIBC, "mallopt", None):  # a C library other than glibc has no arenas
        mallopt(ARENA_MAX, ARENAS)


def _become_first() -> int:
    """Fork the first process of the new namespace and return a handle on the one that waits, holding nothing else."""
    parent = os.pidfd_open(os.getpid())
    if child := os.fork():
        _end_like(child)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    return parent


def _insist(parent: int) -> None:
    """End if the parent ended before we had asked, for the last time, to be killed with it."""
    gone = select.poll()
    gone.register(parent, select.POLLIN)
    if gone.poll(0):
        os._exit(128 + signal.SIGKILL)
    os.close(parent)


def _become_second() -> None:
    """Fork the process to be confined; the first one only reaps, out of its reach.

    Were the model the first process, it could take the parent-death signal off and outlive a killed parent.
    """
    if child := os.fork():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # from inside, the first process gets no signal it does not handle
        _end_like(child)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()  # a signal to one's group would reach the processes outside that share it


def _end_like(child: int) -> NoReturn:
    """Reap until this child ends, then end with its code, or with 128 and its signal."""
    kernel.call("close_range", 3, 0x7FFFFFFF, 0)
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _change_user(user: int, *, own: bool, level: int) -> str:
    if level > 1:
        limits.drop_bounding()
        if own:
            limits.become(user)
        limits.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user takes it off
    if own:
        return "one of its own"
    return "the same, in a namespace of its own" if level == 3 else "shared"


def _limit(wanted: Confinement, level: int, *, user: int, own: bool) -> str:
    """Set the limits; the processes that wait outside are counted where they are the same user's."""
    tasks: int | None = wanted.processes
    if level == 3:
        tasks = wanted.processes + (1 if own else 2)
    elif level == 2 and not own:
        tasks = limits.tasks_of(user) + SHARED_TASKS
    elif level == 1:
        tasks = None
    limits.usage(
        memory=wanted.memory,
        files=wanted.files,
        largest_file=max(wanted.writable_tmp_mb, 1) << 20,
        tasks=tasks,
    )
    counted = "any number of tasks" if tasks is None else f"{tasks} tasks"
    return f"{wanted.memory >> 20} MB of addresses, {counted}, {wanted.files} descriptors"


def _promise_tmp() -> None:
    """Let libraries name a temporary folder they will not use: tensorflow asks where it is when it is imported."""
    import tempfile  # not at the top: it takes longer to load than the rest of this package

    tempfile.tempdir = "/tmp"


def _filter(*, may_fork: bool) -> str:
    here = syscalls.architecture()
    if here is None:
        raise OSError(errno.ENOSYS, f"no system call table for {os.uname().machine}", "seccomp")
    seccomp.install(seccomp.confining(here, may_fork=may_fork))
    return f"allow-list of {len(seccomp.verdicts(here, may_fork=may_fork))} calls, {here.name}"
