"""Attacks on other processes: the runner, the parents, the scheduler; and attempts to start further processes."""

import ctypes
import fcntl
import os
import resource
import signal
import struct
from pathlib import Path

from registry import LIBC, NUMBERS, Targets, attack, call, checked


@attack
def list_processes(targets: Targets) -> object:
    """find the runner in /proc"""
    return str(targets["runner"]) in os.listdir("/proc") and "found"


@attack
def see_that_the_runner_exists(targets: Targets) -> object:
    """stat the runner's folder in /proc"""
    return os.stat(f"/proc/{targets['runner']}").st_uid + 1


@attack
def runner_command_line(targets: Targets) -> object:
    """read the runner's command line"""
    return Path(f"/proc/{targets['runner']}/cmdline").read_text()


@attack
def runner_environment(targets: Targets) -> object:
    """read the runner's token from its environment"""
    return b"wt-secret" in Path(f"/proc/{targets['runner']}/environ").read_bytes() and "token"


@attack
def runner_memory(targets: Targets) -> object:
    """open the runner's memory"""
    return os.open(f"/proc/{targets['runner']}/mem", os.O_RDONLY)


@attack
def runner_descriptors(targets: Targets) -> object:
    """list the runner's descriptors"""
    return os.listdir(f"/proc/{targets['runner']}/fd")


@attack
def runner_executable(targets: Targets) -> object:
    """read the link to the runner's executable"""
    return os.readlink(f"/proc/{targets['runner']}/exe")


@attack
def trace_runner(targets: Targets) -> object:
    """ptrace the runner"""
    checked(LIBC.ptrace(0x4206, targets["runner"], 0, 0))  # SEIZE
    LIBC.ptrace(17, targets["runner"], 0, 0)  # DETACH
    return "seized"


@attack
def read_runner_memory(targets: Targets) -> object:
    """process_vm_readv of the runner"""
    local = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer := ctypes.create_string_buffer(8)), 8)
    remote = (ctypes.c_uint64 * 2)(0x400000, 8)
    count = LIBC.process_vm_readv(targets["runner"], local, 1, remote, 1, 0)
    if count < 0 and ctypes.get_errno() == 14:  # EFAULT: the address is wrong, but the call is permitted
        return "permitted"
    return f"{checked(count)} bytes of {len(buffer)}"


@attack
def steal_runner_descriptor(targets: Targets) -> object:
    """pidfd_getfd of the runner"""
    handle = call("pidfd_open", targets["runner"], 0)
    return call("pidfd_getfd", handle, 0, 0) + 1


@attack
def open_runner_by_pidfd(targets: Targets) -> object:
    """pidfd_open the runner"""
    return call("pidfd_open", targets["runner"], 0) + 1


@attack
def signal_runner(targets: Targets) -> object:
    """send the runner a signal"""
    os.kill(targets["runner"], signal.SIGWINCH)
    return "sent"


@attack
def queue_signal_to_runner(targets: Targets) -> object:
    """rt_sigqueueinfo to the runner"""
    call(
        "rt_sigqueueinfo",
        targets["runner"],
        signal.SIGWINCH,
        ctypes.create_string_buffer(struct.pack("iii", 28, 0, -1), 128),
    )
    return "sent"


@attack
def signal_runner_by_descriptor(targets: Targets) -> object:
    """have the kernel signal the runner when a pipe fills (F_SETOWN)"""
    reading, writing = os.pipe()
    fcntl.fcntl(reading, 10, signal.SIGWINCH)  # F_SETSIG
    fcntl.fcntl(reading, 8, targets["runner"])  # F_SETOWN
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    os.write(writing, b"x")
    return "armed"


@attack
def signal_own_group(targets: Targets) -> object:
    """signal the process group it was started in"""
    if os.getpgrp() == os.getpid():
        return None  # the group has no other process
    os.killpg(0, signal.SIGWINCH)
    return "sent"


@attack
def signal_parent(targets: Targets) -> object:
    """signal the process that started it"""
    if os.getppid() == 0:
        return None
    os.kill(os.getppid(), 0)
    return f"process {os.getppid()} can be signalled"


@attack
def read_parent_memory(targets: Targets) -> object:
    """open the memory of the process that started it"""
    for folder in ("/proc", "/proc/own"):
        if os.path.isdir(f"{folder}/{os.getppid()}"):
            return os.open(f"{folder}/{os.getppid()}/mem", os.O_RDONLY)
    return None


@attack
def limit_runner(targets: Targets) -> object:
    """prlimit of the runner"""
    resource.prlimit(targets["runner"], resource.RLIMIT_CORE, (0, 0))
    return "limited"


@attack
def slow_runner(targets: Targets) -> object:
    """renice the runner"""
    os.setpriority(os.PRIO_PROCESS, targets["runner"], 19)
    return "slowed"


@attack
def pin_runner(targets: Targets) -> object:
    """pin the runner to one processor"""
    os.sched_setaffinity(targets["runner"], {0})
    return "pinned"


@attack
def idle_runner(targets: Targets) -> object:
    """put the runner's disk access last"""
    call("ioprio_set", 1, targets["runner"], 3 << 13)
    return "last"


@attack
def migrate_runner(targets: Targets) -> object:
    """move the runner's memory"""
    nodes = ctypes.create_string_buffer(struct.pack("Q", 1))
    call("migrate_pages", targets["runner"], 2, nodes, nodes)
    return "moved"


@attack
def compare_with_runner(targets: Targets) -> object:
    """kcmp with the runner"""
    return call("kcmp", os.getpid(), targets["runner"], 0, 0, 0) + 1


@attack
def advise_runner(targets: Targets) -> object:
    """process_madvise of the runner"""
    handle = call("pidfd_open", targets["runner"], 0)
    return call("process_madvise", handle, (ctypes.c_uint64 * 2)(0x400000, 4096), 1, 20, 0) + 1


@attack
def join_runner_namespaces(targets: Targets) -> object:
    """setns into the runner's namespaces"""
    call("setns", os.open(f"/proc/{targets['runner']}/ns/net", os.O_RDONLY), 0)
    return "joined"


@attack
def outlive_parent(targets: Targets) -> object:
    """take the parent-death signal off"""
    checked(LIBC.prctl(1, 0, 0, 0, 0))
    return "off"


@attack
def outlive_parent_by_another_signal(targets: Targets) -> object:
    """replace the parent-death signal by a harmless signal"""
    checked(LIBC.prctl(1, int(signal.SIGWINCH), 0, 0, 0))
    return "changed"


@attack
def fork_a_child(targets: Targets) -> object:
    """fork"""
    if (child := os.fork()) == 0:
        os._exit(0)
    return os.waitpid(child, 0)


@attack
def fork_by_number(targets: Targets) -> object:
    """the old fork call, or clone without a thread"""
    child = call("fork", 17, 0, 0, 0, 0) if NUMBERS["fork"] != 57 else call("fork")
    if child == 0:
        os._exit(0)
    return os.waitpid(child, 0)


@attack
def daemonise(targets: Targets) -> object:
    """fork twice and leave the session"""
    if child := os.fork():
        return os.waitpid(child, 0)
    os.setsid()
    if os.fork() == 0:
        os._exit(0)
    os._exit(0)


@attack
def spawn_a_shell(targets: Targets) -> object:
    """run /bin/sh"""
    return os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], {}), 0)


@attack
def execute_another_program(targets: Targets) -> object:
    """execve, with a file that is not a program"""
    # A real program would replace this process, and its outcome could not be reported. With a file that is not a
    # program the kernel fails with ENOEXEC (or EACCES) where execve is possible, and with EPERM where it is not.
    try:
        os.execv(targets["module"], ["module"])
    except OSError as error:
        return error.errno in (8, 13) and "execve is possible"


@attack
def execute_by_descriptor(targets: Targets) -> object:
    """execveat"""
    try:
        call("execveat", os.open(targets["module"], os.O_RDONLY), b"", 0, 0, 0x1000)
    except OSError as error:
        return error.errno in (8, 13) and "execveat is possible"


@attack
def raise_priority(targets: Targets) -> object:
    """run before other processes"""
    os.nice(-5)
    return "raised"


@attack
def run_in_real_time(targets: Targets) -> object:
    """real-time scheduling"""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return "raised"


@attack
def leave_its_processors(targets: Targets) -> object:
    """choose its own processors"""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    return "chosen"


@attack
def avoid_the_oom_killer(targets: Targets) -> object:
    """ask not to be killed when memory is short"""
    with open("/proc/self/oom_score_adj", "r+") as file:
        before = int(file.read())
        file.seek(0)
        file.write(str(max(before - 500, 0)))
        file.flush()
    return "lowered"


@attack
def become_dumpable(targets: Targets) -> object:
    """let other processes read its memory"""
    checked(LIBC.prctl(4, 1, 0, 0, 0))
    return "dumpable"


@attack
def become_root(targets: Targets) -> object:
    """setuid(0)"""
    if os.getuid() == 0:
        return "is root"
    os.setuid(0)
    return "became root"
