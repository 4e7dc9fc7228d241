"""What every object store promises."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import Corrupt, NotFound
from datasets.staging import stage
from datasets.stores import ObjectStore, open_store


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(f"file://{tmp_path / 'objects'}")


def test_what_was_put_is_there_whole_and_in_part(store: ObjectStore) -> None:
    assert store.put("a/b/c.bin", [b"hello ", b"", b"world"]) == 11
    assert b"".join(store.get("a/b/c.bin")) == b"hello world"
    assert b"".join(store.get("a/b/c.bin", 6)) == b"world"
    assert b"".join(store.get("a/b/c.bin", 3, 4)) == b"lo w"
    assert store.size("a/b/c.bin") == 11


def test_a_missing_object_is_known_before_its_first_chunk(store: ObjectStore) -> None:
    with pytest.raises(NotFound):
        store.get("nothing/here")
    with pytest.raises(NotFound):
        store.size("nothing/here")


def test_half_an_object_is_never_seen(store: ObjectStore) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionError("the line broke")

    with pytest.raises(ConnectionError):
        store.put("a/half", broken())
    assert list(store.list("")) == []


def test_deleting_twice_is_harmless(store: ObjectStore) -> None:
    store.put("a/b", [b"x"])
    store.delete("a/b")
    store.delete("a/b")
    assert list(store.list("a/")) == []


def test_keys_are_listed_by_prefix_in_order(store: ObjectStore) -> None:
    for key in ("r/2/b", "r/1/a", "r/10/c", "s/1"):
        store.put(key, [b"x"])
    assert list(store.list("r/1")) == ["r/1/a", "r/10/c"]
    assert list(store.list("r/")) == ["r/1/a", "r/10/c", "r/2/b"]


@pytest.mark.parametrize("key", ["../up", "a/../b", "/etc/passwd", "a//b", "", ".hidden", "a/.partial/b", "a\0b"])
def test_no_key_leaves_the_store(store: ObjectStore, key: str) -> None:
    with pytest.raises(ValueError):
        store.put(key, [b"x"])


def test_a_reader_keeps_what_it_opened_when_the_object_is_deleted(store: ObjectStore) -> None:
    store.put("a/b", [b"x" * 3_000_000])
    reading = store.get("a/b")
    first = next(reading)
    store.delete("a/b")
    assert len(first) + sum(map(len, reading)) == 3_000_000


def test_a_staged_file_is_verified_read_only_and_fetched_once(store: ObjectStore, tmp_path: Path) -> None:
    import hashlib

    content = b"model" * 1000
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    store.put("models/m", [content])
    found: list[Path] = []
    askers = [
        threading.Thread(target=lambda: found.append(stage(store, "models/m", digest, tmp_path / "cache")))
        for _ in range(8)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(set(found)) == 1 and len(found) == 8
    assert found[0].read_bytes() == content and found[0].stat().st_mode & 0o222 == 0


def test_bytes_that_are_not_what_their_digest_says_are_never_visible(store: ObjectStore, tmp_path: Path) -> None:
    store.put("models/m", [b"flipped"])
    with pytest.raises(Corrupt, match="models/m"):
        stage(store, "models/m", "sha256:" + "0" * 64, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir() if not path.name.endswith(".lock")] == []
