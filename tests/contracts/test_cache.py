"""What whatever lies nearer than the origin promises, and what our client makes of nodes that come and go."""

import hashlib
import io
import secrets
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from datasets.scs_client.client import LONGEST, NodeBackoff, SimpleCache
from datasets.scs_client.consistent_hashing import Maglev
from datasets.scs_client.membership import CacheNode
from tests.conftest import Clock
from tests.contracts.caches import TOKEN, Liar, Server, cache_of, server, servers, token
from tests.ports import free_ports

__all__ = ["cache_of", "server", "servers", "token"]  # fixtures

MANY = 300


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@pytest.fixture
def things(tmp_path: Path) -> dict[str, Path]:
    """Small files and a large one, by digest, different ones for each test."""
    mark = tmp_path.name.encode()
    contents = [mark + b" %d" % number * (number % 90 + 1) for number in range(MANY)] + [b"", mark * 100_000]
    found = {}
    for content in contents:
        path = tmp_path / digest_of(content).replace(":", "-")
        path.write_bytes(content)
        found[digest_of(content)] = path
    return found


def read(cache: SimpleCache, digest: str, size: int) -> bytes | None:
    target = io.BytesIO()
    return target.getvalue() if cache.get(digest, size, target) else None


def test_what_was_brought_is_found_and_nothing_else(
    servers: list[Server], cache_of: Callable[..., SimpleCache], things: dict[str, Path]
) -> None:
    cache = cache_of(*(server.url for server in servers))
    for digest, path in things.items():
        assert read(cache, digest, path.stat().st_size) is None
        cache.put(digest, path)
        assert read(cache, digest, path.stat().st_size) == path.read_bytes()
    assert cache.counts == {"misses": len(things), "fills": len(things), "hits": len(things)}
    another = cache_of(*(server.url for server in reversed(servers)))
    assert all(read(another, digest, path.stat().st_size) is not None for digest, path in things.items())


def test_when_a_node_is_killed_reads_go_on_and_only_its_keys_move(
    servers: list[Server], cache_of: Callable[..., SimpleCache], things: dict[str, Path], clock: Clock
) -> None:
    urls = [server.url for server in servers]
    cache, ring = cache_of(*urls), Maglev(urls)
    for digest, path in things.items():
        cache.put(digest, path)
    dead = servers[1]
    dead.kill()
    lost = {digest for digest in things if ring.owner(digest.removeprefix("sha256:")) == dead.url}
    assert 0 < len(lost) < len(things)
    for digest, path in things.items():
        found = read(cache, digest, path.stat().st_size)
        assert (found is None) == (digest in lost)
        if found is None:
            cache.put(digest, path)  # as staging does once it has been to the origin
    assert cache.counts["errors"] == 1, "who is down is left alone"
    assert all(read(cache, digest, path.stat().st_size) == path.read_bytes() for digest, path in things.items())

    dead.start()
    dead.wait()
    clock.now += LONGEST
    before = cache.counts["misses"]
    assert all(read(cache, digest, path.stat().st_size) == path.read_bytes() for digest, path in things.items())
    assert cache.counts["misses"] == before, "a node that comes back has kept what it had"


def test_a_cache_that_is_down_is_only_a_miss(cache_of: Callable[..., SimpleCache], things: dict[str, Path]) -> None:
    cache = cache_of(*(f"http://127.0.0.1:{port}" for port in free_ports(2)))
    for digest, path in things.items():
        assert read(cache, digest, path.stat().st_size) is None
        cache.put(digest, path)
    assert cache.counts == {"errors": 2}


def test_without_nodes_there_is_no_cache(cache_of: Callable[..., SimpleCache], things: dict[str, Path]) -> None:
    cache = cache_of()
    digest, path = next(iter(things.items()))
    assert read(cache, digest, path.stat().st_size) is None
    cache.put(digest, path)
    assert cache.counts == {}


def test_a_token_that_was_replaced_is_read_again(
    server: Server, cache_of: Callable[..., SimpleCache], things: dict[str, Path], token: Path
) -> None:
    digest, path = next(iter(things.items()))
    token.write_text("a-wrong-one\n")
    cache = cache_of(server.url)
    cache.put(digest, path)
    assert cache.counts == {"refused": 1}
    token.write_text(TOKEN + "\n")
    cache.put(digest, path)
    assert read(cache, digest, path.stat().st_size) == path.read_bytes()
    assert cache.counts == {"refused": 1, "fills": 1, "hits": 1}


@pytest.mark.parametrize("text", ["two\nlines", "tök€n", ""])
def test_a_token_that_no_header_can_hold_is_not_sent(
    server: Server, cache_of: Callable[..., SimpleCache], things: dict[str, Path], token: Path, text: str
) -> None:
    token.write_text(text)
    digest, path = next(iter(things.items()))
    cache = cache_of(server.url)
    cache.put(digest, path)
    assert cache.counts == {"refused": 1}


def test_a_connection_that_the_node_closed_meanwhile_is_no_failure(
    server: Server, cache_of: Callable[..., SimpleCache], things: dict[str, Path]
) -> None:
    cache = cache_of(server.url)
    digest, path = next(iter(things.items()))
    cache.put(digest, path)
    server.kill()
    server.start()
    server.wait()
    assert read(cache, digest, path.stat().st_size) == path.read_bytes()
    assert "errors" not in cache.counts


def test_a_wrong_size_is_a_miss_and_what_is_filled_in_then_is_right(
    server: Server, cache_of: Callable[..., SimpleCache], things: dict[str, Path], tmp_path: Path
) -> None:
    digest, path = next(iter(things.items()))
    (tmp_path / "wrong").write_bytes(b"not what it should be")
    cache = cache_of(server.url)
    cache.put(digest, tmp_path / "wrong")
    assert read(cache, digest, path.stat().st_size) is None
    cache.put(digest, path)
    assert read(cache, digest, path.stat().st_size) == path.read_bytes()


def test_a_file_that_was_let_go_of_meanwhile_is_not_brought(
    server: Server, cache_of: Callable[..., SimpleCache], tmp_path: Path
) -> None:
    cache = cache_of(server.url)
    cache.put(digest_of(b"gone"), tmp_path / "gone")
    assert cache.counts == {"dropped": 1}


def test_many_threads_read_and_fill_at_once(
    servers: list[Server], cache_of: Callable[..., SimpleCache], things: dict[str, Path]
) -> None:
    cache = cache_of(*(server.url for server in servers))
    wrong: list[str] = []

    def play() -> None:
        for digest, path in things.items():
            found = read(cache, digest, path.stat().st_size)
            if found is None:
                cache.put(digest, path)
            elif found != path.read_bytes():
                wrong.append(digest)

    evaluators = [threading.Thread(target=play) for _ in range(8)]
    for evaluator in evaluators:
        evaluator.start()
    for evaluator in evaluators:
        evaluator.join(120)
    assert not wrong
    assert "errors" not in cache.counts and cache.counts["hits"] > 0
    assert all(read(cache, digest, path.stat().st_size) is not None for digest, path in things.items())


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
def test_a_node_in_trouble_is_left_alone_and_the_next_one_asked(
    answer: bytes | None, pause: float, server: Server, cache_of: Callable[..., SimpleCache], clock: Clock
) -> None:
    liar = Liar(answer, pause)
    try:
        ring = Maglev([liar.url, server.url])
        contents = (secrets.token_bytes(10) for _ in range(1000))
        content = next(one for one in contents if ring.owner(digest_of(one).removeprefix("sha256:")) == liar.url)
        digest = digest_of(content)
        brought = server.folder / "brought"
        brought.write_bytes(content)
        cache = cache_of(liar.url, server.url, time_out=1.5)
        target = io.BytesIO(b"before")
        target.seek(6)
        assert not cache.get(digest, 10, target)
        assert target.getvalue() == b"before" and target.tell() == 6
        assert cache.counts == {"errors": 1, "misses": 1}
        cache.put(digest, brought)
        assert read(cache, digest, 10) == content
        assert liar.asked == 1
        clock.now += 2
        assert read(cache, digest, 10) == content, "it is tried again after a while, and still in trouble"
        assert liar.asked == 2
    finally:
        liar.close()


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
def test_an_answer_of_unclear_length_is_not_taken_nor_is_a_redirect(
    answer: bytes, cache_of: Callable[..., SimpleCache]
) -> None:
    liar = Liar(answer)
    try:
        cache = cache_of(liar.url)
        for _ in range(2):
            assert read(cache, digest_of(b"any"), 10) is None
        assert "hits" not in cache.counts and "errors" not in cache.counts
        assert liar.asked == 2, "nor is the connection used again"
    finally:
        liar.close()


def test_nodes_of_ones_own_zone_are_asked_if_there_are_any(
    servers: list[Server], cache_of: Callable[..., SimpleCache], things: dict[str, Path]
) -> None:
    nodes = [CacheNode(servers[0].url, "a"), CacheNode(servers[1].url, "b"), CacheNode(servers[2].url, "b")]
    near, far, nowhere = (cache_of(*nodes, zone=zone) for zone in ("a", "b", "c"))
    for digest, path in things.items():
        near.put(digest, path)
    assert all(read(near, digest, path.stat().st_size) is not None for digest, path in things.items())
    assert not any(read(far, digest, path.stat().st_size) is not None for digest, path in things.items())
    everywhere = Maglev([server.url for server in servers])
    for digest, path in things.items():
        has_it = everywhere.owner(digest.removeprefix("sha256:")) == servers[0].url
        assert (read(nowhere, digest, path.stat().st_size) is not None) == has_it


def test_a_node_that_goes_on_failing_is_asked_less_and_less() -> None:
    pauses, backoff, now = [], NodeBackoff(), 100.0
    for _ in range(9):
        backoff = backoff.after_failure(now, 0.999999)
        pauses.append(round(backoff.until - now))
        now = backoff.until
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert NodeBackoff().after_failure(0, 0.0).until == 0.5, "chance halves it at most"
