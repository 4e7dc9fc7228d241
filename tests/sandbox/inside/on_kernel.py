"""Attacks on the kernel's own surfaces: namespaces, mounts, modules, rings, keys."""

import ctypes
import fcntl
import mmap
import os
import socket
import struct
import time

from registry import LIBC, Stage, attack, call, checked


@attack
def executable_memory(stage: Stage) -> object:
    """writable and executable anonymous memory"""
    return mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) and "mapped"


@attack
def new_user_namespace(stage: Stage) -> object:
    """unshare a user namespace"""
    checked(LIBC.unshare(0x10000000))
    return "created"


@attack
def new_namespaces_by_clone3(stage: Stage) -> object:
    """clone3 with a user namespace"""
    arguments = ctypes.create_string_buffer(struct.pack("QQQQQQQQ", 0x10000000, 0, 0, 0, 17, 0, 0, 0))
    child = call("clone3", arguments, 64)
    if child == 0:
        os._exit(0)
    return os.waitpid(child, 0)


@attack
def mount_something(stage: Stage) -> object:
    """mount a tmpfs"""
    checked(LIBC.mount(b"x", stage["tmp"].encode(), b"tmpfs", ctypes.c_ulong(0), None))
    return "mounted"


@attack
def mount_by_new_calls(stage: Stage) -> object:
    """fsopen a tmpfs"""
    return call("fsopen", b"tmpfs", 0) + 1


@attack
def clone_a_mount(stage: Stage) -> object:
    """open_tree a copy of the root"""
    return call("open_tree", -100, b"/", 1) + 1


@attack
def make_mounts_writable(stage: Stage) -> object:
    """mount_setattr without read-only"""
    attributes = ctypes.create_string_buffer(struct.pack("QQQQ", 0, 1, 0, 0))
    call("mount_setattr", -100, stage["environment"].encode(), 0, attributes, 32)
    return "writable"


@attack
def unmount_the_root(stage: Stage) -> object:
    """unmount /proc"""
    checked(LIBC.umount2(b"/proc", 2))
    return "unmounted"


@attack
def change_root(stage: Stage) -> object:
    """chroot and climb out of it"""
    os.chroot(stage["tmp"])
    return "changed"


@attack
def rename_the_machine(stage: Stage) -> object:
    """sethostname"""
    socket.sethostname(socket.gethostname())
    return "renamed"


@attack
def set_the_clock(stage: Stage) -> object:
    """clock_settime"""
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return "set"


@attack
def programs_in_the_kernel(stage: Stage) -> object:
    """bpf"""
    attributes = ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1) + bytes(112))
    return call("bpf", 0, attributes, 128) + 1


@attack
def ring(stage: Stage) -> object:
    """io_uring, whose calls no filter sees"""
    return call("io_uring_setup", 4, ctypes.create_string_buffer(120)) + 1


@attack
def performance_counters(stage: Stage) -> object:
    """perf_event_open"""
    attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 128, 0) + bytes(112))
    return call("perf_event_open", attributes, 0, -1, -1, 0) + 1


@attack
def handle_page_faults(stage: Stage) -> object:
    """userfaultfd"""
    return call("userfaultfd", 1) + 1


@attack
def read_keyring(stage: Stage) -> object:
    """keyctl on the session's keys"""
    return call("keyctl", 0, -3, 0) + 1


@attack
def add_a_key(stage: Stage) -> object:
    """add_key"""
    return call("add_key", b"user", b"windtunnel", b"x", 1, -2) + 1


@attack
def load_a_module(stage: Stage) -> object:
    """finit_module: EPERM is refusal, anything else is the kernel looking at the file"""
    try:
        call("finit_module", os.open(stage["module"], os.O_RDONLY), b"", 0)
    except PermissionError:
        raise
    except OSError as error:
        return f"the kernel looked: {error}"


@attack
def replace_the_kernel(stage: Stage) -> object:
    """kexec_load"""
    call("kexec_load", 0, 0, 0, 0)
    return "emptied"


@attack
def disk_quotas(stage: Stage) -> object:
    """quotactl"""
    call("quotactl", 0x800001 << 8, 0, 0, 0)
    return "asked"


@attack
def read_kernel_log(stage: Stage) -> object:
    """syslog"""
    return checked(LIBC.klogctl(10, None, 0)) + 1


@attack
def switch_personality(stage: Stage) -> object:
    """personality without address randomisation"""
    before = checked(LIBC.personality(0xFFFFFFFF))
    checked(LIBC.personality(before | 0x0040000))
    return "switched"


@attack
def memory_files(stage: Stage) -> object:
    """memfd_create, memory outside the address space limit"""
    return os.memfd_create("x")


@attack
def secret_memory(stage: Stage) -> object:
    """memfd_secret"""
    return call("memfd_secret", 0) + 1


@attack
def shared_segments(stage: Stage) -> object:
    """a System V segment, which outlives its maker"""
    segment = checked(LIBC.shmget(0, 1 << 20, 0o1600))
    LIBC.shmctl(segment, 0, None)
    return "made"


@attack
def message_queues(stage: Stage) -> object:
    """a POSIX message queue, which outlives its maker"""
    return call("mq_open", b"windtunnel", os.O_CREAT | os.O_RDWR, 0o600, 0) + 1


@attack
def third_filter(stage: Stage) -> object:
    """a system call filter of its own, with a listener"""
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
    checked(LIBC.prctl(38, 1, 0, 0, 0))
    call("seccomp", 1, 0, program)
    return "installed"


@attack
def type_into_the_terminal(stage: Stage) -> object:
    """TIOCSTI on its standard streams: ENOTTY from a filter, or from there being no terminal"""
    terminal, _ = os.openpty()
    fcntl.ioctl(terminal, 0x5412, b"i")
    return "typed"


@attack
def open_the_terminal(stage: Stage) -> object:
    """open a terminal device"""
    return os.open("/dev/ptmx", os.O_RDWR)


@attack
def lock_memory(stage: Stage) -> object:
    """mlockall"""
    checked(LIBC.mlockall(1))
    LIBC.munlockall()
    return "locked"


@attack
def calls_of_another_kind(stage: Stage) -> object:
    """getpid by its x32 number, past a filter that knows x86_64's"""
    return checked(LIBC.syscall(ctypes.c_long(0x40000000 + 39))) and "answered"
