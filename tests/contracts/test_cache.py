"""Client of the cache service: consistent hashing over nodes, and nodes that fail, return or answer incorrectly."""

import hashlib
import io
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from datasets.scs_client.cache_nodes import CacheNode
from datasets.scs_client.client import RETRY, NodeBackoff, SimpleCache
from datasets.scs_client.consistent_hashing import Maglev
from tests.conftest import Clock
from tests.contracts.cache_nodes import TOKEN, CacheServiceProcess, FaultyNode, open_cache, server, servers, token
from tests.ports import free_ports

__all__ = ["open_cache", "server", "servers", "token"]  # fixtures

OBJECT_COUNT = 300


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@pytest.fixture
def objects(tmp_path: Path) -> dict[str, Path]:
    """Small files and a large file, by digest; different for each test."""
    prefix = tmp_path.name.encode()
    contents = [prefix + b" %d" % number * (number % 90 + 1) for number in range(OBJECT_COUNT)]
    contents += [b"", prefix * 100_000]
    paths = {}
    for content in contents:
        path = tmp_path / digest_of(content).replace(":", "-")
        path.write_bytes(content)
        paths[digest_of(content)] = path
    return paths


def read(cache: SimpleCache, digest: str, size: int) -> bytes | None:
    target = io.BytesIO()
    return target.getvalue() if cache.get(digest, size, target) else None


def test_an_object_that_was_put_is_a_hit_and_any_other_is_a_miss(
    servers: list[CacheServiceProcess], open_cache: Callable[..., SimpleCache], objects: dict[str, Path]
) -> None:
    cache = open_cache(*(server.url for server in servers))
    for digest, path in objects.items():
        assert read(cache, digest, path.stat().st_size) is None
        cache.put(digest, path)
        assert read(cache, digest, path.stat().st_size) == path.read_bytes()
    assert cache.counts == {"misses": len(objects), "fills": len(objects), "hits": len(objects)}
    another = open_cache(*(server.url for server in reversed(servers)))
    assert all(read(another, digest, path.stat().st_size) is not None for digest, path in objects.items())


def test_after_a_node_is_killed_only_its_keys_are_misses(
    servers: list[CacheServiceProcess], open_cache: Callable[..., SimpleCache], objects: dict[str, Path], clock: Clock
) -> None:
    urls = [server.url for server in servers]
    cache, hashing = open_cache(*urls), Maglev(urls)
    for digest, path in objects.items():
        cache.put(digest, path)
    dead = servers[1]
    dead.kill()
    lost = {digest for digest in objects if hashing.owner(digest.removeprefix("sha256:")) == dead.url}
    assert 0 < len(lost) < len(objects)
    for digest, path in objects.items():
        content = read(cache, digest, path.stat().st_size)
        assert (content is None) == (digest in lost)
        if content is None:
            cache.put(digest, path)  # as staging does after a download from the origin
    assert cache.counts["errors"] == 1, "a node that is down is not tried again"
    assert all(read(cache, digest, path.stat().st_size) == path.read_bytes() for digest, path in objects.items())

    dead.start()
    dead.wait()
    clock.now += RETRY.longest
    before = cache.counts["misses"]
    assert all(read(cache, digest, path.stat().st_size) == path.read_bytes() for digest, path in objects.items())
    assert cache.counts["misses"] == before, "a node that returns still has its objects"


def test_with_all_nodes_down_every_read_is_a_miss(
    open_cache: Callable[..., SimpleCache], objects: dict[str, Path]
) -> None:
    cache = open_cache(*(f"http://127.0.0.1:{port}" for port in free_ports(2)))
    for digest, path in objects.items():
        assert read(cache, digest, path.stat().st_size) is None
        cache.put(digest, path)
    assert cache.counts == {"errors": 2}


def test_without_nodes_there_is_no_cache(open_cache: Callable[..., SimpleCache], objects: dict[str, Path]) -> None:
    cache = open_cache()
    digest, path = next(iter(objects.items()))
    assert read(cache, digest, path.stat().st_size) is None
    cache.put(digest, path)
    assert cache.counts == {}


def test_a_replaced_token_is_read_again(
    server: CacheServiceProcess, open_cache: Callable[..., SimpleCache], objects: dict[str, Path], token: Path
) -> None:
    digest, path = next(iter(objects.items()))
    token.write_text("a-wrong-token\n")
    cache = open_cache(server.url)
    cache.put(digest, path)
    assert cache.counts == {"refused": 1}
    token.write_text(TOKEN + "\n")
    cache.put(digest, path)
    assert read(cache, digest, path.stat().st_size) == path.read_bytes()
    assert cache.counts == {"refused": 1, "fills": 1, "hits": 1}


@pytest.mark.parametrize("text", ["two\nlines", "tök€n", ""])
def test_a_token_that_is_invalid_in_a_header_is_not_sent(
    server: CacheServiceProcess,
    open_cache: Callable[..., SimpleCache],
    objects: dict[str, Path],
    token: Path,
    text: str,
) -> None:
    token.write_text(text)
    digest, path = next(iter(objects.items()))
    cache = open_cache(server.url)
    cache.put(digest, path)
    assert cache.counts == {"refused": 1}


def test_a_connection_that_the_node_closed_is_reopened_without_an_error(
    server: CacheServiceProcess, open_cache: Callable[..., SimpleCache], objects: dict[str, Path]
) -> None:
    cache = open_cache(server.url)
    digest, path = next(iter(objects.items()))
    cache.put(digest, path)
    server.kill()
    server.start()
    server.wait()
    assert read(cache, digest, path.stat().st_size) == path.read_bytes()
    assert "errors" not in cache.counts


def test_an_object_of_a_wrong_size_is_a_miss_and_is_replaced(
    server: CacheServiceProcess, open_cache: Callable[..., SimpleCache], objects: dict[str, Path], tmp_path: Path
) -> None:
    digest, path = next(iter(objects.items()))
    (tmp_path / "wrong").write_bytes(b"wrong content")
    cache = open_cache(server.url)
    cache.put(digest, tmp_path / "wrong")
    assert read(cache, digest, path.stat().st_size) is None
    cache.put(digest, path)
    assert read(cache, digest, path.stat().st_size) == path.read_bytes()


def test_a_put_of_a_missing_file_is_dropped(
    server: CacheServiceProcess, open_cache: Callable[..., SimpleCache], tmp_path: Path
) -> None:
    cache = open_cache(server.url)
    cache.put(digest_of(b"missing"), tmp_path / "missing")
    assert cache.counts == {"dropped": 1}


def test_many_threads_read_and_fill_at_once(
    servers: list[CacheServiceProcess], open_cache: Callable[..., SimpleCache], objects: dict[str, Path]
) -> None:
    cache = open_cache(*(server.url for server in servers))
    wrong: list[str] = []

    def read_and_fill() -> None:
        for digest, path in objects.items():
            content = read(cache, digest, path.stat().st_size)
            if content is None:
                cache.put(digest, path)
            elif content != path.read_bytes():
                wrong.append(digest)

    threads = [threading.Thread(target=read_and_fill) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong
    assert "errors" not in cache.counts and cache.counts["hits"] > 0
    assert all(read(cache, digest, path.stat().st_size) is not None for digest, path in objects.items())


@pytest.mark.parametrize(
    ("answer", "pause"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", 0),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", 0),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", 0),
        (b"", 0),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000, 0),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", 0),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nx: y", 0.2),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", 0.4),
        (None, 0),
    ],
    ids=["cut", "busy", "no http", "nothing", "endless", "continued", "head drips", "body drips", "silent"],
)
def test_a_failing_node_is_skipped_for_a_while_and_the_next_node_is_used(
    answer: bytes | None,
    pause: float,
    server: CacheServiceProcess,
    open_cache: Callable[..., SimpleCache],
    clock: Clock,
) -> None:
    faulty_node = FaultyNode(answer, pause)
    try:
        hashing = Maglev([faulty_node.url, server.url])
        contents = (secrets.token_bytes(10) for _ in range(1000))
        content = next(
            candidate
            for candidate in contents
            if hashing.owner(digest_of(candidate).removeprefix("sha256:")) == faulty_node.url
        )
        digest = digest_of(content)
        path = server.folder / "object"
        path.write_bytes(content)
        cache = open_cache(faulty_node.url, server.url, time_out=1.5)
        target = io.BytesIO(b"before")
        target.seek(6)
        assert not cache.get(digest, 10, target)
        assert target.getvalue() == b"before" and target.tell() == 6
        assert cache.counts == {"errors": 1, "misses": 1}
        cache.put(digest, path)
        assert read(cache, digest, 10) == content
        assert faulty_node.connections == 1
        clock.now += 2
        assert read(cache, digest, 10) == content, "the node is tried again after a while, and still fails"
        assert faulty_node.connections == 2
    finally:
        faulty_node.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\n0123456789",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nContent-Length: 11\r\n\r\n0123456789",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 10\r\n\r\n0123456789",
        b"HTTP/1.1 200 OK\r\nContent-Length: -10\r\n\r\n0123456789",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999\r\n\r\n0123456789",
        b"HTTP/1.1 404 None\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 302 There\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n012345678HTTP/1.1 200 OK\r\n",
    ],
)
def test_a_response_of_ambiguous_length_or_a_redirect_is_a_miss(
    answer: bytes, open_cache: Callable[..., SimpleCache]
) -> None:
    faulty_node = FaultyNode(answer)
    try:
        cache = open_cache(faulty_node.url)
        for _ in range(2):
            assert read(cache, digest_of(b"any"), 10) is None
        assert "hits" not in cache.counts and "errors" not in cache.counts
        assert faulty_node.connections == 2, "the connection is not used again"
    finally:
        faulty_node.close()


def test_nodes_of_the_client_s_own_zone_are_preferred(
    servers: list[CacheServiceProcess], open_cache: Callable[..., SimpleCache], objects: dict[str, Path]
) -> None:
    nodes = [CacheNode(servers[0].url, "a"), CacheNode(servers[1].url, "b"), CacheNode(servers[2].url, "b")]
    near, far, nowhere = (open_cache(*nodes, zone=zone) for zone in ("a", "b", "c"))
    for digest, path in objects.items():
        near.put(digest, path)
    assert all(read(near, digest, path.stat().st_size) is not None for digest, path in objects.items())
    assert not any(read(far, digest, path.stat().st_size) is not None for digest, path in objects.items())
    hashing = Maglev([server.url for server in servers])
    for digest, path in objects.items():
        expected_hit = hashing.owner(digest.removeprefix("sha256:")) == servers[0].url
        assert (read(nowhere, digest, path.stat().st_size) is not None) == expected_hit


def test_a_failing_node_is_tried_with_exponential_back_off() -> None:
    pauses, backoff, now = [], NodeBackoff(), 100.0
    for _ in range(9):
        backoff = backoff.after_failure(now, 0.999999)
        pauses.append(round(backoff.until - now))
        now = backoff.until
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert NodeBackoff().after_failure(0, 0.0).until == 0.5, "jitter at most halves the pause"
