"""Looks into folders of tasks: what is shown, and what a program that puts anything there cannot make of it."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtimes.harness.gang import looked_files
from runtimes.harness.gang.looked_files import LARGEST_PIECE, MOST_ENTRIES, Looker, LookServer, NotShown, Seen
from runtimes.harness.gang.rank import LEAST_LOG, MOST_LOG, RankLog


class ShownFolder:
    """A folder of a task, and the end of a runner that looks into it; the other end answers in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in looked_files.PLACES:
            (folder / name).mkdir(parents=True)
        self._runner, self._inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        server = LookServer(self._inside, str(folder))
        self._looker = Looker(self._runner)
        self._thread = threading.Thread(target=lambda: [None for _ in iter(server.answer, False)])
        self._thread.start()

    def list(self, path: str = "") -> dict[str, str]:
        """Return the kinds of the entries of a folder, by name."""
        return {str(entry["name"]): str(entry["kind"]) for entry in self._looker.look("list", path, 0, 0).entries}

    def look(self, kind: str, path: str, offset: int = 0, length: int = LARGEST_PIECE) -> Seen:
        return self._looker.look(kind, path, offset, length)

    def text(self, path: str, offset: int = 0, length: int = LARGEST_PIECE) -> str:
        """Return the bytes of a file."""
        return self.look("read", path, offset, length).data.decode()

    def close(self) -> None:
        self._runner.close()
        self._thread.join()
        self._inside.close()


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[ShownFolder]:
    folder = ShownFolder(tmp_path / "task")
    yield folder
    folder.close()


def test_folders_of_a_task_are_listed_and_files_are_read_from_any_position(shown: ShownFolder) -> None:
    (shown.folder / "output/case").mkdir()
    (shown.folder / "output/case/energy.csv").write_text("step,energy\n1,2.5\n")
    (shown.folder / "ranks").mkdir()
    assert list(shown.list()) == ["output", "model", "checkpoints", "logs"], "the platform's own folders are not shown"
    assert shown.list("output") == {"case": "folder"}
    assert shown.list("output/case") == {"energy.csv": "file"}
    assert shown.text("output/case/energy.csv") == "step,energy\n1,2.5\n"
    assert shown.text("output/case/energy.csv", offset=5, length=6) == "energy"
    assert shown.text("output/case/energy.csv", offset=-4) == "2.5\n"
    assert shown.text("output/case/energy.csv", offset=1000) == ""


def test_a_file_is_read_while_it_grows(shown: ShownFolder) -> None:
    with open(shown.folder / "output/log", "w") as log:
        log.write("first\n")
        log.flush()
        seen = shown.look("read", "output/log")
        log.write("second\n")
        log.flush()
        assert shown.text("output/log", offset=seen.start + len(seen.data)) == "second\n"
        assert shown.look("read", "output/log").size == len("first\nsecond\n")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../secret",
        "output/../../secret",
        "output//secret",
        "",
        "ranks/0",
        ".",
        "output/.",
        "output/a\nb",
    ],
)
def test_a_path_that_leads_elsewhere_is_not_opened(shown: ShownFolder, path: str) -> None:
    (shown.folder.parent / "secret").write_text("secret")
    with pytest.raises(NotShown):
        shown.look("read", path)


def test_links_are_not_followed_whether_they_are_of_a_file_a_folder_or_a_place(shown: ShownFolder) -> None:
    outside = shown.folder.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (shown.folder / "output/file").symlink_to(outside / "secret")
    (shown.folder / "output/folder").symlink_to(outside)
    (shown.folder / "checkpoints").rmdir()
    (shown.folder / "checkpoints").symlink_to(outside)
    (shown.folder / "output/proc").symlink_to("/proc/self")
    assert shown.list("output") == {"file": "other", "folder": "other", "proc": "other"}
    assert shown.list()["checkpoints"] == "other"
    for path in ("output/file", "output/folder/secret", "checkpoints/secret", "output/proc/environ"):
        with pytest.raises(NotShown):
            shown.look("read", path)
    for path in ("output/folder", "checkpoints", "output/proc"):
        with pytest.raises(NotShown):
            shown.look("list", path)


def test_the_folder_of_a_task_is_the_one_that_it_began_with(shown: ShownFolder) -> None:
    (shown.folder / "output/mine").write_text("mine")
    moved = shown.folder.rename(shown.folder.with_name("moved"))
    other = shown.folder / "output"
    other.mkdir(parents=True)
    (other / "mine").write_text("another's")
    assert shown.text("output/mine") == "mine"
    shown.folder = moved


def test_pipes_sockets_and_folders_are_not_read(shown: ShownFolder) -> None:
    os.mkfifo(shown.folder / "output/pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(shown.folder / "output/socket"))
        assert shown.list("output") == {"pipe": "other", "socket": "other"}
        for name in ("pipe", "socket"):
            with pytest.raises(NotShown, match="not a regular file"):
                shown.look("read", f"output/{name}")
    with pytest.raises(NotShown, match="it is a folder"):
        shown.look("read", "output")
    with pytest.raises(NotShown, match="No such file"):
        shown.look("read", "output/none")


def test_holes_of_a_huge_file_are_left_out(shown: ShownFolder) -> None:
    with open(shown.folder / "output/sparse", "wb") as sparse:
        sparse.truncate(1 << 40)
        os.pwrite(sparse.fileno(), b"far away", 1 << 39)
    seen = shown.look("read", "output/sparse")
    assert (seen.start, seen.size) == (1 << 39, 1 << 40)
    assert seen.data.startswith(b"far away") and len(seen.data) <= LARGEST_PIECE
    rest = shown.look("read", "output/sparse", offset=(1 << 39) + (1 << 20))
    assert (rest.start, rest.data) == (1 << 40, b"")


def test_an_answer_is_bounded_whatever_the_file_is(shown: ShownFolder) -> None:
    (shown.folder / "output/large").write_bytes(b"x" * (LARGEST_PIECE + 10))
    assert len(shown.look("read", "output/large", length=1 << 40).data) == LARGEST_PIECE


def test_of_a_folder_of_very_many_names_the_newest_are_shown(
    shown: ShownFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looked_files, "MOST_NAMES", 2 * MOST_ENTRIES)
    for number in range(3 * MOST_ENTRIES):
        (shown.folder / f"output/{number:06d}").touch()
    seen = shown.look("list", "output")
    assert 0 < len(seen.entries) <= MOST_ENTRIES and seen.more
    for number in range(MOST_ENTRIES + 20):
        (shown.folder / f"model/{number:06d}").touch()
        os.utime(shown.folder / f"model/{number:06d}", (number, number))
    seen = shown.look("list", "model")
    assert seen.more and seen.entries[-1]["name"] == f"{MOST_ENTRIES + 19:06d}"


def test_long_names_do_not_make_an_answer_too_long(shown: ShownFolder) -> None:
    for number in range(MOST_ENTRIES):
        (shown.folder / "output" / (f"{number:03d}" + "ä" * 120)).touch()
    seen = shown.look("list", "output")
    assert seen.more and len(json.dumps(list(seen.entries))) <= looked_files.LONGEST_LIST


def test_names_that_cannot_be_printed_are_escaped_and_cannot_be_asked_for(shown: ShownFolder) -> None:
    (shown.folder / "output/a\nb").touch()
    with open(os.fsencode(shown.folder / "output") + b"/\xff\xfe", "w"):
        pass
    assert shown.list("output") == {"a\\x0ab": "other", "\\xff\\xfe": "other"}


def test_a_late_answer_is_not_taken_for_that_to_the_next_question(tmp_path: Path) -> None:
    runner, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with runner, inside:
        looker = Looker(runner)
        for number, name in ((0, "late"), (1, "right")):
            entry = {"name": name, "kind": "file", "bytes": 0, "changed_at": 0}
            inside.send(json.dumps({"number": number, "entries": [entry], "more": False}).encode())
        assert looker.look("list", "output", 0, 0).entries[0]["name"] == "right"


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b"{",
        b'{"number": 1, "entries": [{"name": 1}]}',
        b'{"number": 1, "entries": [{"name": "x", "kind": "device", "bytes": 0, "changed_at": 0}]}',
        b'{"number": 1, "entries": [{"name": "x", "kind": "file", "bytes": -1, "changed_at": 0}]}',
        b'{"number": 1, "entries": [{"name": "x", "kind": "file", "bytes": 0, "changed_at": NaN}]}',
    ],
)
def test_a_sandbox_that_answers_something_else_shows_nothing(answer: bytes) -> None:
    runner, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with runner, inside:
        inside.send(answer)
        with pytest.raises(NotShown, match="something else"):
            Looker(runner).look("list", "", 0, 0)


@pytest.mark.parametrize("passed", ["a pipe", "nothing"])
def test_a_sandbox_that_passes_something_else_than_a_file_shows_nothing(passed: str) -> None:
    runner, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reading, writing = os.pipe()
    with runner, inside:
        socket.send_fds(inside, [b'{"number": 1}'], [reading] if passed == "a pipe" else [])
        with pytest.raises(NotShown):
            Looker(runner).look("read", "output/x", 0, 10)
    os.close(reading)
    os.close(writing)


def test_a_sandbox_that_is_gone_is_an_error_of_the_system() -> None:
    runner, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    inside.close()
    with runner, pytest.raises(OSError):
        Looker(runner).look("list", "", 0, 0)


def test_a_long_log_of_a_rank_keeps_its_end_and_its_positions(shown: ShownFolder) -> None:
    log = RankLog(str(shown.folder / "logs/0"))
    line = b"%07d of the residuals\n"
    lines = 4 * MOST_LOG // len(line % 0)
    for number in range(lines):
        log.add(line % number)
    whole = b"".join(line % number for number in range(lines))
    seen = shown.look("read", "logs/0")
    assert seen.size == len(whole)
    assert seen.start > len(whole) - MOST_LOG - 4096
    end = shown.look("read", "logs/0", offset=-LEAST_LOG // 2)
    assert end.data == whole[end.start :]
    assert os.stat(shown.folder / "logs/0").st_blocks * 512 <= MOST_LOG + 8192
