"""Seccomp filters of every architecture, interpreted without being installed; mounts of the private root."""

import errno
import signal
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from runtimes.harness.sandbox import seccomp, syscalls
from runtimes.harness.sandbox.namespaces import Layout, layout, without_links_in_scratch
from runtimes.harness.sandbox.syscalls import ARCHITECTURES, Architecture

ALLOWED, KILLED = seccomp.ALLOW, seccomp.KILL
REFUSED = seccomp.REFUSE | errno.EPERM
ABSENT = seccomp.REFUSE | errno.ENOSYS

EVERY_ARCHITECTURE = pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=list(ARCHITECTURES))


def run_filter(program: bytes, number: int, *arguments: int, audit_arch: int) -> int:
    """Run a filter as the kernel does, for the instructions that the filters use."""
    data = struct.pack("=IIQ6Q", number, audit_arch, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    instructions = list(struct.iter_unpack("=HBBI", program))
    position = accumulator = 0
    while True:
        operation, if_true, if_false, operand = instructions[position]
        position += 1
        if operation == seccomp.LOAD:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif operation == seccomp.RETURN:
            return int(operand)
        elif operation == seccomp.JUMP:
            position += operand
        else:
            conditions = {
                seccomp.EQUAL: accumulator == operand,
                seccomp.AT_LEAST: accumulator >= operand,
                seccomp.ANY_BIT: bool(accumulator & operand),
            }
            position += if_true if conditions[operation] else if_false


def action(architecture: Architecture, name: str, *arguments: int, may_fork: bool = False) -> int:
    return run_filter(
        seccomp.confining(architecture, may_fork=may_fork),
        architecture.numbers[name],
        *arguments,
        audit_arch=architecture.word,
    )


def sealed_action(architecture: Architecture, name: str, *arguments: int, may_fork: bool = False) -> int:
    return run_filter(
        seccomp.sealing(architecture, may_fork=may_fork),
        architecture.numbers[name],
        *arguments,
        audit_arch=architecture.word,
    )


@EVERY_ARCHITECTURE
def test_every_system_call_gets_the_action_of_its_table(architecture: Architecture) -> None:
    program = seccomp.confining(architecture, may_fork=False)
    checked = seccomp.call_blocks(architecture, may_fork=False)
    for number in range(syscalls.NEWEST + 1):
        actual = run_filter(program, number, audit_arch=architecture.word)
        if number in architecture.allowed:
            assert actual == ALLOWED, number
        elif number not in checked:
            assert actual == REFUSED, number
    assert run_filter(program, syscalls.NEWEST + 1, audit_arch=architecture.word) == ABSENT


@EVERY_ARCHITECTURE
def test_another_architecture_is_killed(architecture: Architecture) -> None:
    for program in (seccomp.confining(architecture, may_fork=False), seccomp.sealing(architecture, may_fork=False)):
        assert run_filter(program, architecture.numbers["read"], audit_arch=0x40000003) == KILLED


@EVERY_ARCHITECTURE
def test_system_calls_of_x32_are_killed(architecture: Architecture) -> None:
    program = seccomp.confining(architecture, may_fork=False)
    assert run_filter(program, 0x40000000 + architecture.numbers["read"], audit_arch=architecture.word) == KILLED


THREAD, FORK = 0x3D0F00, 0x1200011  # what the C library passes to clone


@EVERY_ARCHITECTURE
@pytest.mark.parametrize("namespace", [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000])
def test_clone_never_creates_a_namespace(architecture: Architecture, namespace: int) -> None:
    for may_fork in (False, True):
        for flags in (THREAD, FORK):
            assert action(architecture, "clone", flags | namespace, may_fork=may_fork) == REFUSED


@EVERY_ARCHITECTURE
def test_clone_creates_threads_and_children_only_where_permitted(architecture: Architecture) -> None:
    assert action(architecture, "clone", THREAD) == ALLOWED
    assert action(architecture, "clone", FORK) == REFUSED
    assert action(architecture, "clone", FORK, may_fork=True) == ALLOWED
    assert sealed_action(architecture, "clone", FORK) == REFUSED
    assert sealed_action(architecture, "clone", THREAD) == ALLOWED
    assert sealed_action(architecture, "clone", FORK, may_fork=True) == ALLOWED


@EVERY_ARCHITECTURE
def test_the_parent_death_signal_can_only_be_kill(architecture: Architecture) -> None:
    assert action(architecture, "prctl", 1, signal.SIGKILL) == ALLOWED
    assert action(architecture, "prctl", 1, 0) == REFUSED
    assert action(architecture, "prctl", 1, signal.SIGCHLD) == REFUSED


CHECKED: Sequence[tuple[str, tuple[int, ...], int]] = (
    ("prlimit64", (0, 7), ALLOWED),
    ("prlimit64", (1, 7), REFUSED),
    ("prctl", (15,), ALLOWED),
    ("prctl", (4, 1), REFUSED),  # dumpable
    ("prctl", (22, 2), REFUSED),  # seccomp by its other name
    ("ioctl", (0, 0x5401), ALLOWED),
    ("ioctl", (0, 0x5412), seccomp.REFUSE | errno.ENOTTY),  # TIOCSTI
    ("ioctl", (0, 0x8901), seccomp.REFUSE | errno.ENOTTY),  # FIOSETOWN
    ("fcntl", (3, 1030), ALLOWED),
    ("fcntl", (3, 8), seccomp.REFUSE | errno.EINVAL),  # F_SETOWN
    ("fcntl", (3, 1024), seccomp.REFUSE | errno.EINVAL),  # F_SETLEASE
    ("fcntl", (3, 6), seccomp.REFUSE | errno.EINVAL),  # F_SETLK
    ("fcntl", (3, 37), seccomp.REFUSE | errno.EINVAL),  # F_OFD_SETLK
    ("splice", (), REFUSED),
    ("pidfd_open", (), REFUSED),
    ("setsockopt", (3, 1, 7), ALLOWED),
    ("setsockopt", (3, 1, 26), seccomp.REFUSE | errno.ENOPROTOOPT),  # SO_ATTACH_FILTER
    ("socketpair", (1, 1), ALLOWED),
    ("socketpair", (1, 5 | 0o2004000), ALLOWED),
    ("socketpair", (1, 2), REFUSED),  # datagrams
    ("socketpair", (2, 1), seccomp.REFUSE | errno.EAFNOSUPPORT),
    ("clone3", (), ABSENT),
    ("openat2", (), ABSENT),
    ("flock", (), ABSENT),
    ("execve", (), ALLOWED),
    ("seccomp", (), ALLOWED),
    ("unshare", (), REFUSED),
    ("open_tree", (), REFUSED),
    ("landlock_create_ruleset", (), REFUSED),
)


@EVERY_ARCHITECTURE
@pytest.mark.parametrize(("name", "arguments", "expected"), CHECKED)
def test_arguments_of_system_calls_are_checked(
    architecture: Architecture, name: str, arguments: tuple[int, ...], expected: int
) -> None:
    assert action(architecture, name, *arguments) == expected


@EVERY_ARCHITECTURE
def test_the_seal_removes_execve_and_then_forks_and_filters(architecture: Architecture) -> None:
    for name in ("execve", "execveat"):
        assert sealed_action(architecture, name, may_fork=True) == REFUSED
        assert sealed_action(architecture, name) == REFUSED
    assert sealed_action(architecture, "seccomp", may_fork=True) == ALLOWED
    assert sealed_action(architecture, "seccomp") == REFUSED
    assert sealed_action(architecture, "read") == ALLOWED


#: A scenario's process, and another one.
OWN, OTHER = 4711, 4712

SCENARIO: Sequence[tuple[str, tuple[int, ...], int]] = (
    ("kill", (OWN, 15), ALLOWED),
    ("kill", (OWN, 9), KILLED),
    ("kill", (OWN, 2**32 + 9), KILLED),
    ("kill", (OTHER, 9), REFUSED),
    ("kill", (OTHER, 19), REFUSED),
    ("kill", (0, 19), REFUSED),
    ("kill", (2**32 - 1, 19), REFUSED),
    ("kill", (2**32 - OWN, 19), REFUSED),
    ("tgkill", (OWN, OTHER, 6), ALLOWED),
    ("tgkill", (OWN, OTHER, 9), KILLED),
    ("tgkill", (OTHER, OTHER, 6), REFUSED),
    ("rt_tgsigqueueinfo", (OWN, OWN, 9), KILLED),
    ("prlimit64", (0, 7), ALLOWED),
    ("prlimit64", (0, 0), REFUSED),
    ("rt_tgsigqueueinfo", (OTHER, OTHER, 6), REFUSED),
    ("setsockopt", (3, 1, 20), REFUSED),
    ("getsockopt", (3, 1, 20), ALLOWED),
    ("fcntl", (3, 4), ALLOWED),
    ("fcntl", (3, 1031), seccomp.REFUSE | errno.EINVAL),
    ("fcntl", (3, 37), seccomp.REFUSE | errno.EINVAL),
    ("splice", (), REFUSED),
    ("pidfd_open", (), REFUSED),
    ("mincore", (), REFUSED),
    ("fadvise64", (), REFUSED),
    ("madvise", (0, 4096, 4), ALLOWED),
    ("madvise", (0, 4096, 21), seccomp.REFUSE | errno.EINVAL),
    ("mkdirat", (3, 0, 0o777), ALLOWED),
    ("mkdirat", (3, 0, 0o700), ALLOWED),
    ("mkdirat", (3, 0, 0o300), REFUSED),
    ("mkdirat", (3, 0, 0o477), REFUSED),
    ("umask", (0o077,), ALLOWED),
    ("umask", (0o100,), REFUSED),
    ("clock_gettime", (2,), ALLOWED),
    ("clock_gettime", (2**32 - 8 * OTHER - 6,), REFUSED),
    ("execve", (), REFUSED),
    ("seccomp", (), REFUSED),
    ("read", (), ALLOWED),
)


@EVERY_ARCHITECTURE
@pytest.mark.parametrize(("name", "arguments", "expected"), SCENARIO)
def test_a_scenarios_process_cannot_reach_its_zygote(
    architecture: Architecture, name: str, arguments: tuple[int, ...], expected: int
) -> None:
    program = seccomp.with_process(seccomp.sealing(architecture, may_fork=False, scenario=True), OWN)
    assert run_filter(program, architecture.numbers[name], *arguments, audit_arch=architecture.word) == expected


@EVERY_ARCHITECTURE
def test_the_process_id_stands_in_the_filter_of_a_scenario_only(architecture: Architecture) -> None:
    template = seccomp.sealing(architecture, may_fork=False, scenario=True)
    assert seccomp.PLACEHOLDER in template
    assert seccomp.PLACEHOLDER not in seccomp.with_process(template, OWN)
    assert seccomp.PLACEHOLDER not in seccomp.sealing(architecture, may_fork=False)


@EVERY_ARCHITECTURE
def test_only_a_zygote_may_relay_output_and_wait_by_descriptor(architecture: Architecture) -> None:
    for name in ("splice", "pidfd_open"):
        assert action(architecture, name, may_fork=True) == ALLOWED
        assert sealed_action(architecture, name, may_fork=True) == ALLOWED


@EVERY_ARCHITECTURE
def test_no_two_system_calls_have_the_same_number(architecture: Architecture) -> None:
    assert len(set(architecture.numbers.values())) == len(architecture.numbers)


# --- the mounts of the private root


def test_nested_paths_are_bound_once(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    actual = layout([str(tmp_path / "a"), str(tmp_path / "a" / "b"), str(tmp_path / "a")])
    assert (actual.real, actual.links) == ((str(tmp_path / "a"),), ())


def test_a_symbolic_link_is_bound_at_its_target_and_linked_at_its_name(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    actual = layout([str(tmp_path / "link" / "deep")])
    assert actual.real == (str(tmp_path / "real" / "deep"),)
    assert actual.links == ((str(tmp_path / "link"), str(tmp_path / "real")),)


def test_a_path_with_the_same_prefix_is_not_a_subfolder(tmp_path: Path) -> None:
    for name in ("data", "database"):
        (tmp_path / name).mkdir()
    assert len(layout([str(tmp_path / "data"), str(tmp_path / "database")]).real) == 2


def test_a_symbolic_link_in_the_scratch_is_a_second_mount() -> None:
    requested = Layout(
        real=("/data/v1", "/data/v2/part", "/tmp/w/site"),
        links=(
            ("/home/link", "/data/v1"),
            ("/tmp/latest", "/data/v1"),
            ("/tmp/inside", "/data/v1/deep"),
            ("/tmp/partly", "/data/v2"),
        ),
    )
    actual = without_links_in_scratch(requested)
    assert actual.links == (("/home/link", "/data/v1"),)
    assert dict(actual.copies) == {
        "/tmp/latest": "/data/v1",
        "/tmp/inside": "/data/v1/deep",
        "/tmp/partly/part": "/data/v2/part",  # not the rest of the link's target
    }
    assert actual.sources.keys() == {*requested.real, *dict(actual.copies)}
