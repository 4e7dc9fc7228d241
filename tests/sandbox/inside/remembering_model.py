"""A model that writes a note through a channel in one scenario, and looks for it in the next one.

An observation names the channel and whether to write (1) or to read (2). What it has read is the text of its exception.
"""

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import re
import resource
import signal
import socket
import struct
import sys
import time

STARTED = time.time()
#: Digits that only a writer puts into memory; the pattern's source is not an instance of it.
NOTE = re.compile(rb"zq9[0-9]{9}q9z")
#: struct flock: type, whence, start, length, process.
LOCK = struct.Struct("hhqqi")
F_OFD_GETLK, F_OFD_SETLK, F_SETPIPE_SZ, F_GETPIPE_SZ = 36, 37, 1031, 1032
PR_SET_NAME, PR_GET_NAME = 15, 16
LIBC = ctypes.CDLL(None, use_errno=True)
#: Objects that must not be collected: they would close descriptors.
KEPT = []


def descriptors():
    """Return the open descriptors."""
    found = []
    for descriptor in range(64):
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            found.append(descriptor)
    return found


def sockets():
    """Return the open sockets."""
    found = []
    for descriptor in descriptors():
        with contextlib.suppress(OSError):
            found.append(socket.socket(fileno=descriptor))
    KEPT.extend(found)
    return found


def folders_of_scratch():
    """Return /tmp and the folders in it."""
    return ["/tmp", *(entry.path for entry in os.scandir("/tmp") if entry.is_dir())]


def memory_map():
    """Return the lines of this process's memory map, if it can be read."""
    for folder in ("/proc/own/self", "/proc/self"):
        with contextlib.suppress(OSError), open(f"{folder}/maps") as lines:
            return lines.read().splitlines()
    return []


def notes_in_memory():
    """Return a few of the notes in this process's own memory."""
    found = set()
    for line in memory_map():
        span, rights, _, _, inode = line.split()[:5]
        start, stop = (int(address, 16) for address in span.split("-"))
        if rights.startswith("rw") and inode == "0":
            found |= set(NOTE.findall((ctypes.c_char * (stop - start)).from_address(start)))
    return sorted(note.decode() for note in found)[:5]


def note(number):
    """Return a note that `notes_in_memory` finds."""
    return "".join(("zq", "9", f"{number + 123456000:09}", "q", "9z"))


class SharedMemory:
    """bytes in memory shared with the zygote"""

    def addresses(self):
        frame = sys._getframe()
        while frame is not None:
            for value in frame.f_locals.values():
                if isinstance(value, mmap.mmap):
                    yield ctypes.addressof(ctypes.c_char.from_buffer(value))
            frame = frame.f_back

    def write(self):
        for address in self.addresses():
            ctypes.memmove(address + 100, b"note", 4)

    def read(self):
        return [text for address in self.addresses() if (text := ctypes.string_at(address + 100).decode())]


class SocketTimeouts:
    """SO_SNDTIMEO and SO_RCVTIMEO of its socket"""

    options = (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO)

    def write(self):
        for connected in sockets():
            for option in self.options:
                connected.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", 4242, 0))

    def read(self):
        values = [
            connected.getsockopt(socket.SOL_SOCKET, option, 16) for connected in sockets() for option in self.options
        ]
        return [seconds for value in values if (seconds := struct.unpack("@ll", value)[0])]


class SocketBuffers:
    """SO_SNDBUF and SO_RCVBUF of its socket"""

    def write(self):
        for connected in sockets():
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 54321)

    def read(self):
        return [54321 for connected in sockets() if connected.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 108642]


class DescriptorFlags:
    """O_ASYNC and O_APPEND of inherited descriptors"""

    flags = os.O_ASYNC | os.O_APPEND

    def write(self):
        for descriptor in descriptors():
            with contextlib.suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | self.flags)

    def read(self):
        return [flags for number in descriptors() if (flags := fcntl.fcntl(number, fcntl.F_GETFL) & self.flags)]


class PipeSize:
    """F_SETPIPE_SZ of its output"""

    def write(self):
        fcntl.fcntl(1, F_SETPIPE_SZ, 8192)

    def read(self):
        return [8192] if fcntl.fcntl(1, F_GETPIPE_SZ) == 8192 else []


class Locks:
    """locks on inherited descriptors, whose ranges every process can read"""

    def write(self):
        for descriptor in descriptors():
            for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK):
                with contextlib.suppress(OSError):
                    fcntl.fcntl(descriptor, F_OFD_SETLK, LOCK.pack(kind, 0, 4242, 17, 0))

    def read(self):
        starts = []
        for descriptor in (os.open("/dev/null", os.O_RDONLY), *descriptors()):
            with contextlib.suppress(OSError):
                lock = fcntl.fcntl(descriptor, F_OFD_GETLK, LOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
                kind, _, start, _, _ = LOCK.unpack(lock)
                starts += [start] if kind != fcntl.F_UNLCK else []
        return starts


class Positions:
    """positions of inherited descriptors"""

    def write(self):
        for descriptor in descriptors():
            with contextlib.suppress(OSError):
                os.lseek(descriptor, 4242, os.SEEK_SET)

    def read(self):
        found = []
        for descriptor in descriptors():
            with contextlib.suppress(OSError):
                found += [position] if (position := os.lseek(descriptor, 0, os.SEEK_CUR)) else []
        return found


class OpenFiles:
    """descriptors besides standard streams and its own socket"""

    def write(self):
        KEPT.append(os.pipe())

    def read(self):
        return descriptors()[4:]


class Files:
    """files in /tmp, and in the folders there that lead to mounted files"""

    def write(self):
        for folder in folders_of_scratch():
            with contextlib.suppress(OSError):
                open(f"{folder}/note", "w").close()

    def read(self):
        return [folder for folder in folders_of_scratch() if os.path.exists(f"{folder}/note")]


class NamesOfMountPoints:
    """other names for the folders in /tmp that lead to mounted files"""

    def write(self):
        for number, folder in enumerate(folders_of_scratch()[1:]):
            with contextlib.suppress(OSError):
                os.rename(folder, f"/tmp/note{number}")

    def read(self):
        return [folder for folder in folders_of_scratch() if "note" in folder]


class ClosedFolders:
    """files in folders of /tmp that cannot be listed"""

    def write(self):
        with contextlib.suppress(OSError):
            os.mkdir("/tmp/closed", 0o300)
            open("/tmp/closed/note", "w").close()
        with contextlib.suppress(OSError):
            os.umask(0o400)
            os.mkdir("/tmp/masked")
            open("/tmp/masked/note", "w").close()

    def read(self):
        return [folder for folder in ("/tmp/closed", "/tmp/masked") if os.path.exists(f"{folder}/note")]


class DeepFolders:
    """folders in /tmp deeper than the stack, the open descriptors and the longest path"""

    def write(self):
        os.chdir("/tmp")
        for _ in range(300):
            os.mkdir("deep" * 50)
            os.chdir("deep" * 50)

    def read(self):
        return [name[:4] for name in os.listdir("/tmp") if name.startswith("deep")]


class TimeOfScratch:
    """the time of the last change of /tmp"""

    def write(self):
        open("/tmp/note", "w").close()
        os.unlink("/tmp/note")
        time.sleep(max(0.0, STARTED + 6 - time.time()))  # a change near its end would look like the next one's start

    def read(self):
        with contextlib.suppress(OSError):
            open("/tmp/probe", "w").close()
            os.unlink("/tmp/probe")
            return [] if abs(STARTED - TIME_OF_SCRATCH) < 5 else [TIME_OF_SCRATCH]
        return []


TIME_OF_SCRATCH = os.stat("/tmp").st_mtime


class NamesInMemory:
    """names of files, in memory that the zygote has freed"""

    def write(self):
        for number in range(500):
            open(f"/tmp/{note(number)}", "w").close()

    def read(self):
        return notes_in_memory()


class OutputInMemory:
    """output, in memory that the zygote has freed"""

    def write(self):
        for number in range(500):
            os.write(1, note(number).encode() + b"\n")

    def read(self):
        return notes_in_memory()


class ProcessState:
    """working folder, umask, limits, signals, name and niceness of its process"""

    def write(self):
        os.chdir("/")
        resource.setrlimit(resource.RLIMIT_FSIZE, (4242, 4242))
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        LIBC.prctl(PR_SET_NAME, b"note", 0, 0, 0)
        os.umask(0o077)

    def read(self):
        name = ctypes.create_string_buffer(16)
        LIBC.prctl(PR_GET_NAME, name, 0, 0, 0)
        found = [name.value.decode()] if name.value == b"note" else []
        found += [4242] if resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 4242 else []
        found += ["ignored"] if signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN else []
        found += ["blocked"] if signal.SIGUSR2 in signal.pthread_sigmask(signal.SIG_BLOCK, []) else []
        return found + (["umask"] if os.umask(0o022) == 0o077 else [])


class StateOfZygote:
    """limits, priority and processors of the zygote"""

    def write(self):
        parent = os.getppid()
        with contextlib.suppress(OSError):
            resource.prlimit(parent, resource.RLIMIT_CPU, (4242, 4242))
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, parent, 17)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(parent, {1})

    def read(self):
        found = [4242] if resource.getrlimit(resource.RLIMIT_CPU)[0] == 4242 else []
        found += [17] if os.getpriority(os.PRIO_PROCESS, 0) == 17 else []
        return found + ([1] if os.sched_getaffinity(0) == {1} else [])


class PagesOfFiles:
    """which pages of a shared file are in memory (fadvise64, mincore)"""

    path = os.path.realpath(json.__file__)

    def write(self):
        with open(self.path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def read(self):
        residency = ctypes.create_string_buffer(16)
        with open(self.path, "rb") as file:
            KEPT.append(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE))
        address = ctypes.addressof(ctypes.c_char.from_buffer(KEPT[-1]))
        return ["residency"] if LIBC.mincore(ctypes.c_void_p(address), ctypes.c_size_t(4096), residency) == 0 else []


class ClockOfZygote:
    """the processor time of the zygote"""

    def write(self):
        pass

    def read(self):
        with contextlib.suppress(OSError):
            return [time.clock_gettime(~os.getppid() << 3 | 2)]
        return []


CHANNELS = (
    SharedMemory,
    SocketTimeouts,
    SocketBuffers,
    DescriptorFlags,
    PipeSize,
    Locks,
    Positions,
    OpenFiles,
    Files,
    NamesOfMountPoints,
    ClosedFolders,
    DeepFolders,
    TimeOfScratch,
    NamesInMemory,
    OutputInMemory,
    ProcessState,
    StateOfZygote,
    PagesOfFiles,
    ClockOfZygote,
)


class Model:
    def act(self, observation):
        channel = CHANNELS[int(observation[0])]()
        if observation[1] == 1:
            with contextlib.suppress(Exception):
                channel.write()
            return [0.0] * 4
        found = []
        with contextlib.suppress(PermissionError):
            found = channel.read()
        raise RuntimeError("READ " + json.dumps(found))
