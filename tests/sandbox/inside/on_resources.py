"""Attacks that use up what is shared: memory, tasks, disk, descriptors; and what was left lying about."""

import fcntl
import mmap
import os
import resource
import threading
import time

from registry import Stage, attack


@attack
def inherited_descriptors(stage: Stage) -> object:
    """descriptors it was not given"""
    found = []
    for descriptor in range(3, 4096):
        try:
            os.fstat(descriptor)
        except OSError:
            continue
        found.append(descriptor)
    return found or None


@attack
def standard_input(stage: Stage) -> object:
    """read the starter's standard input"""
    return os.read(0, 10)


@attack
def token_in_environment(stage: Stage) -> object:
    """a token in its environment"""
    return [name for name in os.environ if "TOKEN" in name] or None


@attack
def raise_limits(stage: Stage) -> object:
    """raise its own limit"""
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return "raised"


def map_four_gigabytes(flags: int) -> str:
    """Map memory and leave it untouched: the limit is on addresses, and the test machine needs its memory."""
    held = []
    try:
        for _ in range(64):
            held.append(mmap.mmap(-1, 64 << 20, flags=flags))
    finally:
        for mapping in held:
            mapping.close()
    return "4 GB"


@attack
def memory_bomb(stage: Stage) -> object:
    """map 4 GB where 1 was given"""
    return map_four_gigabytes(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@attack
def shared_memory_bomb(stage: Stage) -> object:
    """the same with shared mappings, which RLIMIT_DATA leaves out"""
    return map_four_gigabytes(mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)


@attack
def thread_bomb(stage: Stage) -> object:
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
def fork_bomb(stage: Stage) -> object:
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
def fill_disk(stage: Stage) -> object:
    """write 256 MB to /tmp"""
    paths = [f"{stage['tmp']}/fill{index}" for index in range(32)]
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
def one_large_file(stage: Stage) -> object:
    """a sparse file of 1 TB"""
    path = f"{stage['tmp']}/sparse"
    try:
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    finally:
        if os.path.exists(path):
            os.unlink(path)
    return "1 TB"


@attack
def fill_inodes(stage: Stage) -> object:
    """5,000 empty files"""
    made: list[str] = []
    try:
        for index in range(5000):
            path = f"{stage['tmp']}/inode{index}"
            with open(path, "w"):
                made.append(path)
    finally:
        for path in made:
            os.unlink(path)
    return "5,000 files"


@attack
def hoard_descriptors(stage: Stage) -> object:
    """1,000 open files"""
    held: list[int] = []
    try:
        for _ in range(1000):
            held.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for descriptor in held:
            os.close(descriptor)
    return "1,000 descriptors"


@attack
def hoard_pipe_memory(stage: Stage) -> object:
    """256 MB of kernel memory in pipes"""
    held: list[int] = []
    try:
        for _ in range(256):
            reading, writing = os.pipe()
            held += [reading, writing]
            fcntl.fcntl(writing, 1031, 1 << 20)
    finally:
        for descriptor in held:
            os.close(descriptor)
    return "256 MB"
