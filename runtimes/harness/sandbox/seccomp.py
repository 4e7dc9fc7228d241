"""Seccomp filters: an allow-list in hand-written BPF, and a smaller filter that seals it.

A filter is bytes and a pure function of the architecture, so tests can inspect both without installing them.
"""

import ctypes
import errno
import os
import resource
import signal
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from . import kernel, syscalls
from .syscalls import Architecture

#: A classic BPF instruction: code, jump if true, jump if false, operand.
Instruction = tuple[int, int, int, int]
Block = Sequence[Instruction]

LOAD, EQUAL, AT_LEAST, ANY_BIT, JUMP, RETURN, AND = 0x20, 0x15, 0x35, 0x45, 0x05, 0x06, 0x54
NUMBER, WORD = 0, 4  # offsets in struct seccomp_data
KILL, REFUSE, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000

PERMIT: Block = ((RETURN, 0, 0, ALLOW),)
DENY: Block = ((RETURN, 0, 0, REFUSE | errno.EPERM),)
ABSENT: Block = ((RETURN, 0, 0, REFUSE | errno.ENOSYS),)
NO_ATTRIBUTES: Block = ((RETURN, 0, 0, REFUSE | errno.ENOTSUP),)
FATAL: Block = ((RETURN, 0, 0, KILL),)

CLONE_THREAD = 0x00010000
CLONE_NAMESPACES = 0x7E020000  # NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET

#: PR_SET_NAME, PR_GET_NAME and PR_SET_VMA: names for threads and memory.
PRCTL = (15, 16, 0x53564D41)
#: TCGETS (isatty), FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: none of them writes characters into a terminal.
IOCTL = (0x5401, 0x541B, 0x5421, 0x5450, 0x5451)
#: Duplicating, flags and pipe sizes. Not SETOWN or SETSIG, which send signals, nor leases and dnotify, nor locks: every
#: process that may read a shared file may lock it, and the ranges of a lock are readable in all other processes.
FCNTL = (0, 1, 2, 3, 4, 1030, 1031, 1032)
#: F_ADD_SEALS, for a process that makes memory for another.
ADD_SEALS, GET_SEALS = 1033, 1034
#: F_GETLK, F_SETLK and F_SETLKW, also those of open file descriptions: programs lock the files that they write.
LOCKS = (5, 6, 7, 36, 37, 38)
#: F_SETPIPE_SZ, which a scenario's process may not use.
SETPIPE_SZ = 1031
#: SO_SNDBUF, SO_RCVBUF and their timeouts; not SO_ATTACH_FILTER.
SETSOCKOPT = (7, 8, 20, 21)
SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6 = 1, 0, 6, 41
#: The same for a program that connects, with TCP_NODELAY (1), SO_REUSEADDR (2), keep-alive (4, 5, 6, 9), SO_LINGER (13)
#: and TCP_USER_TIMEOUT (18). Not TCP_ULP, TCP_REPAIR, filters and devices.
_TCP_OPTIONS = (1, 2, 4, 5, 6, 7, 8, 9, 13, 18, 20, 21)
PROGRAM_SETSOCKOPT: Mapping[int, Sequence[int]] = {SOL_SOCKET: _TCP_OPTIONS, IPPROTO_TCP: _TCP_OPTIONS}
#: For ranks, which listen, also SO_REUSEPORT (15), timeouts of 64 bits, TCP_QUICKACK (12), TCP_INQ (36), IPV6_V6ONLY
#: (26), and to be told of errors of datagrams (11, 25), without which the C library resolves no name.
RANK_SETSOCKOPT: Mapping[int, Sequence[int]] = {
    SOL_SOCKET: (*_TCP_OPTIONS, 15, 66, 67),
    IPPROTO_TCP: (*_TCP_OPTIONS, 12, 36),
    IPPROTO_IP: (11,),
    IPPROTO_IPV6: (25, 26),
}
#: SIOCGIF...: names, flags, addresses, masks and indices of network interfaces; TIOCGWINSZ.
RANK_IOCTL = (0x8910, 0x8912, 0x8913, 0x8915, 0x891B, 0x8921, 0x8927, 0x8933, 0x5413)
#: Connects without `connect`, whose rules of Landlock it therefore passes.
MSG_FASTOPEN = 0x20000000
#: NORMAL to DONTNEED, FREE, (no) huge pages, (no) forks and dumps, POPULATE; not COLD and PAGEOUT, which choose the
#: pages of a shared file that stay in memory.
MADVISE = (0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19, 22, 23)
#: In place of the process id in a cached filter; no process has it, because ids end at 2**22.
ANY_PROCESS = 0x7FABCDEF
OPERAND = struct.Struct("=I")
PLACEHOLDER = OPERAND.pack(ANY_PROCESS)
SET_MODE_FILTER, TSYNC = 1, 1
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, NO_FAMILY = 1, 2, 10, 16, errno.EAFNOSUPPORT
SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_CLOEXEC, SOCK_NONBLOCK = 1, 2, 5, 0o2000000, 0o4000
#: The bits of a socket's type without its flags, and UDP's protocol.
SOCK_TYPE, IPPROTO_UDP = 0xF, 17


def argument(index: int) -> Instruction:
    """Load the low word of a call's argument; the kernel treats every argument tested here as an int."""
    return (LOAD, 0, 0, 16 + 8 * index)


def among(index: int, values: Sequence[int], refusal: int = errno.EPERM) -> Block:
    """Allow the call if the argument has one of these values."""
    tests = [(EQUAL, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [argument(index), *tests, (RETURN, 0, 0, REFUSE | refusal), *PERMIT]


def threads_only() -> Block:
    """Allow clone for a thread of the same process, in the same namespaces."""
    return [argument(0), (ANY_BIT, 1, 0, CLONE_NAMESPACES), (ANY_BIT, 1, 0, CLONE_THREAD), *DENY, *PERMIT]


def threads_and_forks() -> Block:
    """Allow clone for threads and children, in the same namespaces."""
    return [argument(0), (ANY_BIT, 0, 1, CLONE_NAMESPACES), *DENY, *PERMIT]


def own_limits() -> Block:
    """Allow prlimit64 on the calling process only; otherwise it could change other processes of the same user."""
    return among(0, (0,))


def harmless_prctl() -> Block:
    """Allow naming threads and memory, and PR_SET_PDEATHSIG with SIGKILL only, so that it cannot be cleared."""
    rest = among(0, PRCTL)
    death = among(1, (signal.SIGKILL,))
    return [argument(0), (EQUAL, 0, len(death), kernel.PR_SET_PDEATHSIG), *death, *rest]


def connected_pairs() -> Block:
    """Allow socketpair for AF_UNIX streams and sequenced packets.

    A datagram pair is not restricted to its peer: either end may send to any path, such as the system log's socket.
    """
    flags = (0, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_CLOEXEC | SOCK_NONBLOCK)
    kinds = among(1, [kind | flag for kind in (SOCK_STREAM, SOCK_SEQPACKET) for flag in flags])
    return [argument(0), (EQUAL, 1, 0, 1), (RETURN, 0, 0, REFUSE | errno.EAFNOSUPPORT), *kinds]


def inet_streams() -> Block:
    """Allow socket for TCP alone: Landlock has rules for TCP, and an empty network namespace for all else."""
    flags = (0, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_CLOEXEC | SOCK_NONBLOCK)
    tcp = among(2, (0, IPPROTO_TCP))  # not MPTCP or SCTP, which are streams too, and which Landlock does not restrict
    kinds = [(EQUAL, 3 - i, 0, SOCK_STREAM | flag) for i, flag in enumerate(flags)]
    families = [argument(0), (EQUAL, 2, 0, AF_INET), (EQUAL, 1, 0, AF_INET6), (RETURN, 0, 0, REFUSE | NO_FAMILY)]
    return [*families, argument(1), *((c, t + 1, f, k) for c, t, f, k in kinds), *DENY, *tcp]


def rank_sockets() -> Block:
    """Allow socket for TCP, UDP and Unix sockets, and for netlink's routes, which tell the interfaces' addresses.

    A rank's sockets reach the network namespace of its gang, which has a loopback device only.
    """
    protocols = among(2, (0, IPPROTO_TCP, IPPROTO_UDP))
    kinds = [
        argument(1),
        (AND, 0, 0, SOCK_TYPE),
        (EQUAL, 3, 0, SOCK_STREAM),
        (EQUAL, 2, 0, SOCK_DGRAM),
        (EQUAL, 1, 0, SOCK_SEQPACKET),
        *DENY,
    ]
    families = (AF_UNIX, AF_INET, AF_INET6)
    routes = among(2, (0,))
    tests = [(EQUAL, len(families) + len(routes) + 1 - i, 0, family) for i, family in enumerate(families)]
    refusal = (RETURN, 0, 0, REFUSE | NO_FAMILY)
    return [argument(0), *tests, (EQUAL, 1, 0, AF_NETLINK), refusal, *routes, *kinds, *protocols]


def socket_options(allowed: Mapping[int, Sequence[int]]) -> Block:
    """Allow setsockopt for these options, by level."""
    block = [argument(1)]
    for level, options in allowed.items():
        tests = among(2, options, errno.ENOPROTOOPT)
        block += [(EQUAL, 0, len(tests), level), *tests]
    return [*block, (RETURN, 0, 0, REFUSE | errno.ENOPROTOOPT)]


def with_bits(index: int, bits: Sequence[int]) -> Block:
    """Allow the call if the argument has all of these bits."""
    tests = [(ANY_BIT, 0, len(bits) - i, bit) for i, bit in enumerate(bits)]
    return [argument(index), *tests, *PERMIT, *DENY]


def without_bits(index: int, bits: int) -> Block:
    """Allow the call if the argument has none of these bits."""
    return [argument(index), (ANY_BIT, 0, 1, bits), *DENY, *PERMIT]


def call_blocks(
    here: Architecture, *, may_fork: bool, program: bool = False, makes_memory: bool = False, ranks: bool = False
) -> Mapping[int, Block]:
    """Return the filter block of each allowed or specially handled call, by number; all other calls are denied.

    ``program``: a program and its children, which is not sealed; it may fork, lock files, and connect to a socket.
    ``ranks``: a program that also listens, and whose processes reach each other.
    ``makes_memory``: an evaluator, which makes memory that it shares with a model server.
    """
    special = {
        "clone": threads_and_forks() if may_fork or program or ranks else threads_only(),
        "clone3": ABSENT,  # its flags are behind a pointer; the C library falls back to clone
        "openat2": ABSENT,
        "flock": ABSENT,  # also locks read-only files, so a model could block all other models
        "prlimit64": own_limits(),
        "prctl": harmless_prctl(),
        "ioctl": among(1, IOCTL, errno.ENOTTY),
        "fcntl": among(1, FCNTL, errno.EINVAL),
        "setsockopt": among(2, SETSOCKOPT, errno.ENOPROTOOPT),
        "socketpair": connected_pairs(),
        "execve": PERMIT,  # until seal()
        "execveat": PERMIT,
        "seccomp": PERMIT,
    }
    if program or ranks:
        special |= {"flock": PERMIT}
    if program:
        special |= {"fcntl": PERMIT, "setsockopt": socket_options(PROGRAM_SETSOCKOPT), "socket": inet_streams()}
        special |= {
            "sendto": without_bits(3, MSG_FASTOPEN),
            "sendmsg": without_bits(2, MSG_FASTOPEN),
            "sendmmsg": without_bits(3, MSG_FASTOPEN),
        }
    if ranks:
        special |= {"setsockopt": socket_options(RANK_SETSOCKOPT), "socket": rank_sockets(), "memfd_create": PERMIT}
        special |= {"ioctl": among(1, (*IOCTL, *RANK_IOCTL), errno.ENOTTY)}
        special |= {"fcntl": among(1, (*FCNTL, *LOCKS, ADD_SEALS, GET_SEALS), errno.EINVAL)}
    if makes_memory:
        special |= {"memfd_create": PERMIT, "fcntl": among(1, (*FCNTL, ADD_SEALS), errno.EINVAL)}
    if may_fork or program or ranks:  # a zygote also relays its children's output, and waits for their ends
        special |= {"fork": PERMIT, "vfork": PERMIT, "splice": PERMIT, "pidfd_open": PERMIT}
    if may_fork:  # and may restrict itself, and what is forked from it, further
        special |= {"landlock_create_ruleset": PERMIT, "landlock_restrict_self": PERMIT}
    named = {here.numbers[name]: block for name, block in special.items() if name in here.numbers}
    allowed = here.allowed | (here.program if program else frozenset()) | (here.ranks if ranks else frozenset())
    attributes = dict.fromkeys(here.attributes, NO_ATTRIBUTES) if ranks else {}
    return dict.fromkeys(allowed, PERMIT) | named | attributes


def tree(cases: Sequence[tuple[int, Block]]) -> Block:
    """Build a binary search over call numbers; each case begins at its number and ends before the next case.

    The kernel runs a new filter over every call number when it is installed, so its depth adds to start-up time.
    """
    if len(cases) == 1:
        return cases[0][1]
    middle = len(cases) // 2
    below, above = tree(cases[:middle]), tree(cases[middle:])
    if len(below) < 256:
        return [(AT_LEAST, len(below), 0, cases[middle][0]), *below, *above]
    return [(AT_LEAST, 0, 1, cases[middle][0]), (JUMP, 0, 0, len(below)), *below, *above]


def assemble(word: int, cases: Sequence[tuple[int, Block]]) -> bytes:
    """Prepend the architecture check to the search tree and encode it as struct sock_filter."""
    head: Block = [(LOAD, 0, 0, WORD), (EQUAL, 1, 0, word), *FATAL, (LOAD, 0, 0, NUMBER)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in [*head, *tree(cases)])


@cache
def confining(
    here: Architecture, *, may_fork: bool, program: bool = False, makes_memory: bool = False, ranks: bool = False
) -> bytes:
    """Return the first filter: the allow-list, which still permits execve and further filters."""
    blocks = call_blocks(here, may_fork=may_fork, program=program, makes_memory=makes_memory, ranks=ranks)
    cases: list[tuple[int, Block]] = []
    for number in range(syscalls.NEWEST + 1):
        block = blocks.get(number, DENY)
        if not cases or cases[-1][1] is not block:
            cases.append((number, block))
    # The numbers of the x32 ABI begin at 2**30: they are not needed, and they would pass the architecture check.
    cases += [(syscalls.NEWEST + 1, ABSENT), (1 << 30, FATAL)]
    return assemble(here.word, cases)


def own_signals(signal_index: int) -> Block:
    """Allow signals to the own process, but for SIGKILL, which ends it as SIGSYS.

    So a scenario's process that SIGKILL has ended was killed from outside: the model cannot have chosen that.
    """
    fatal: Block = [argument(signal_index), (EQUAL, 0, 1, signal.SIGKILL), *FATAL, *PERMIT]
    return [argument(0), (EQUAL, 1, 0, ANY_PROCESS), *DENY, *fatal]


def no_processor_limit() -> Block:
    """Allow prlimit64 but for RLIMIT_CPU, whose hard limit ends a process with SIGKILL."""
    return [argument(1), (EQUAL, 0, 1, resource.RLIMIT_CPU), *DENY, *PERMIT]


def scenario_blocks() -> Mapping[str, Block]:
    """Return the blocks of the calls by which a scenario's process could affect its zygote or a later scenario.

    ANY_PROCESS stands for its own process id. docs/sandbox.md lists the channels that each of them closes.
    """
    calls = ("clock_gettime", "clock_getres", "clock_nanosleep")
    return {
        "kill": own_signals(1),
        "tgkill": own_signals(2),
        "rt_tgsigqueueinfo": own_signals(2),
        "prlimit64": no_processor_limit(),
        "setsockopt": DENY,
        "fcntl": among(1, [command for command in FCNTL if command != SETPIPE_SZ], errno.EINVAL),
        "splice": DENY,
        "pidfd_open": DENY,
        "mincore": DENY,
        "fadvise64": DENY,
        "madvise": among(2, MADVISE, errno.EINVAL),
        # The zygote removes what a scenario leaves in /tmp: it has to be able to read and change every folder.
        "mkdir": with_bits(1, (0o400, 0o200, 0o100)),
        "mkdirat": with_bits(2, (0o400, 0o200, 0o100)),
        "umask": without_bits(0, 0o700),
        # A negative clock is the processor time of another process.
        **dict.fromkeys(calls, without_bits(0, 1 << 31)),
    }


@cache
def sealing(here: Architecture, *, may_fork: bool, may_execute: bool = False, scenario: bool = False) -> bytes:
    """Return the second filter: denies execve without ``may_execute``; forks and further filters without ``may_fork``.

    ``scenario``: of a zygote's child, with ANY_PROCESS in place of its process id (see `scenario_blocks`).
    """
    denied = ["execveat"] + ([] if may_execute else ["execve"]) + ([] if may_fork else ["fork", "vfork", "seccomp"])
    blocks: dict[str, Block] = dict.fromkeys(denied, DENY)
    if not may_fork:
        blocks["clone"] = threads_only()
    if scenario:
        blocks |= scenario_blocks()
    named = {here.numbers[name]: block for name, block in blocks.items() if name in here.numbers}
    cases: list[tuple[int, Block]] = [(0, PERMIT)]
    for number, block in sorted(named.items(), key=lambda case: case[0]):
        if cases[-1][0] == number:
            cases.pop()
        cases += [(number, block), (number + 1, PERMIT)]
    return assemble(here.word, cases)


def with_process(template: bytes, process: int) -> bytes:
    """Return the filter of a zygote's child, or of a program that it starts, with this process id."""
    return template.replace(PLACEHOLDER, OPERAND.pack(process))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(program: bytes) -> None:
    """Install a filter on all threads of this process irrevocably. Requires no_new_privs."""
    _check(kernel.call("seccomp", SET_MODE_FILTER, TSYNC, _Program(len(program) // 8, program)))


def _check(failed_thread: int) -> None:
    if failed_thread:
        raise OSError(errno.EBUSY, f"the filter could not be installed on thread {failed_thread}", "seccomp")


def seal(*, may_fork: bool = False, may_execute: bool = False, scenario: bool = False) -> None:
    """Drop execve, forks and further filters: call it after the libraries are loaded and before the model is opened.

    With ``may_fork`` the process keeps forks and may seal again; each child seals as a ``scenario``'s process, without
    the calls that reach its zygote or a later child, before it opens the model. ``may_execute`` keeps execve: for a
    process that becomes the model's program, and for the zygote above it. Do not call it in a process confined at
    level 1, where seccomp may not be available.
    """
    if scenario:
        scenario_seal(may_execute=may_execute)()
        return
    # The parent-death signal is not inherited, so a child forked by a zygote has to set it again.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    install(sealing(_here(), may_fork=may_fork, may_execute=may_execute))
    if may_fork:  # cached once for all later children
        for executes in {False, may_execute}:
            sealing(_here(), may_fork=False, may_execute=executes, scenario=True)


def scenario_seal(*, may_execute: bool = False) -> Callable[[], None]:
    """Return a function that seals a scenario's process; its zygote prepares all of the filter but the process id."""
    here = _here()
    template = sealing(here, may_fork=False, may_execute=may_execute, scenario=True)
    program = _Program(len(template) // 8, template)
    install = kernel.prepare_call("seccomp", SET_MODE_FILTER, TSYNC, program)
    die_with_parent = kernel.prepare_call("prctl", kernel.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def seal_scenario() -> None:
        program.filter = with_process(template, os.getpid())
        die_with_parent()
        _check(install())

    return seal_scenario


def _here() -> Architecture:
    here = syscalls.architecture()
    if here is None:
        raise OSError(errno.ENOSYS, "no system call table for this machine", "seccomp")
    return here
