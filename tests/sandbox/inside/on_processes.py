"""Attacks on other processes: the driver, the parents, and the machine's scheduler."""

import ctypes
import fcntl
import os
import resource
import signal
import struct
from pathlib import Path

from registry import LIBC, NUMBERS, Stage, attack, call, checked


@attack
def list_processes(stage: Stage) -> object:
    """find the driver in /proc"""
    return str(stage["driver"]) in os.listdir("/proc") and "found"


@attack
def see_that_the_driver_exists(stage: Stage) -> object:
    """stat the driver's folder in /proc"""
    return os.stat(f"/proc/{stage['driver']}").st_uid + 1


@attack
def driver_command_line(stage: Stage) -> object:
    """read the driver's command line"""
    return Path(f"/proc/{stage['driver']}/cmdline").read_text()


@attack
def driver_environment(stage: Stage) -> object:
    """read the driver's token from its environment"""
    return b"wt-secret" in Path(f"/proc/{stage['driver']}/environ").read_bytes() and "token"


@attack
def driver_memory(stage: Stage) -> object:
    """open the driver's memory"""
    return os.open(f"/proc/{stage['driver']}/mem", os.O_RDONLY)


@attack
def driver_descriptors(stage: Stage) -> object:
    """list the driver's descriptors"""
    return os.listdir(f"/proc/{stage['driver']}/fd")


@attack
def driver_executable(stage: Stage) -> object:
    """read the link to the driver's executable"""
    return os.readlink(f"/proc/{stage['driver']}/exe")


@attack
def trace_driver(stage: Stage) -> object:
    """ptrace the driver"""
    checked(LIBC.ptrace(0x4206, stage["driver"], 0, 0))  # SEIZE
    LIBC.ptrace(17, stage["driver"], 0, 0)  # DETACH
    return "seized"


@attack
def read_driver_memory(stage: Stage) -> object:
    """process_vm_readv of the driver"""
    here = (ctypes.c_uint64 * 2)(ctypes.addressof(room := ctypes.create_string_buffer(8)), 8)
    there = (ctypes.c_uint64 * 2)(0x400000, 8)
    count = LIBC.process_vm_readv(stage["driver"], here, 1, there, 1, 0)
    if count < 0 and ctypes.get_errno() == 14:  # a wrong address, and no refusal
        return "permitted"
    return f"{checked(count)} bytes of {len(room)}"


@attack
def steal_driver_descriptor(stage: Stage) -> object:
    """pidfd_getfd of the driver"""
    handle = call("pidfd_open", stage["driver"], 0)
    return call("pidfd_getfd", handle, 0, 0) + 1


@attack
def hold_driver(stage: Stage) -> object:
    """pidfd_open the driver"""
    return call("pidfd_open", stage["driver"], 0) + 1


@attack
def signal_driver(stage: Stage) -> object:
    """send the driver a signal"""
    os.kill(stage["driver"], signal.SIGWINCH)
    return "sent"


@attack
def queue_signal_to_driver(stage: Stage) -> object:
    """rt_sigqueueinfo to the driver"""
    call(
        "rt_sigqueueinfo",
        stage["driver"],
        signal.SIGWINCH,
        ctypes.create_string_buffer(struct.pack("iii", 28, 0, -1), 128),
    )
    return "sent"


@attack
def signal_driver_by_descriptor(stage: Stage) -> object:
    """have the kernel signal the driver when a pipe fills (F_SETOWN)"""
    reading, writing = os.pipe()
    fcntl.fcntl(reading, 10, signal.SIGWINCH)  # F_SETSIG
    fcntl.fcntl(reading, 8, stage["driver"])  # F_SETOWN
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    os.write(writing, b"x")
    return "armed"


@attack
def signal_own_group(stage: Stage) -> object:
    """signal the process group it was started in"""
    if os.getpgrp() == os.getpid():
        return None  # nobody else is in it
    os.killpg(0, signal.SIGWINCH)
    return "sent"


@attack
def signal_parent(stage: Stage) -> object:
    """signal the process that started it"""
    if os.getppid() == 0:
        return None
    os.kill(os.getppid(), 0)
    return f"process {os.getppid()} can be signalled"


@attack
def read_parent_memory(stage: Stage) -> object:
    """open the memory of the process that started it"""
    for folder in ("/proc", "/proc/own"):
        if os.path.isdir(f"{folder}/{os.getppid()}"):
            return os.open(f"{folder}/{os.getppid()}/mem", os.O_RDONLY)
    return None


@attack
def limit_driver(stage: Stage) -> object:
    """prlimit of the driver"""
    resource.prlimit(stage["driver"], resource.RLIMIT_CORE, (0, 0))
    return "limited"


@attack
def slow_driver(stage: Stage) -> object:
    """renice the driver"""
    os.setpriority(os.PRIO_PROCESS, stage["driver"], 19)
    return "slowed"


@attack
def pin_driver(stage: Stage) -> object:
    """pin the driver to one processor"""
    os.sched_setaffinity(stage["driver"], {0})
    return "pinned"


@attack
def idle_driver(stage: Stage) -> object:
    """put the driver's disk access last"""
    call("ioprio_set", 1, stage["driver"], 3 << 13)
    return "last"


@attack
def migrate_driver(stage: Stage) -> object:
    """move the driver's memory"""
    nodes = ctypes.create_string_buffer(struct.pack("Q", 1))
    call("migrate_pages", stage["driver"], 2, nodes, nodes)
    return "moved"


@attack
def compare_with_driver(stage: Stage) -> object:
    """kcmp with the driver"""
    return call("kcmp", os.getpid(), stage["driver"], 0, 0, 0) + 1


@attack
def advise_driver(stage: Stage) -> object:
    """process_madvise of the driver"""
    handle = call("pidfd_open", stage["driver"], 0)
    return call("process_madvise", handle, (ctypes.c_uint64 * 2)(0x400000, 4096), 1, 20, 0) + 1


@attack
def join_driver_namespaces(stage: Stage) -> object:
    """setns into the driver's namespaces"""
    call("setns", os.open(f"/proc/{stage['driver']}/ns/net", os.O_RDONLY), 0)
    return "joined"


@attack
def outlive_parent(stage: Stage) -> object:
    """take the parent-death signal off"""
    checked(LIBC.prctl(1, 0, 0, 0, 0))
    return "off"


@attack
def outlive_parent_by_another_signal(stage: Stage) -> object:
    """make the parent-death signal a harmless one"""
    checked(LIBC.prctl(1, int(signal.SIGWINCH), 0, 0, 0))
    return "changed"


@attack
def fork_a_child(stage: Stage) -> object:
    """fork"""
    if (child := os.fork()) == 0:
        os._exit(0)
    return os.waitpid(child, 0)


@attack
def fork_by_number(stage: Stage) -> object:
    """the old fork call, or clone without a thread"""
    child = call("fork", 17, 0, 0, 0, 0) if NUMBERS["fork"] != 57 else call("fork")
    if child == 0:
        os._exit(0)
    return os.waitpid(child, 0)


@attack
def daemonise(stage: Stage) -> object:
    """fork twice and leave the session"""
    if child := os.fork():
        return os.waitpid(child, 0)
    os.setsid()
    if os.fork() == 0:
        os._exit(0)
    os._exit(0)


@attack
def spawn_a_shell(stage: Stage) -> object:
    """run /bin/sh"""
    return os.waitpid(os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], {}), 0)


@attack
def become_a_shell(stage: Stage) -> object:
    """execve Python's own executable"""
    # An executable that is there but is told to do nothing we would notice is no proof, so a file that is no program
    # is executed: the kernel's answer is ENOEXEC where execve is possible, and EPERM where it is not.
    try:
        os.execv(stage["module"], ["module"])
    except OSError as error:
        return error.errno in (8, 13) and "execve answers"


@attack
def become_by_descriptor(stage: Stage) -> object:
    """execveat"""
    try:
        call("execveat", os.open(stage["module"], os.O_RDONLY), b"", 0, 0, 0x1000)
    except OSError as error:
        return error.errno in (8, 13) and "execveat answers"


@attack
def raise_priority(stage: Stage) -> object:
    """run before others"""
    os.nice(-5)
    return "raised"


@attack
def run_in_real_time(stage: Stage) -> object:
    """real-time scheduling"""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return "raised"


@attack
def leave_its_processors(stage: Stage) -> object:
    """choose its own processors"""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    return "chosen"


@attack
def escape_the_killer(stage: Stage) -> object:
    """ask not to be killed when memory is short"""
    with open("/proc/self/oom_score_adj", "r+") as file:
        before = int(file.read())
        file.seek(0)
        file.write(str(max(before - 500, 0)))
        file.flush()
    return "lowered"


@attack
def become_dumpable(stage: Stage) -> object:
    """let others read its memory"""
    checked(LIBC.prctl(4, 1, 0, 0, 0))
    return "dumpable"


@attack
def become_root(stage: Stage) -> object:
    """setuid(0)"""
    if os.getuid() == 0:
        return "is root"
    os.setuid(0)
    return "became root"
