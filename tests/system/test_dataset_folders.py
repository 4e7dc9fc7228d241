"""Folders sent as datasets and brought back, by digest: only what is missing travels, also over broken connections."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.breaking_proxy import BreakingProxy
from tests.system.platform_process import PlatformProcess
from windtunnel import Client, Refused, WindtunnelError

#: Bytes of the large file of a folder: more than buffers of the kernel, which a reset of a connection empties unread.
LARGE = 24 << 20


@pytest.fixture
def proxy(platform: PlatformProcess) -> Iterator[BreakingProxy]:
    between = BreakingProxy(platform.port)
    yield between
    between.close()


@pytest.fixture
def client(proxy: BreakingProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Client]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("WINDTUNNEL_TOKEN", raising=False)
    with Client(proxy.url) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "drives"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "large.bin").write_bytes(random.Random(tmp_path.name).randbytes(LARGE))
    (root / "a b é.csv").write_text("time,speed\n0,1\n")
    (root / "empty").write_bytes(b"")
    return root


def name_of(tmp_path: Path) -> str:
    return f"folder-{abs(hash(tmp_path)):x}"


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_folder_is_sent_and_then_only_what_changed(
    client: Client, proxy: BreakingProxy, folder: Path, tmp_path: Path
) -> None:
    name = name_of(tmp_path)
    first = client.datasets.push(folder, name, tags=["gold"])
    assert (first.version, first.tags, first.registered) == ("1", ["gold"], True)
    assert LARGE < proxy.sent < LARGE * 1.1
    (folder / "new.csv").write_text("time,speed\n0,2\n")
    (folder / "empty").unlink()
    before = proxy.sent
    second = client.datasets.push(folder, name)
    assert second.version == "2" and proxy.sent - before < 20_000
    assert [change["path"] for change in client.datasets.diff(name, "1", "2")] == ["empty", "new.csv"]
    again = client.datasets.push(folder, name)
    assert (again.version, again.digest) == (second.version, second.digest)
    before = proxy.sent
    other = client.datasets.push(folder, f"{name}-copy", like=[name])
    assert other.digest == second.digest and proxy.sent - before < 20_000


def test_a_folder_comes_back_as_it_was_and_files_that_are_there_are_not_read_again(
    client: Client, proxy: BreakingProxy, folder: Path, tmp_path: Path
) -> None:
    name, copy = name_of(tmp_path), tmp_path / "copy"
    client.datasets.push(folder, name)
    assert client.datasets.pull(f"{name}@1", copy) == (3, 0)
    assert contents(copy) == contents(folder)
    (copy / "empty").write_bytes(b"no more")
    before = proxy.received
    with pytest.raises(WindtunnelError, match=r"'empty'\. Nothing was written"):
        client.datasets.pull(name, copy)
    assert client.datasets.pull(name, copy, replace=True) == (1, 2)
    assert contents(copy) == contents(folder) and proxy.received - before < 20_000


def test_a_push_over_a_connection_that_breaks_goes_on_where_it_broke(
    client: Client, proxy: BreakingProxy, folder: Path, tmp_path: Path
) -> None:
    proxy.break_after_sending(LARGE * 3 // 4)
    version = client.datasets.push(folder, name_of(tmp_path))
    assert version.state == "ready" and proxy.breaks == 1 and proxy.count("POST /v1/uploads") == 1
    assert proxy.sent < LARGE * 1.7
    copy = tmp_path / "copy"
    proxy.break_after_receiving(LARGE // 2)
    client.datasets.pull(version.name, copy)
    assert contents(copy) == contents(folder) and proxy.breaks == 2


def test_a_push_that_was_interrupted_goes_on_in_another_process(
    client: Client, proxy: BreakingProxy, folder: Path, tmp_path: Path
) -> None:
    class Interrupting(Exception):
        pass

    def interrupt(sent: int, total: int) -> None:
        if sent > total // 2:
            raise Interrupting

    with pytest.raises(Interrupting):
        client.datasets.push(folder, name_of(tmp_path), sent=interrupt)
    with Client(proxy.url) as later:
        assert later.datasets.push(folder, name_of(tmp_path)).state == "ready"
    assert proxy.sent < LARGE * 1.7


def test_a_folder_with_a_description_is_a_set_of_scenarios(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "poles"
    folder.mkdir()
    (folder / "dataset.json").write_text(json.dumps({"extends": "cartpole", "scenarios": "lines.ndjson"}))
    (folder / "lines.ndjson").write_text('{"name": "a"}\n{"name": "b"}\n')
    version = client.datasets.push(folder, name_of(tmp_path))
    assert (version.tasks, version.simulator) == (2, "gymnasium")
    assert client.run("cartpole", version.name).tasks.done == 2
    (folder / "lines.ndjson").write_text('{"unknown": 1}\n')
    with pytest.raises(WindtunnelError, match=r"cannot be registered.*unknown"):
        client.datasets.push(folder, version.name)
    assert client.datasets.get(version.name).version == "1", "the name stays the version that is ready"


def test_many_small_files_are_sent_with_a_manifest_that_is_an_upload(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(10_050):
        (folder / f"{number:05}").write_text(str(number % 100))
    version = client.datasets.push(folder, name_of(tmp_path))
    assert sum(1 for _ in client.datasets.files(version.name)) == 10_050


def test_a_name_that_cannot_be_pushed_to_is_refused(client: Client, folder: Path) -> None:
    with pytest.raises(Refused, match="cartpole"):
        client.datasets.push(folder, "cartpole")
    with pytest.raises(Refused, match="There is no dataset"):
        client.datasets.push(folder, "drives-of-nobody", like=["nowhere"])
