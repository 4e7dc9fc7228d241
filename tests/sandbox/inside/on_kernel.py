"""Attacks on the kernel: namespaces, mounts, modules, io_uring, keys, memory, other system calls."""

import ctypes
import fcntl
import mmap
import os
import socket
import struct
import time

from registry import LIBC, Targets, attack, call, checked


@attack
def executable_memory(targets: Targets) -> object:
    """writable and executable anonymous memory"""
    return mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) and "mapped"


@attack
def new_user_namespace(targets: Targets) -> object:
    """unshare a user namespace"""
    checked(LIBC.unshare(0x10000000))
    return "created"


@attack
def new_namespaces_by_clone3(targets: Targets) -> object:
    """clone3 with a user namespace"""
    arguments = ctypes.create_string_buffer(struct.pack("QQQQQQQQ", 0x10000000, 0, 0, 0, 17, 0, 0, 0))
    child = call("clone3", arguments, 64)
    if child == 0:
        os._exit(0)
    return os.waitpid(child, 0)


@attack
def mount_something(targets: Targets) -> object:
    """mount a tmpfs"""
    checked(LIBC.mount(b"x", targets["tmp"].encode(), b"tmpfs", ctypes.c_ulong(0), None))
    return "mounted"


@attack
def mount_by_new_calls(targets: Targets) -> object:
    """fsopen a tmpfs"""
    return call("fsopen", b"tmpfs", 0) + 1


@attack
def clone_a_mount(targets: Targets) -> object:
    """open_tree a copy of the root"""
    return call("open_tree", -100, b"/", 1) + 1


@attack
def make_mounts_writable(targets: Targets) -> object:
    """mount_setattr without read-only"""
    attributes = ctypes.create_string_buffer(struct.pack("QQQQ", 0, 1, 0, 0))
    call("mount_setattr", -100, targets["environment"].encode(), 0, attributes, 32)
    return "writable"


@attack
def unmount_the_root(targets: Targets) -> object:
    """unmount /proc"""
    checked(LIBC.umount2(b"/proc", 2))
    return "unmounted"


@attack
def change_root(targets: Targets) -> object:
    """chroot and climb out of it"""
    os.chroot(targets["tmp"])
    return "changed"


@attack
def rename_the_machine(targets: Targets) -> object:
    """sethostname"""
    socket.sethostname(socket.gethostname())
    return "renamed"


@attack
def set_the_clock(targets: Targets) -> object:
    """clock_settime"""
    time.clock_settime(time.CLOCK_REALTIME, time.time())
    return "set"


@attack
def programs_in_the_kernel(targets: Targets) -> object:
    """bpf"""
    attributes = ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 4, 1) + bytes(112))
    return call("bpf", 0, attributes, 128) + 1


@attack
def io_uring(targets: Targets) -> object:
    """io_uring, whose calls no filter sees"""
    return call("io_uring_setup", 4, ctypes.create_string_buffer(120)) + 1


@attack
def performance_counters(targets: Targets) -> object:
    """perf_event_open"""
    attributes = ctypes.create_string_buffer(struct.pack("IIQ", 1, 128, 0) + bytes(112))
    return call("perf_event_open", attributes, 0, -1, -1, 0) + 1


@attack
def handle_page_faults(targets: Targets) -> object:
    """userfaultfd"""
    return call("userfaultfd", 1) + 1


@attack
def read_keyring(targets: Targets) -> object:
    """keyctl on the session's keys"""
    return call("keyctl", 0, -3, 0) + 1


@attack
def add_a_key(targets: Targets) -> object:
    """add_key"""
    return call("add_key", b"user", b"windtunnel", b"x", 1, -2) + 1


@attack
def load_a_module(targets: Targets) -> object:
    """finit_module: EPERM is a refusal; with any other error the kernel has read the file"""
    try:
        call("finit_module", os.open(targets["module"], os.O_RDONLY), b"", 0)
    except PermissionError:
        raise
    except OSError as error:
        return f"the kernel read the file: {error}"


@attack
def replace_the_kernel(targets: Targets) -> object:
    """kexec_load"""
    call("kexec_load", 0, 0, 0, 0)
    return "emptied"


@attack
def disk_quotas(targets: Targets) -> object:
    """quotactl"""
    call("quotactl", 0x800001 << 8, 0, 0, 0)
    return "called"


@attack
def read_kernel_log(targets: Targets) -> object:
    """syslog"""
    return checked(LIBC.klogctl(10, None, 0)) + 1


@attack
def switch_personality(targets: Targets) -> object:
    """personality without address randomisation"""
    before = checked(LIBC.personality(0xFFFFFFFF))
    checked(LIBC.personality(before | 0x0040000))
    return "switched"


@attack
def memory_files(targets: Targets) -> object:
    """memfd_create, memory outside the address space limit"""
    return os.memfd_create("x")


@attack
def secret_memory(targets: Targets) -> object:
    """memfd_secret"""
    return call("memfd_secret", 0) + 1


@attack
def shared_segments(targets: Targets) -> object:
    """a System V segment, which outlives its process"""
    segment = checked(LIBC.shmget(0, 1 << 20, 0o1600))
    LIBC.shmctl(segment, 0, None)
    return "created"


@attack
def message_queues(targets: Targets) -> object:
    """a POSIX message queue, which outlives its process"""
    return call("mq_open", b"windtunnel", os.O_CREAT | os.O_RDWR, 0o600, 0) + 1


@attack
def third_filter(targets: Targets) -> object:
    """a system call filter of its own, with a listener"""
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
    checked(LIBC.prctl(38, 1, 0, 0, 0))
    call("seccomp", 1, 0, program)
    return "installed"


@attack
def type_into_the_terminal(targets: Targets) -> object:
    """TIOCSTI on a terminal: ENOTTY from a filter, or because there is no terminal"""
    terminal, _ = os.openpty()
    fcntl.ioctl(terminal, 0x5412, b"i")
    return "typed"


@attack
def open_the_terminal(targets: Targets) -> object:
    """open a terminal device"""
    return os.open("/dev/ptmx", os.O_RDWR)


@attack
def lock_memory(targets: Targets) -> object:
    """mlockall"""
    checked(LIBC.mlockall(1))
    LIBC.munlockall()
    return "locked"


@attack
def calls_of_another_kind(targets: Targets) -> object:
    """getpid by its x32 number, past a filter of x86_64's numbers"""
    return checked(LIBC.syscall(ctypes.c_long(0x40000000 + 39))) and "answered"
