"""System call numbers by name and architecture, and the calls that a confined process may make.

A row is ``name x86_64 aarch64``; a dash means that the architecture lacks the call. The aarch64 column is from the
kernel's ``asm-generic/unistd.h`` and has not been run.
"""

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

ALLOWED_ROWS = """
# Files, as far as the mounts and Landlock let them
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69, pwritev 296 70,
open 2 -, openat 257 56, creat 85 -, close 3 57, close_range 436 436, lseek 8 62, access 21 -,
faccessat 269 48, faccessat2 439 439, stat 4 -, lstat 6 -, fstat 5 80, newfstatat 262 79, statx 332 291,
statfs 137 43, fstatfs 138 44, readlink 89 -, readlinkat 267 78, getdents 78 -, getdents64 217 61,
getcwd 79 17, chdir 80 49, mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, unlinkat 263 35, rename 82 -,
renameat 264 38, renameat2 316 276, truncate 76 45, ftruncate 77 46, fallocate 285 47, fsync 74 82,
fdatasync 75 83, fadvise64 221 223, copy_file_range 326 285, umask 95 166, dup 32 23, dup2 33 -,
dup3 292 24
# Memory
brk 12 214, mmap 9 222, munmap 11 215, mremap 25 216, mprotect 10 226, madvise 28 233, msync 26 227,
mincore 27 232, get_mempolicy 239 236, membarrier 324 283
# Waiting, and the pipes and sockets that were handed in
pipe 22 -, pipe2 293 59, poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72, epoll_create 213 -,
epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -, epoll_pwait 281 22, eventfd2 290 19, sendto 44 206,
recvfrom 45 207, sendmsg 46 211, recvmsg 47 212, shutdown 48 210, getsockname 51 204, getpeername 52 205,
getsockopt 55 209
# Time
time 201 -, gettimeofday 96 169, clock_gettime 228 113, clock_getres 229 114, nanosleep 35 101,
clock_nanosleep 230 115, alarm 37 -, getitimer 36 102, setitimer 38 103, times 100 153
# Threads and signals; whom a signal may reach is for the namespace and Landlock to say
futex 202 98, set_robust_list 273 99, get_robust_list 274 100, set_tid_address 218 96, rseq 334 293,
arch_prctl 158 -, sched_yield 24 124, sched_getaffinity 204 123, sched_getparam 143 121,
sched_getscheduler 145 120, sched_get_priority_max 146 125, sched_get_priority_min 147 126, getcpu 309 168,
kill 62 129, tgkill 234 131, rt_tgsigqueueinfo 297 240, rt_sigaction 13 134, rt_sigprocmask 14 135,
rt_sigpending 127 136, rt_sigreturn 15 139, rt_sigtimedwait 128 137, sigaltstack 131 132,
restart_syscall 219 128, exit 60 93, exit_group 231 94, wait4 61 260, waitid 247 95
# Questions about oneself and the machine
getpid 39 172, gettid 186 178, getppid 110 173, getpgid 121 155, getpgrp 111 -, getsid 124 156, getuid 102 174,
geteuid 107 175, getgid 104 176, getegid 108 177, getresuid 118 148, getresgid 120 150, getgroups 115 158,
getpriority 140 141, getrlimit 97 163, getrusage 98 165, sysinfo 99 179, uname 63 160, getrandom 318 278
"""

#: Calls that are allowed for some arguments only, that get a different errno, that the second filter denies, or that
#: this package makes itself before a filter is installed.
SPECIAL_ROWS = """
clone 56 220, clone3 435 435, prlimit64 302 261, prctl 157 167, ioctl 16 29, fcntl 72 25, socketpair 53 199,
setsockopt 54 208, memfd_create 319 279, openat2 437 437, flock 73 32, splice 275 76, pidfd_open 434 434
execve 59 221, execveat 322 281, fork 57 -, vfork 58 -, seccomp 317 277
unshare 272 97, pivot_root 155 41, open_tree 428 428, move_mount 429 429, mount_setattr 442 442, capset 126 91,
landlock_create_ruleset 444 444, landlock_add_rule 445 445, landlock_restrict_self 446 446
"""

#: Calls that a confined program needs besides: the installer of packages, which is not a model.
PROGRAM_ROWS = """
socket 41 198, connect 42 203, sendmmsg 307 269, bind 49 200, chmod 90 -, fchmod 91 52, fchmodat 268 53,
symlink 88 -, symlinkat 266 36, link 86 -, linkat 265 37, utimensat 280 88, sched_setaffinity 203 122
"""

#: Calls that ranks of a coupled program need besides those of a program: they listen, have sessions of their own, and
#: start programs as make does, which sets the user that it has; gnuplot does so first of all.
RANK_ROWS = """
listen 50 201, accept 43 202, accept4 288 242, setsid 112 157, setpgid 109 154, recvmmsg 299 243,
timerfd_create 283 85, timerfd_settime 286 86, timerfd_gettime 287 87, signalfd4 289 74,
mknod 133 -, mknodat 259 33, fchdir 81 50, setresuid 117 147, setresgid 119 149,
setuid 105 146, setgid 106 144
"""

#: Questions for extended attributes, to which the files of ranks answer that they have none: `ls` and `cp` go on then.
ATTRIBUTE_ROWS = """
getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10, listxattr 194 11, llistxattr 195 12, flistxattr 196 13
"""

#: The newest number these tables were written against: a call beyond it does not exist for a confined process
#: (ENOSYS), so that a newer C library falls back to the older call.
NEWEST = 462


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Architecture:
    """System calls of an architecture: the AUDIT_ARCH word that filters check, numbers by name, allowed numbers.

    ``program``: numbers that are allowed to a program besides; ``ranks``: to the ranks of a coupled program;
    ``attributes``: those that ask for extended attributes.
    """

    name: str
    word: int
    numbers: Mapping[str, int]
    allowed: frozenset[int]
    program: frozenset[int]
    ranks: frozenset[int]
    attributes: frozenset[int]


def _rows(text: str, column: int) -> dict[str, int]:
    lines = " ".join(line for line in text.splitlines() if not line.startswith("#"))
    split = (row.split() for row in lines.replace("\n", " ").split(",") if row.strip())
    # A block of rows ends without a comma, so a chunk may hold two rows of three words each.
    words = [word for row in split for word in row]
    return {words[i]: int(words[i + column]) for i in range(0, len(words), 3) if words[i + column] != "-"}


def _architecture(name: str, word: int, column: int) -> Architecture:
    rows = (ALLOWED_ROWS, PROGRAM_ROWS, RANK_ROWS, ATTRIBUTE_ROWS)
    allowed, program, ranks, attributes = (_rows(text, column) for text in rows)
    return Architecture(
        name=name,
        word=word,
        numbers=allowed | _rows(SPECIAL_ROWS, column) | program | ranks | attributes,
        allowed=frozenset(allowed.values()),
        program=frozenset(program.values()),
        ranks=frozenset((program | ranks).values()),
        attributes=frozenset(attributes.values()),
    )


ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": _architecture("x86_64", 0xC000003E, 1),
    "aarch64": _architecture("aarch64", 0xC00000B7, 2),
}


@cache
def architecture() -> Architecture | None:
    """Return this process's architecture, or None if it has no table here (also for a 32-bit Python)."""
    return ARCHITECTURES.get(os.uname().machine) if struct.calcsize("P") == 8 else None
