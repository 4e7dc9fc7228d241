"""Confined processes: exit codes, end with their parent, seals, resource limits, visible files, error messages."""

import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from attacks import USERS, SandboxFiles

Confined = Callable[..., subprocess.CompletedProcess[bytes]]

CASES = [(user, level) for user in USERS for level in (3, 2)]


@pytest.fixture(params=CASES, ids=[f"{user}-{level}" for user, level in CASES])
def case(request: pytest.FixtureRequest, best_levels: dict[str, int]) -> tuple[str, int]:
    """A user and a level, or the highest level below it that the machine has."""
    user, level = request.param
    assert best_levels[user] > 1, "This machine cannot confine at all; see docs/sandbox.md for what it needs."
    return user, min(level, best_levels[user])


@pytest.fixture
def confined(case: tuple[str, int], sandbox_files: SandboxFiles) -> Confined:
    """Runs code in a confined process."""

    def run(code: str, *, before: str = "", **confinement: object) -> subprocess.CompletedProcess[bytes]:
        arguments = {"level": case[1], **confinement}
        return sandbox_files.run(case[0], f"{before}\nreport = confine(Confinement(**{arguments!r}))\n{code}")

    return run


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may read, under /tmp, where the new root's own /tmp will be."""
    folder = Path(tempfile.mkdtemp(prefix="windtunnel-data-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def output(finished: subprocess.CompletedProcess[bytes]) -> str:
    assert finished.returncode == 0, finished.stderr.decode()
    return finished.stdout.decode().strip()


def all_writers_ended(pipe: IO[bytes]) -> bool:
    """Return whether every process that can write to the pipe ends in time."""
    poll = select.poll()  # select() takes no descriptor above 1,023, which tests beside this one may have left open
    poll.register(pipe, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(10_000)) and pipe.read() == b""


# --- ends of processes


def test_the_outer_process_exits_with_the_exit_code_of_the_confined_process(confined: Confined) -> None:
    assert confined("sys.exit(7)").returncode == 7


def test_a_signal_that_ends_the_confined_process_is_reported_outside(confined: Confined, case: tuple[str, int]) -> None:
    killed = confined("os.kill(os.getpid(), 11); os.abort()")
    # At level 2 there is no outer process; at level 3 the outer process exits like a shell, with 128 plus the signal.
    assert killed.returncode == (128 + signal.SIGSEGV if case[1] == 3 else -signal.SIGSEGV)


#: A daemon without setsid, which is refused: the end of its parent, once it is heard, is enough to be orphaned.
DAEMON = """
heard, up = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.write(1, b"daemon up")
        os.write(up, b"1")
        import time; time.sleep(120)
    os.read(heard, 1)
    os._exit(0)
os.wait()
"""


def test_killing_the_outer_process_kills_a_daemonised_grandchild(
    sandbox_files: SandboxFiles, best_levels: dict[str, int]
) -> None:
    for user in [user for user in USERS if best_levels[user] == 3]:
        code = f"confine(Confinement(level=3, may_fork=True))\n{DAEMON}\nimport time; time.sleep(120)"
        with sandbox_files.start(user, code, stdout=subprocess.PIPE) as outer:
            assert outer.stdout.read(9) == b"daemon up"
            outer.kill()
            assert all_writers_ended(outer.stdout)


def test_the_end_of_a_zygote_ends_its_daemons(sandbox_files: SandboxFiles, best_levels: dict[str, int]) -> None:
    for user in [user for user in USERS if best_levels[user] == 3]:
        finished = sandbox_files.run(user, f"confine(Confinement(level=3, may_fork=True))\n{DAEMON}")
        assert finished.stdout == b"daemon up"  # communicate returns only when the daemon has closed the pipe


def test_killing_a_zygote_kills_its_sealed_children(case: tuple[str, int], sandbox_files: SandboxFiles) -> None:
    user, level = case
    code = f"""confine(Confinement(level={level}, may_fork=True)); seal(may_fork=True)
if os.fork() == 0:
    seal(); os.write(1, b"x")
import time; time.sleep(120)"""
    with sandbox_files.start(user, code, stdout=subprocess.PIPE) as zygote:
        assert zygote.stdout is not None
        assert zygote.stdout.read(1) == b"x"
        zygote.kill()
        assert all_writers_ended(zygote.stdout)


def test_a_confined_process_dies_with_its_parent(case: tuple[str, int], sandbox_files: SandboxFiles) -> None:
    user, level = case
    code = f"""
if os.fork() == 0:
    confine(Confinement(level={level}))
    os.write(1, b"x")
import time; time.sleep(120)"""
    with sandbox_files.start(user, code, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.read(1) == b"x"
        starter.kill()
        assert all_writers_ended(starter.stdout)


# --- sealing


TRY_EXECVE = """
def execve():
    try: os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", "print('executed')"])
    except OSError as error: return error.errno
def fork():
    try: child = os.fork()
    except OSError as error: return error.errno
    if child == 0: os._exit(0)
    return os.waitpid(child, 0)[1]
"""


def test_execve_works_until_the_seal(confined: Confined) -> None:
    assert output(confined(TRY_EXECVE + "execve()")) == "executed"
    assert output(confined(TRY_EXECVE + "seal(); print(execve())")) == "1"


def test_a_child_of_a_zygote_cannot_fork_and_the_zygote_still_can(confined: Confined) -> None:
    code = """
seal(may_fork=True)
for _ in range(2):
    if (child := os.fork()) == 0:
        seal(scenario=True)
        print("child", execve(), fork(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
print("zygote", execve(), fork())
"""
    assert output(confined(TRY_EXECVE + code, may_fork=True)).split("\n") == ["child 1 1"] * 2 + ["zygote 1 0"]


def test_a_sealed_child_cannot_install_another_filter(confined: Confined) -> None:
    code = """
seal(may_fork=True)
if (child := os.fork()) == 0:
    seal()
    try: seal()
    except PermissionError: os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"""
    assert output(confined(code, may_fork=True)) == "5"


def test_a_model_server_without_forks_cannot_fork_before_the_seal_either(confined: Confined) -> None:
    assert output(confined(TRY_EXECVE + "print(fork())")) == "1"


def test_a_fork_bomb_in_a_zygote_reaches_the_limit(confined: Confined, case: tuple[str, int]) -> None:
    code = """
children = []
try:
    for _ in range(2000):
        if (child := os.fork()) == 0:
            import time; time.sleep(120)
        children.append(child)
except BlockingIOError:
    print(len(children))
for child in children: os.kill(child, 9)
"""
    limit = 20 if case[1] == 3 or case[0] == "root" else 512  # the user's other processes count too, also ending ones
    assert 10 < int(output(confined(code, may_fork=True, processes=20))) <= limit


def test_a_child_cannot_read_its_zygotes_memory(confined: Confined) -> None:
    code = """
seal(may_fork=True)
if (child := os.fork()) == 0:
    seal()
    for proc in ("/proc", "/proc/own"):
        for name in ("mem", "environ"):
            try: os.read(os.open(f"{proc}/{os.getppid()}/{name}", os.O_RDONLY), 1); print(proc, name, flush=True)
            except OSError: pass
    os._exit(0)
os.waitpid(child, 0)"""
    assert output(confined(code, may_fork=True)) == ""


def test_threads_can_still_be_started(confined: Confined) -> None:
    code = "seal(); import threading; t = threading.Thread(target=lambda: print('ran')); t.start(); t.join()"
    assert output(confined(code)) == "ran"


def test_a_thread_started_before_the_seal_is_sealed_too(confined: Confined) -> None:
    code = """
import threading
go = threading.Event()
def late():
    go.wait()
    print(execve(), flush=True)
t = threading.Thread(target=late); t.start()
seal(); go.set(); t.join()"""
    assert output(confined(TRY_EXECVE + code)) == "1"


# --- resources, files and identity of a confined process


def test_too_much_memory_is_a_memory_error(confined: Confined) -> None:
    code = """
try: bytearray(1 << 30)
except MemoryError: print("MemoryError")"""
    assert output(confined(code, memory=512 << 20)) == "MemoryError"


def test_address_space_for_libraries_is_not_memory_to_write_to(confined: Confined) -> None:
    code = """
import mmap
within = mmap.mmap(-1, 1 << 30, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
try: bytearray(1 << 30)
except MemoryError: print("MemoryError")"""
    assert output(confined(code, memory=512 << 20, libraries=1 << 30)) == "MemoryError"


def test_the_address_space_is_bounded_with_the_libraries(confined: Confined) -> None:
    """Shared mappings, and what is made read-only after it was written, are not limited as data."""
    code = """
import ctypes, mmap
libc, kept = ctypes.CDLL(None, use_errno=True), []
def read_only_again():
    data = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    kept.append(data)
    address = ctypes.addressof(ctypes.c_char.from_buffer(data))
    assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(64 << 20), mmap.PROT_READ) == 0
def shared():
    kept.append(mmap.mmap(-1, 64 << 20, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS))
for take in (read_only_again, shared):
    try:
        for _ in range(64): take()
    except OSError as error: print(take.__name__, len(kept) < 40, error.strerror)
    kept.clear()"""
    refused = "True Cannot allocate memory"
    expected = f"read_only_again {refused}\nshared {refused}"
    assert output(confined(code, memory=512 << 20, libraries=1 << 30)) == expected


def test_standard_input_is_empty_and_only_the_named_descriptors_are_open(confined: Confined) -> None:
    before = "named = os.open('/dev/zero', os.O_RDONLY); other = os.open('/dev/zero', os.O_RDONLY); assert named == 3"
    code = """
def is_open(n):
    try: os.fstat(n)
    except OSError: return False
    return True
print(os.read(0, 1), [n for n in range(100) if is_open(n)])"""
    assert output(confined(code, before=before, keep=(3,))) == "b'' [0, 1, 2, 3]"


def test_the_environment_is_the_sandbox_own(confined: Confined) -> None:
    printed = output(confined("print(dict(os.environ))", before="os.environ['TOKEN'] = 'secret'"))
    assert "TOKEN" not in printed and "'OMP_NUM_THREADS': '1'" in printed


def test_a_confined_process_is_killed_first_and_scheduled_last(confined: Confined) -> None:
    code = "print(open('/proc/self/oom_score_adj').read().strip(), os.getpriority(os.PRIO_PROCESS, 0))"
    assert output(confined(code)) == "1000 5"


def test_a_bound_path_is_visible_through_its_symbolic_link(confined: Confined, open_folder: Path) -> None:
    (open_folder / "v1").mkdir()
    (open_folder / "v1" / "data").write_text("42")
    (open_folder / "latest").symlink_to("v1")
    path = str(open_folder / "latest")
    assert output(confined(f"print(open({path!r} + '/data').read())", readonly=(path,))) == "42"


def test_a_folder_of_tmp_that_leads_to_a_bound_path_can_be_neither_written_nor_renamed(
    confined: Confined, open_folder: Path
) -> None:
    (open_folder / "real").mkdir()
    (open_folder / "real" / "data").write_text("42")
    link = Path(f"{open_folder}-link")
    link.symlink_to(open_folder / "real")
    code = f"""
def attempt(function, *arguments):
    try: function(*arguments); print("done", function.__name__, arguments)
    except OSError: pass
for folder in ({str(open_folder)!r}, {str(open_folder / "real")!r}, {str(link)!r}):
    attempt(open, folder + "/note", "w")
    attempt(os.mkdir, folder + "/note")
    attempt(os.rename, folder, "/tmp/note")
    attempt(os.unlink, folder)
    attempt(os.rmdir, folder)
print(open({str(link / "data")!r}).read())"""
    try:
        assert output(confined(code, readonly=(str(open_folder / "real"), str(link)))) == "42"
    finally:
        link.unlink()


def test_paths_that_are_not_named_do_not_exist(confined: Confined, open_folder: Path) -> None:
    (open_folder / "named").mkdir()
    (open_folder / "other").write_text("secret")
    code = f"""
try: open({str(open_folder / "other")!r})
except OSError: print("hidden")"""
    assert output(confined(code, readonly=(str(open_folder / "named"),))) == "hidden"


def test_a_path_that_does_not_exist_is_an_error_that_names_it(confined: Confined) -> None:
    failed = confined("print('confined')", readonly=("/nonexistent/model",))
    assert failed.returncode != 0 and b"/nonexistent/model" in failed.stderr and not failed.stdout


def test_a_path_that_may_not_be_read_is_named_in_the_error(
    confined: Confined, open_folder: Path, case: tuple[str, int]
) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0)
    failed = confined("print('confined')", readonly=(str(closed),))
    closed.chmod(0o700)  # so that an ordinary user's test can delete it
    assert failed.returncode != 0 and not failed.stdout
    assert str(closed).encode() in failed.stderr and b"chmod" in failed.stderr


def test_as_root_every_process_gets_its_own_user(confined: Confined, case: tuple[str, int]) -> None:
    code = "print(report.uid, os.getuid(), os.geteuid())"
    first, second = (output(confined(code)).split() for _ in range(2))
    assert len({*first}) == 1 and len({*second}) == 1
    if case[0] == "root":
        assert first != second and int(first[0]) > 100_000
    else:
        assert first == second == [str(USERS["user"])] * 3


def test_without_a_writable_tmp_no_path_is_writable_and_tmp_exists(
    sandbox_files: SandboxFiles, best_levels: dict[str, int]
) -> None:
    code = """confine(Confinement(level=3, writable_tmp_mb=0))
import tempfile
try: open("/tmp/note", "w")
except OSError as error: print(tempfile.gettempdir(), error.errno)"""
    for user in [user for user in USERS if best_levels[user] == 3]:
        assert output(sandbox_files.run(user, code)) in ("/tmp 13", "/tmp 30")


def test_each_confined_process_has_its_own_tmp(sandbox_files: SandboxFiles, best_levels: dict[str, int]) -> None:
    code = "confine(Confinement(level=3)); print(os.path.exists('/tmp/note')); open('/tmp/note', 'w').write('x')"
    for user in [user for user in USERS if best_levels[user] == 3]:
        assert [output(sandbox_files.run(user, code)) for _ in range(2)] == ["False", "False"]
        assert not os.path.exists("/tmp/note")
