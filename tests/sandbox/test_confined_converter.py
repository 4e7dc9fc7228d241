"""Confined converters: a program that a file has subverted reaches nothing but its folder, and ends at its limits."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from runtimes import confined_program
from runtimes.converters.confined_converter import ConverterLimits, ConverterResult, run

PYTHON = os.path.realpath(sys.executable)
LIMITS = ConverterLimits(seconds=20.0, largest_file=1 << 20)


def converted(folder: Path, code: str, limits: ConverterLimits = LIMITS) -> ConverterResult:
    """Run Python code as a converter would run."""
    folder.mkdir()
    folder.chmod(0o755)
    return run(
        [PYTHON, "-I", "-S", "-c", code],
        folder=folder,
        readonly=(),
        environ={"PYTHONHOME": sys.base_prefix},
        limits=limits,
        report=lambda: None,
    )


def test_a_converter_writes_to_its_folder_only(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    assert converted(folder, f"open({str(folder / 'made')!r}, 'w').write('x')").code == 0
    assert (folder / "made").read_text() == "x"
    # A /tmp of its own may be writable; it ends with the program.
    for place in (tmp_path / "outside", Path("/tmp/outside"), Path("/etc/outside")):
        converted(tmp_path / f"work-{place.parent.name}", f"open({str(place)!r}, 'w')")
        assert not place.exists()


def test_a_converter_reads_nothing_of_its_users_and_reaches_no_network(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    assert converted(tmp_path / "a", f"open({str(tmp_path / 'secret')!r})").code == 1
    connecting = "import _socket; s = _socket.socket(); s.settimeout(5); s.connect(('127.0.0.1', 1))"
    result = converted(tmp_path / "b", connecting)
    assert result.code == 1 and "refused" not in " ".join(result.lines), result


#: Counts its runs in the folder, and is killed in the first ones.
KILLED = """
import os, signal
os.close(os.open(f"FOLDER/{len(os.listdir('FOLDER'))}", os.O_CREAT))
if len(os.listdir("FOLDER")) <= RUNS:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("kills", "code"), [(0, 0), (2, 0), (9, 128 + 9)])
def test_a_converter_that_is_killed_is_run_again_a_few_times(tmp_path: Path, kills: int, code: int) -> None:
    folder = tmp_path / "work"
    result = converted(folder, KILLED.replace("FOLDER", str(folder)).replace("RUNS", str(kills)))
    assert (result.code, len(list(folder.iterdir()))) == (code, min(kills + 1, confined_program.ATTEMPTS))


@pytest.mark.parametrize(
    ("code", "limits"),
    [
        ("while True: pass", replace(LIMITS, seconds=0.5)),
        ("b = bytearray(1 << 30)", replace(LIMITS, memory=256 << 20)),
        ("f = open('FOLDER/x', 'wb')\nwhile True: f.write(bytes(1 << 16))", LIMITS),
        ("for n in range(10**9): open(f'FOLDER/{n}', 'wb').write(bytes(1000))", LIMITS),
        ("import sys\nwhile True: sys.stderr.write('x' * 5000 + chr(10))", replace(LIMITS, seconds=0.5)),
    ],
    ids=["time", "memory", "a file", "files", "output"],
)
def test_a_converter_ends_at_its_limits(tmp_path: Path, code: str, limits: ConverterLimits) -> None:
    folder = tmp_path / "work"
    result = converted(folder, code.replace("FOLDER", str(folder)), limits)
    assert result.code != 0 or result.timed_out, result
    assert result.seconds < 15.0
    assert sum(len(line) for line in result.lines) < 1 << 20
