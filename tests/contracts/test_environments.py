"""Environments: installed once, completely or not at all, from exactly the packages of the lock."""

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtimes import catalogue
from runtimes.environments import CannotPrepare, Environment, prepare, ready
from tests.waiting import until

#: One small package of the shipped locks, with its hashes.
NOOP = catalogue.simulators()["noop"].lock
LOCK = "\n".join(
    block for block in re.split(r"^(?=[a-z0-9])", NOOP, flags=re.MULTILINE) if block.startswith("msgspec==")
)
SMALL = Environment("small", LOCK)
#: Prepares the environment in a new process, and prints the progress messages of uv.
PREPARE_PROGRAM = f"""
import sys
from pathlib import Path
from runtimes.environments import Environment, prepare
prepare(Environment("small", {LOCK!r}), Path(sys.argv[1]), lambda message, part: print(message, flush=True))
print("done", flush=True)
"""


def ignore_progress(message: str, part: float | None) -> None:
    """Ignore progress reports."""


def test_an_environment_is_a_read_only_folder_of_packages_named_by_content(tmp_path: Path) -> None:
    assert ready(SMALL, tmp_path) is None
    messages: list[tuple[str, float | None]] = []
    site = prepare(SMALL, tmp_path, lambda message, part: messages.append((message, part)))
    assert site == ready(SMALL, tmp_path) == tmp_path / SMALL.digest / "site"
    code = f"import sys; sys.path.insert(0, {str(site)!r}); import msgspec; print(msgspec.__cached__)"
    imported = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert imported.stdout.startswith(str(site))
    assert Path(imported.stdout.strip()).is_file(), "without compiled files every start would compile again"
    for path in site.rglob("*"):
        if path.is_file():
            assert path.stat().st_mode & 0o222 == 0, f"{path} may be written to"
            assert path.stat().st_nlink == 1, f"{path} is shared with a cache"
    assert messages[0][1] == 0.0 and messages[-1] == ("ready", 1.0)
    assert prepare(SMALL, tmp_path, ignore_progress) == site


def test_environments_with_the_same_package_have_its_libraries_once(tmp_path: Path) -> None:
    first = prepare(SMALL, tmp_path, ignore_progress)
    second = prepare(Environment("other", f"{LOCK}\n# of another environment\n"), tmp_path, ignore_progress)
    (library,) = first.glob("msgspec/_core*.so")
    assert second != first and library.samefile(second / library.relative_to(first))
    module = Path("msgspec", "__init__.py")
    assert (first / module).read_bytes() == (second / module).read_bytes() and not (first / module).samefile(
        second / module
    ), "small files are copies"


def test_files_in_uv_s_cache_have_the_usual_modes_whatever_the_platform_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    before = os.umask(0o077)
    try:
        prepare(SMALL, tmp_path / "environments", ignore_progress)
    finally:
        os.umask(before)
    (module,) = (tmp_path / "cache").rglob("msgspec/__init__.py")
    assert module.stat().st_mode & 0o044 == 0o044, "another environment that links to it could not be read"


def test_an_environment_that_is_prepared_concurrently_is_installed_once(tmp_path: Path) -> None:
    messages: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        sites = list(
            pool.map(lambda _: prepare(SMALL, tmp_path, lambda message, part: messages.append(message)), range(4))
        )
    assert len(set(sites)) == 1
    assert sum(message.startswith("downloading") for message in messages) == 1


@pytest.mark.parametrize("paths", [0, 1, 5])
def test_a_killed_preparation_leaves_no_usable_environment(paths: int, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PREPARE_PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("downloading")
    until(lambda: process.poll() is not None or len(list(tmp_path.glob("*/site/**/*"))) >= paths, every=0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    site = prepare(SMALL, tmp_path, ignore_progress)
    assert (site / "msgspec" / "__init__.py").is_file()
    assert not list(tmp_path.glob("*.draft"))


def test_a_package_with_another_hash_than_the_locks_is_not_installed(tmp_path: Path) -> None:
    wrong = Environment("wrong", re.sub(r"sha256:[0-9a-f]{4}", "sha256:0000", LOCK))
    with pytest.raises(CannotPrepare, match="Hash mismatch"):
        prepare(wrong, tmp_path, ignore_progress)
    assert ready(wrong, tmp_path) is None


@pytest.mark.parametrize("lock", ["msgspec==0.19.0\n", "msgspec\n"])
def test_a_lock_without_hashes_installs_nothing(lock: str, tmp_path: Path) -> None:
    with pytest.raises(CannotPrepare):
        prepare(Environment("loose", lock), tmp_path, ignore_progress)


def test_equal_locks_share_one_folder_under_any_name() -> None:
    assert Environment("a", LOCK).digest == Environment("b", LOCK).digest != Environment("a", LOCK + "\n").digest
