"""Contract of object stores, for each kind of store."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from common.errors import Corrupt, NotFound
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore import ObjectStore, open_store
from tests.s3_servers import S3Server, fresh_bucket


@pytest.fixture(params=["filesystem", "minio", "swift"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store of each kind."""
    if request.param == "filesystem":
        return open_store(f"file://{tmp_path / 'objects'}")
    server: S3Server = request.getfixturevalue(request.param)
    return open_store(server.url(fresh_bucket(), "under/this"), (server.access_key, server.secret_key))


def test_a_stored_object_is_read_completely_and_by_range(store: ObjectStore) -> None:
    assert store.put("a/b/c.bin", [b"hello ", b"", b"world"]) == 11
    assert b"".join(store.get("a/b/c.bin")) == b"hello world"
    assert b"".join(store.get("a/b/c.bin", 6)) == b"world"
    assert b"".join(store.get("a/b/c.bin", 3, 4)) == b"lo w"
    assert store.size("a/b/c.bin") == 11


def test_a_range_ends_with_the_object_and_a_range_behind_it_is_refused(store: ObjectStore) -> None:
    store.put("a", [b"0123456789"])
    assert b"".join(store.get("a", 8, 100)) == b"89"
    assert b"".join(store.get("a", 10)) == b""
    assert b"".join(store.get("a", 10, 5)) == b""
    assert b"".join(store.get("a", 100, 5)) == b""
    assert b"".join(store.get("a", 3, 0)) == b""
    assert b"".join(store.get("a", 0, 1)) == b"0"


def test_an_empty_object_exists(store: ObjectStore) -> None:
    assert store.put("a/empty", []) == 0
    assert b"".join(store.get("a/empty")) == b""
    assert store.size("a/empty") == 0
    assert list(store.list("a/")) == ["a/empty"]


def test_putting_the_same_object_again_is_harmless(store: ObjectStore) -> None:
    assert [store.put("a", [b"same"]) for _ in "123"] == [4, 4, 4]
    assert b"".join(store.get("a")) == b"same"


@pytest.mark.parametrize("size", [16 << 20, (16 << 20) + 1, 40_000_000])
def test_objects_of_many_parts_are_read_back_unchanged(store: ObjectStore, size: int) -> None:
    block = os.urandom(1_000_003)
    whole = (block * (size // len(block) + 1))[:size]
    cuts = range(0, size, 700_001)
    assert store.put("large", (memoryview(whole)[cut : cut + 700_001] for cut in cuts)) == size
    assert store.size("large") == size
    assert b"".join(store.get("large")) == whole
    assert b"".join(store.get("large", 17_000_000, 3)) == whole[17_000_000:17_000_003]


def test_a_missing_object_is_an_error_before_the_first_chunk(store: ObjectStore) -> None:
    store.put("something/else", [b"creates the bucket"])
    with pytest.raises(NotFound):
        store.get("nothing/here")
    with pytest.raises(NotFound):
        store.size("nothing/here")


def test_a_partial_object_is_never_visible(store: ObjectStore) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionError("the connection broke")

    with pytest.raises(ConnectionError):
        store.put("a/half", broken())
    assert list(store.list("")) == []


def test_a_partial_large_object_is_never_visible(store: ObjectStore) -> None:
    def broken() -> Iterator[bytes]:
        for _ in range(40):
            yield b"x" * 1_000_000
        raise ConnectionError("the connection broke")

    with pytest.raises(ConnectionError):
        store.put("a/half", broken())
    assert list(store.list("")) == []
    with pytest.raises(NotFound):
        store.size("a/half")


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


def test_keys_are_listed_in_byte_order_regardless_of_slashes(store: ObjectStore) -> None:
    keys = ["a-b/x", "a.b", "a/x", "a/x-y/z", "a/x.y", "a0", "aB/c", "b", "a_", "Z/z", "a/1", "a/10", "a/2"]
    for key in keys:
        store.put(key, [b"x"])
    assert list(store.list("")) == sorted(keys)
    assert list(store.list("a/")) == sorted(key for key in keys if key.startswith("a/"))
    assert list(store.list("a")) == sorted(key for key in keys if key.startswith("a"))
    assert list(store.list("nothing/")) == []


def test_listed_objects_may_be_deleted_during_the_listing(store: ObjectStore) -> None:
    for number in range(30):
        store.put(f"d/{number}", [b"x"])
    for key in store.list("d/"):
        store.delete(key)
    assert list(store.list("d/")) == []


def test_many_threads_put_and_get_at_once(store: ObjectStore) -> None:
    contents: dict[int, bytes] = {}

    def put_and_get(number: int) -> None:
        store.put(f"t/{number}", [str(number).encode() * 10_000])
        contents[number] = b"".join(store.get(f"t/{number}"))

    threads = [threading.Thread(target=put_and_get, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents == {number: str(number).encode() * 10_000 for number in range(24)}


def test_a_presigned_link_reads_and_writes_one_object_or_does_not_exist(store: ObjectStore) -> None:
    store.put("a/b", [b"0123456789"])
    link = store.link("a/b", seconds=60, filename="naïve name.txt")
    upload_link = store.link("a/new", seconds=60, verb="PUT")
    assert (link is None) == (upload_link is None)
    if link is None or upload_link is None:
        return
    with httpx.Client(trust_env=False, timeout=60) as client:
        answer = client.get(link)
        assert (answer.status_code, answer.content) == (200, b"0123456789")
        assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''na%C3%AFve%20name.txt"
        part = client.get(link, headers={"Range": "bytes=2-4"})
        assert (part.status_code, part.content) == (206, b"234")
        assert client.put(upload_link, content=b"from outside").status_code == 200
        assert client.put(link, content=b"not through a link for GET").status_code == 403
        other = urlsplit(link)._replace(path=urlsplit(link).path.replace("a/b", "a/new")).geturl()
        assert client.get(other).status_code == 403
    assert b"".join(store.get("a/new")) == b"from outside"
    assert b"".join(store.get("a/b")) == b"0123456789"


@pytest.mark.parametrize("key", ["../up", "a/../b", "/etc/passwd", "a//b", "", ".hidden", "a/.partial/b", "a\0b"])
def test_no_key_leaves_the_store(store: ObjectStore, key: str) -> None:
    for call in (
        lambda: store.put(key, [b"x"]),
        lambda: store.get(key),
        lambda: store.size(key),
        lambda: store.delete(key),
        lambda: store.link(key, seconds=1),
    ):
        with pytest.raises(ValueError):
            call()


def test_a_reader_reads_an_object_to_its_end_after_its_deletion(store: ObjectStore) -> None:
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
    cache = NodeCache(tmp_path / "cache", store, {})
    paths: list[Path] = []
    threads = [threading.Thread(target=lambda: paths.append(cache.object("models/m", digest))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1 and len(paths) == 8
    assert paths[0].read_bytes() == content and paths[0].stat().st_mode & 0o222 == 0


def test_bytes_with_a_wrong_digest_are_never_visible(store: ObjectStore, tmp_path: Path) -> None:
    store.put("models/m", [b"flipped"])
    with pytest.raises(Corrupt, match="models/m"):
        NodeCache(tmp_path / "cache", store, {}).object("models/m", "sha256:" + "0" * 64)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.stat().st_size == 7]
