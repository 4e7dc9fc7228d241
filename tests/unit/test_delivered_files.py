"""Delivered files: what a sandbox passes on arrives as it was, and what a hostile one passes is refused."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes.harness.gang.delivered_files import MOST_FILES, Deliveries, Delivery, NotDeliverable, deliver, is_plain

Pair = tuple[socket.socket, Deliveries]


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    deliveries = Deliveries(there)
    with here, there:
        yield here, deliveries
    deliveries.close()


def received(deliveries: Deliveries) -> Delivery:
    while (delivery := deliveries.receive()) is None:
        continue
    return delivery


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from([f"{a}/{b}" for a in "abc" for b in range(60)]), st.binary(max_size=50)))
def test_files_arrive_as_they_were(pair: Pair, tmp_path: Path, files: dict[str, bytes]) -> None:
    folder = tmp_path / os.urandom(6).hex() / "output"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    sender, deliveries = pair
    deliver(sender, "", [(0, folder)])
    delivery = received(deliveries)
    assert {file.path: b"".join(file.chunks()) for file in delivery.files} == {
        f"output/{name}": content for name, content in files.items()
    }
    delivery.close()


def test_files_that_are_too_deep_to_be_found_are_a_problem_and_not_left_out(pair: Pair, tmp_path: Path) -> None:
    sender, deliveries = pair
    (tmp_path / "output").mkdir()
    with contextlib.ExitStack() as folders:
        place = os.open(tmp_path / "output", os.O_RDONLY)
        for _ in range(60):
            folders.callback(os.close, place)
            os.mkdir("f" * 100, dir_fd=place)
            place = os.open("f" * 100, os.O_RDONLY, dir_fd=place)
        os.close(os.open("field", os.O_CREAT | os.O_WRONLY, dir_fd=place))
        os.close(place)
    deliver(sender, "", [(0, tmp_path / "output")])
    delivery = received(deliveries)
    assert delivery.problem == f"{'f' * 60} cannot be read: File name too long"
    delivery.close()


def test_a_file_outlives_its_name(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("of rank 3")
    sender, deliveries = pair
    deliver(sender, "120", [(3, tmp_path / "state")])
    (tmp_path / "state").unlink()
    [file] = received(deliveries).files
    assert (file.rank, file.path, b"".join(file.chunks())) == (3, "state", b"of rank 3")
    file.close()


def test_a_file_that_becomes_shorter_is_noticed(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(bytes(1000))
    sender, deliveries = pair
    deliver(sender, "1", [(0, tmp_path / "state")])
    [file] = received(deliveries).files
    (tmp_path / "state").write_bytes(bytes(10))
    with pytest.raises(NotDeliverable, match="has become shorter"):
        list(file.chunks(7))
    file.close()


def test_too_many_files_are_a_problem_and_none_is_passed(pair: Pair, tmp_path: Path) -> None:
    for number in range(MOST_FILES + 1):
        (tmp_path / str(number)).touch()
    sender, deliveries = pair
    deliver(sender, "", [(0, tmp_path)])
    delivery = received(deliveries)
    assert delivery.files == [] and delivery.problem == f"there are {MOST_FILES + 1} files, and at most 500 are kept"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a\nb", "the file 'a\\nb/field' has a name that cannot be kept: use characters that print"),
        ("latest", "latest is a link, a pipe or a device"),
        ("linked", "newest is a link, a pipe or a device"),
    ],
)
def test_a_checkpoint_of_which_something_would_be_left_out_is_not_whole(
    pair: Pair, tmp_path: Path, name: str, problem: str
) -> None:
    for folder in ("a\nb", "linked", "good"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "field").write_text("1")
    (tmp_path / "empty" / "within").mkdir(parents=True)
    (tmp_path / "latest").symlink_to("good")
    (tmp_path / "linked" / "newest").symlink_to("field")
    sender, deliveries = pair
    deliver(sender, name, [(0, tmp_path / name)])
    delivery = received(deliveries)
    assert (delivery.files, delivery.problem) == ([], problem)
    deliver(sender, "good", [(0, tmp_path / "good"), (1, tmp_path / "empty")])
    whole = received(deliveries)
    assert whole.problem is None and [file.path for file in whole.files] == ["good/field"]
    whole.close()


@pytest.mark.parametrize(
    "message",
    [
        b"\x00not JSON",
        b"[" * 5000,
        b"[]",
        json.dumps({"name": "1"}).encode(),
        json.dumps({"name": "..", "files": [], "last": True, "problem": None}).encode(),
        json.dumps({"name": "1", "files": [[0, "../../etc/passwd"]], "last": True, "problem": None}).encode(),
        json.dumps({"name": "1", "files": [[0, "/etc/passwd"]], "last": True, "problem": None}).encode(),
        json.dumps({"name": "1", "files": [["0", "state"]], "last": True, "problem": None}).encode(),
        json.dumps({"name": "1", "files": [[-1, "state"]], "last": True, "problem": None}).encode(),
        json.dumps({"name": "1", "files": [[0, "a"], [0, "b"]], "last": True, "problem": None}).encode(),
        json.dumps({"name": "1", "files": [[0, "a\nb"]], "last": True, "problem": None}).encode(),
    ],
)
def test_what_a_hostile_sandbox_passes_is_refused_and_nothing_stays_open(
    pair: Pair, tmp_path: Path, message: bytes
) -> None:
    (tmp_path / "state").touch()
    sender, deliveries = pair
    before = descriptors()
    with open(tmp_path / "state") as file:
        socket.send_fds(sender, [message], [file.fileno()])
    with pytest.raises(NotDeliverable):
        deliveries.receive()
    deliveries.close()
    assert descriptors() == before


def test_a_pipe_is_not_a_file(pair: Pair) -> None:
    sender, deliveries = pair
    reading, writing = os.pipe()
    message = {"name": "1", "files": [[0, "state"]], "last": True, "problem": None}
    socket.send_fds(sender, [json.dumps(message).encode()], [reading])
    os.close(reading)
    os.close(writing)
    with pytest.raises(NotDeliverable, match="not a regular file"):
        deliveries.receive()


@given(st.text(max_size=20))
def test_a_plain_path_stays_in_its_folder(path: str) -> None:
    if is_plain(path):
        assert Path("/a/b", path).resolve().is_relative_to("/a/b") and Path("/a/b", path) != Path("/a/b")
