"""Attacks on shared resources (memory, tasks, disk, descriptors), and on inherited descriptors and tokens."""

import fcntl
import mmap
import os
import resource
import threading
import time

from registry import Targets, attack


@attack
def inherited_descriptors(targets: Targets) -> object:
    """descriptors that it inherits by accident"""
    inherited = []
    for descriptor in range(3, 4096):
        try:
            os.fstat(descriptor)
        except OSError:
            continue
        inherited.append(descriptor)
    return inherited or None


@attack
def standard_input(targets: Targets) -> object:
    """read the standard input of the process that started it"""
    return os.read(0, 10)


@attack
def token_in_environment(targets: Targets) -> object:
    """a token in its environment"""
    return [name for name in os.environ if "TOKEN" in name] or None


@attack
def raise_limits(targets: Targets) -> object:
    """raise its own limit"""
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return "raised"


def map_four_gigabytes(flags: int) -> str:
    """Map memory without writing to it: the limit is on addresses, and the test machine needs its memory."""
    mappings = []
    try:
        for _ in range(64):
            mappings.append(mmap.mmap(-1, 64 << 20, flags=flags))
    finally:
        for mapping in mappings:
            mapping.close()
    return "4 GB"


@attack
def memory_bomb(targets: Targets) -> object:
    """map 4 GB with a limit of 1 GB"""
    return map_four_gigabytes(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@attack
def shared_memory_bomb(targets: Targets) -> object:
    """the same with shared mappings, which RLIMIT_DATA leaves out"""
    return map_four_gigabytes(mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)


@attack
def thread_bomb(targets: Targets) -> object:
    """1,000 threads with small stacks"""
    end, started = threading.Event(), 0
    threading.stack_size(64 << 10)
    try:
        for _ in range(1000):
            threading.Thread(target=end.wait, daemon=True).start()
            started += 1
    finally:
        end.set()
        time.sleep(0.1)
    return f"{started} threads"


@attack
def fork_bomb(targets: Targets) -> object:
    """200 children"""
    children: list[int] = []
    try:
        for _ in range(200):
            child = os.fork()
            if child == 0:
                time.sleep(20)
                os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)
    return f"{len(children)} children"


@attack
def fill_disk(targets: Targets) -> object:
    """write 256 MB to /tmp"""
    paths = [f"{targets['tmp']}/fill{index}" for index in range(32)]
    try:
        for path in paths:
            with open(path, "wb") as file:
                file.write(bytes(8 << 20))
    finally:
        for path in paths:
            if os.path.exists(path):
                os.unlink(path)
    return "256 MB"


@attack
def one_large_file(targets: Targets) -> object:
    """a sparse file of 1 TB"""
    path = f"{targets['tmp']}/sparse"
    try:
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    finally:
        if os.path.exists(path):
            os.unlink(path)
    return "1 TB"


@attack
def fill_inodes(targets: Targets) -> object:
    """5,000 empty files"""
    paths: list[str] = []
    try:
        for index in range(5000):
            path = f"{targets['tmp']}/inode{index}"
            with open(path, "w"):
                paths.append(path)
    finally:
        for path in paths:
            os.unlink(path)
    return "5,000 files"


@attack
def hoard_descriptors(targets: Targets) -> object:
    """1,000 open files"""
    descriptors: list[int] = []
    try:
        for _ in range(1000):
            descriptors.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return "1,000 descriptors"


@attack
def hoard_pipe_memory(targets: Targets) -> object:
    """256 MB of kernel memory in pipes"""
    descriptors: list[int] = []
    try:
        for _ in range(256):
            reading, writing = os.pipe()
            descriptors += [reading, writing]
            fcntl.fcntl(writing, 1031, 1 << 20)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return "256 MB"
