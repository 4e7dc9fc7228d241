"""Sandbox steps: they confine the calling process; their order is part of the security."""

import errno
import os
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from . import kernel, landlock, limits, namespaces, seccomp, syscalls
from .allowances import MEMORY, OPEN_FILES, SCRATCH_MB, TASKS

#: System paths that every program needs: shared libraries, and the number and features of the processors.
PROCESSORS = ("/sys/devices/system/cpu", "/proc/cpuinfo")
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", *PROCESSORS)

ENVIRONMENT: Mapping[str, str] = {
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "MPLCONFIGDIR": "/tmp",
    "PATH": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "LD_BIND_NOW": "1",  # as in python_process.py
    "ORT_DISABLE_TELEMETRY": "1",
    # One thread per library: many model servers share the machine, and sums over threads differ from run to run.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}

#: Besides, for the ranks of a coupled program: their shell scripts run programs of this machine, also its compiler.
PROGRAMS = ("/bin", "/usr/bin", "/usr/include", "/usr/libexec/gcc", "/etc/alternatives")

#: Address of names that are this sandbox.
LOOPBACK = "127.0.0.1"

#: mallopt(M_ARENA_MAX): each arena reserves 64 MB of address space, which is bounded.
ARENA_MAX, ARENAS = -8, 2

#: Tasks that an ordinary user's process may start at level 2, where RLIMIT_NPROC counts all tasks of the user together.
SHARED_TASKS = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Confinement:
    """What a confined process may access and use.

    ``readonly`` are paths that it sees under the same names, besides Python, this harness and the shared libraries.
    ``memory`` is in bytes; ``libraries`` is address space besides, for mapped libraries; ``processes`` counts threads
    too; ``files`` is the number of descriptors; ``keep`` are descriptors to leave open besides the standard
    streams. ``uid`` is the dedicated user id if the process is started by root; None chooses one. ``level`` None
    detects the highest level; passing it saves the trial. ``may_fork`` is for a model server that forks a child per
    scenario.

    ``makes_memory``: the process makes memory that it shares with another, which runs a model.
    ``program``: the process is replaced by a program (execve), which starts others, and connects to one TCP port, of a
    listener that is made in the network of the confined process and passed over the Unix socket ``listener``.
    ``writable`` are folders that it may write to; ``largest_file`` in bytes, None: what fits into ``writable_tmp_mb``.
    ``hosts``: the process starts the ranks of a coupled program, which listen and connect in a network of their own, to
    these names, the first of which is the host's; None: it does not. At level 2 they have the network, /proc and tasks
    of the machine, which is meant to be a container, and fill the folders ``writable``. ``addresses``: of hosts of the
    program, by name, where it runs on several machines; it then has the machine's network, and nothing of it is closed
    to it.
    ``root``: a folder of packages whose files it sees as the root, at level 3; then all paths of this machine are below
    `namespaces.MACHINE`.
    """

    readonly: Sequence[str] = ()
    writable_tmp_mb: int = SCRATCH_MB
    memory: int = MEMORY
    libraries: int = 0
    processes: int = TASKS
    files: int = OPEN_FILES
    uid: int | None = None
    keep: Sequence[int] = ()
    level: int | None = None
    may_fork: bool = False
    makes_memory: bool = False
    program: bool = False
    listener: int | None = None
    writable: Sequence[str] = ()
    largest_file: int | None = None
    hosts: Sequence[str] | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    root: str | None = None
    #: Niceness, and oom_score_adj (0 to 1000).
    nice: int = 5
    oom_score: int = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfinementReport:
    """The confinement in force on this process: a description of each layer, or None; ``seconds`` that it took.

    ``port``: the TCP port that it may connect to.
    """

    level: int
    uid: int
    layers: Mapping[str, str | None]
    seconds: float
    port: int | None = None


LAYERS = ("processes", "files", "network", "user", "limits", "landlock", "seccomp")


def apply(confinement: Confinement, level: int) -> ConfinementReport:
    """Confine this process, which must have a single thread, at exactly this level, or raise.

    At level 3 the call returns in a grandchild; the calling process waits for it and exits with its status.
    """
    started = time.perf_counter()
    for path in (*confinement.readonly, *confinement.writable):
        os.stat(path)
    layout, paths = _layout(confinement, level)
    scratch_mb = confinement.writable_tmp_mb if level == 3 else 0
    _detach_from_parent(confinement)
    dedicated = level > 1 and (limits.has_root_capabilities() if level == 3 else limits.may_change_user())
    user, group = os.getuid(), os.getgid()
    if dedicated:
        user = group = limits.dedicated_user() if confinement.uid is None else confinement.uid
    layers: dict[str, str | None] = dict.fromkeys(LAYERS)
    parent: int | None = None
    proc: str | None = "/proc/self"
    if level == 3:
        isolated = not confinement.addresses
        namespaces.unshare(as_user=not dedicated, network=isolated)
        parent = _fork_first_process()
        port = _prepare_network(confinement, isolated=isolated)
        layout = replace(layout, writable=tuple(map(os.path.realpath, confinement.writable)))
        hosts = None if confinement.hosts is None else {name: LOOPBACK for name in confinement.hosts}
        hosts = None if hosts is None else {**hosts, **confinement.addresses}
        proc = namespaces.enter_root(layout, scratch_mb=scratch_mb, user=user, group=group, hosts=hosts)
        writable = f"{scratch_mb} MB of /tmp" if scratch_mb else "nothing writable"
        layers["files"] = f"a private read-only root, {writable}"
        network = "an empty network namespace"
        if confinement.hosts is not None:
            network = "a network namespace with loopback only"
        layers["network"] = network if isolated else None
    else:
        port = _prepare_network(replace(confinement, hosts=None), isolated=False)
    layers["user"] = _change_user(user, dedicated=dedicated, level=level)
    if unreadable := namespaces.first_unreadable(paths):
        raise PermissionError(f"user {user}, as whom the process would run, may not read {unreadable} (chmod -R a+rX)")
    layers["limits"] = _set_limits(confinement, level, user=user, dedicated=dedicated)
    if parent is not None:
        _exit_if_parent_exited(parent)
        _fork_confined_process()
        layers["processes"] = "a process namespace whose first process is the sandbox's"
    if level > 1:
        rights = dict(_rights(paths, proc=proc, scratch=scratch_mb > 0))
        rights |= dict.fromkeys(confinement.writable, landlock.FILLED)
        ranks = confinement.hosts is not None
        if ranks and scratch_mb:
            rights |= dict.fromkeys((namespaces.SCRATCH, namespaces.SHARED_MEMORY), landlock.SHARED_ACCESS)
            rights["/etc"] = landlock.READONLY
        elif ranks:
            rights |= dict.fromkeys(confinement.writable, landlock.SHARED_ACCESS)
            rights |= {"/etc": landlock.READONLY, "/proc": landlock.READ | landlock.LIST}
        layers["processes"] = layers["processes"] or "killed with its parent"
        version = landlock.restrict(rights, port=port, tcp=ranks)
        layers["landlock"] = f"ABI {version}: paths, {'' if ranks else 'TCP, '}signals, abstract sockets"
        if confinement.may_fork or ranks:  # a zygote reaps programs that outlive their scenario's process
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        layers["seccomp"] = _install_filter(confinement)
    if not scratch_mb:
        _set_tempdir()
    os.environ.clear()
    os.environ.update(ENVIRONMENT)
    seconds = time.perf_counter() - started
    return ConfinementReport(level=level, uid=user, layers=layers, seconds=seconds, port=port)


def _layout(confinement: Confinement, level: int) -> tuple[namespaces.Layout, Sequence[str]]:
    """Return the layout of files, and the paths that may be read in it. Raise ValueError for a root without level 3."""
    if confinement.root is None:
        named: Sequence[str] = SYSTEM if confinement.hosts is None else (*SYSTEM, *PROGRAMS)
        paths = (*filter(os.path.exists, (*named, *harness_paths())), *confinement.readonly)
        return namespaces.layout(paths), paths
    if level < 3:
        raise ValueError(f"a root of packages needs level 3, and this is level {level}")
    machine = (*harness_paths(), *library_folders(), *confinement.readonly)
    layout = namespaces.root_layout(confinement.root, machine)
    system = tuple(filter(os.path.exists, PROCESSORS))
    layout = replace(layout, real=namespaces.layout(system).real)
    return layout, (*(path for path, _ in layout.copies), *layout.real)


def library_folders() -> Sequence[str]:
    """Return the folders of the shared libraries of this process, its loader's too, but those of Python's modules."""
    with open("/proc/self/maps") as maps:
        mapped = {line.rstrip("\n").partition("/")[2] for line in maps if ".so" in line}
    modules = f"{sys.base_prefix}/{sys.platlibdir}/python"
    folders = {os.path.dirname(f"/{path}") for path in mapped if not f"/{path}".startswith(modules)}
    return sorted(map(os.path.realpath, folders))


def loader() -> str:
    """Return the path of the program that loads shared libraries, as this process was started by it."""
    with open("/proc/self/maps") as maps:
        mapped = [line.rstrip("\n").partition("/")[2] for line in maps]
    return next(f"/{path}" for path in mapped if os.path.basename(path).startswith("ld-"))


def _rights(paths: Sequence[str], *, proc: str | None, scratch: bool) -> Mapping[str, int]:
    """Return the Landlock rights per path; ``proc`` is the sandbox's own /proc, without which tensorflow aborts."""
    rights = dict.fromkeys(paths, landlock.READONLY)
    rights |= dict.fromkeys(("/dev/zero", "/dev/urandom"), landlock.READ)
    rights["/dev/null"] = landlock.READ | landlock.WRITE
    if proc:
        rights[proc] = landlock.READ | landlock.LIST
    if scratch:
        rights["/tmp"] = landlock.SCRATCH
    return rights


def harness_paths() -> Sequence[str]:
    """Return the paths of Python's libraries and executable, and of this harness."""
    harness = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    python = (f"{sys.base_prefix}/lib", f"{sys.base_prefix}/{sys.platlibdir}", os.path.realpath(sys.executable))
    return (*python, harness)


def _detach_from_parent(confinement: Confinement) -> None:
    """Close inherited descriptors, leave the session, set priorities: needs /proc and the privileges."""
    limits.close_descriptors_except(confinement.keep)
    if os.getpgrp() != os.getpid():
        os.setsid()
    os.umask(0o022)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    with open("/proc/self/oom_score_adj", "r+") as score:
        if int(score.read()) < confinement.oom_score:
            score.seek(0)
            score.write(str(confinement.oom_score))
    os.nice(confinement.nice)
    if mallopt := getattr(kernel.LIBC, "mallopt", None):  # a C library other than glibc has no arenas
        mallopt(ARENA_MAX, ARENAS)


def _fork_first_process() -> int:
    """Fork the first process of the new namespace; return a pidfd of the outer process, which then only waits."""
    parent = os.pidfd_open(os.getpid())
    if child := os.fork():
        _exit_like(child)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    return parent


def _exit_if_parent_exited(parent: int) -> None:
    """Exit if the parent exited before the last PR_SET_PDEATHSIG took effect."""
    poller = select.poll()
    poller.register(parent, select.POLLIN)
    if poller.poll(0):
        os._exit(128 + signal.SIGKILL)
    os.close(parent)


def _fork_confined_process() -> None:
    """Fork the process to be confined; the first process only reaps, and the model cannot affect it.

    If the model ran in the first process, it could take the parent-death signal off and outlive a killed parent.
    """
    if child := os.fork():
        signal.signal(
            signal.SIGINT, signal.SIG_DFL
        )  # the first process receives from inside only signals that it handles
        _exit_like(child)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()  # a signal to its process group would otherwise reach processes outside


def _exit_like(child: int) -> NoReturn:
    """Reap until this child exits, then exit with its code, or with 128 plus its signal."""
    kernel.call("close_range", 3, 0x7FFFFFFF, 0)
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _change_user(user: int, *, dedicated: bool, level: int) -> str:
    if level > 1:
        limits.drop_bounding_set()
        if dedicated:
            limits.change_user(user)
        limits.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user clears it
    if dedicated:
        return "a dedicated user"
    return "the same user, in a user namespace" if level == 3 else "shared"


def _set_limits(confinement: Confinement, level: int, *, user: int, dedicated: bool) -> str:
    """Set the resource limits; RLIMIT_NPROC also counts the waiting outer processes that have the same user."""
    tasks: int | None = confinement.processes
    if level == 3:
        tasks = confinement.processes + (1 if dedicated else 2)
    elif level == 1 or confinement.hosts is not None:  # containers of a machine share a user, and count together
        tasks = None
    elif not dedicated:
        tasks = limits.count_tasks(user) + SHARED_TASKS
    limits.set_resource_limits(
        memory=confinement.memory,
        libraries=confinement.libraries,
        files=confinement.files,
        largest_file=largest_file(confinement),
        tasks=tasks,
    )
    counted = "any number of tasks" if tasks is None else f"{tasks} tasks"
    memory = f"{confinement.memory >> 20} MB of memory"
    if confinement.libraries:
        memory += f", {confinement.memory + confinement.libraries >> 20} MB of address space"
    return f"{memory}, {counted}, {confinement.files} descriptors"


def largest_file(confinement: Confinement) -> int:
    """Return the most bytes of one file."""
    return confinement.largest_file or max(confinement.writable_tmp_mb, 1) << 20


def _set_tempdir() -> None:
    """Set tempfile.tempdir although /tmp is not writable: tensorflow reads it at import and does not write there."""
    import tempfile  # not at the top: importing it takes longer than the rest of this package

    tempfile.tempdir = "/tmp"


def _prepare_network(confinement: Confinement, *, isolated: bool) -> int | None:
    """Name the host of ranks, or make the listener that a program may connect to, if it has any; return its port."""
    if confinement.listener is None and confinement.hosts is None:
        return None
    from . import loopback  # not at the top: model servers have no network

    if (isolated or confinement.addresses) and confinement.hosts is not None:
        loopback.name_host(confinement.hosts[0], isolated=isolated)
    return None if confinement.listener is None else loopback.pass_listener(confinement.listener, isolated=isolated)


def _install_filter(confinement: Confinement) -> str:
    here = syscalls.architecture()
    if here is None:
        raise OSError(errno.ENOSYS, f"no system call table for {os.uname().machine}", "seccomp")
    kind = {name: getattr(confinement, name) for name in ("may_fork", "program", "makes_memory")}
    kind["ranks"] = confinement.hosts is not None
    seccomp.install(seccomp.confining(here, **kind))
    return f"allow-list of {len(seccomp.call_blocks(here, **kind))} calls, {here.name}"
