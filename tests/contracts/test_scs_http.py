"""HTTP contract of the cache service, as docs/scs.md describes it."""

import base64
import hashlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from datasets.scs.authenticators import Identity, Unavailable
from datasets.scs.config import Limits
from datasets.scs.object_index import name_of
from tests.contracts.cache_service import AUTHORIZED, Cache, cache_config, running
from tests.waiting import TIMEOUT, until

LARGE_BODY = bytes(range(256)) * 4096 * 3  # 3 MiB: several windows of the file


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    with running(cache_config(tmp_path_factory.mktemp("scs"))) as service:
        yield service


def test_a_miss_is_404_a_put_is_201_and_then_it_is_a_hit(cache: Cache) -> None:
    assert cache.get("first").status == 404
    assert cache.put("first", b"content").status == 201
    response = cache.get("first")
    assert (response.status, response.body) == (200, b"content")
    assert cache.put("first", b"other").status == 201, "a PUT is 201 whether the object is new or replaced"
    assert cache.get("first").body == b"other"


@pytest.mark.parametrize("size", [0, 1, 32 << 10, (32 << 10) + 1, 200_000, len(LARGE_BODY)])
def test_bodies_of_every_size_are_returned_unchanged(cache: Cache, size: int) -> None:
    assert cache.put(f"sized/{size}", LARGE_BODY[:size]).status == 201
    response = cache.get(f"sized/{size}")
    assert response.body == LARGE_BODY[:size] and response.headers["content-length"] == str(size)


def test_a_key_is_the_raw_target_and_nothing_else(cache: Cache) -> None:
    keys = [
        "a.b",
        "a%2eb",
        "a%2Eb",
        "x/../y",
        "y",
        "x//z",
        "x/z",
        "/x/z",
        "q?a=1",
        "q?a=2",
        "q",
        "c#d",
        "c",
        "%C3%A4",
        "%c3%a4",
        "a/./b",
    ]
    keys += [
        "file:///tmp/x/a.bin",
        "s3://undefined/bucket/key",
        "../../../../etc/passwd",
        "..%2f..%2fetc",
        "n" * 10_000,
    ]
    for number, key in enumerate(keys):
        assert cache.put(key, b"%d" % number).status == 201, key[:40]
    assert [cache.get(key).body for key in keys] == [b"%d" % number for number in range(len(keys))]
    outside = {path for path in cache.config.directory.parent.rglob("*") if cache.config.directory not in path.parents}
    assert outside <= {cache.config.directory}, "no key leaves the folder"


def test_an_absolute_target_is_the_same_object(cache: Cache) -> None:
    cache.put("absolute", b"same")
    assert cache.request("GET", f"http://127.0.0.1:{cache.port}/v1/objects/private/absolute").body == b"same"


@pytest.mark.parametrize(
    "target",
    ["/", "/v1/objects", "/v1/objects/", "/v1/objects/private", "/v1/objects/private/", "/v1/objects/unknown/x", "*"],
)
def test_a_target_that_is_not_an_object_is_404(cache: Cache, target: str) -> None:
    response = cache.request("GET", target)
    assert response.status == 404 and response.headers["content-type"] == "application/problem+json"
    assert json.loads(response.body)["status"] == 404


def test_a_head_is_a_get_without_a_body(cache: Cache) -> None:
    cache.put("headed", b"12345")
    connection = cache.connect()
    for key, status in [("headed", 200), ("nothing", 404)]:
        connection.send(f"HEAD /v1/objects/private/{key} HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}\r\n".encode())
        assert connection.answer(head_only=True).status == status
    connection.send(f"GET /v1/objects/private/headed HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}\r\n".encode())
    assert connection.answer().body == b"12345", "the next response follows directly"


@pytest.mark.parametrize(
    ("header", "status", "body", "content_range"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=8-", 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=5-" + "9" * 5000, 206, b"56789", "bytes 5-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=" + "9" * 5000 + "-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
        ("bytes=5-2", 200, b"0123456789", None),
        ("bytes=--5", 200, b"0123456789", None),
        ("bytes=-5-7", 200, b"0123456789", None),
        ("bytes=0-3,2-5", 200, b"0123456789", None),
        ("bytes=0-0," * 2000, 200, b"0123456789", None),
        ("seconds=1-2", 200, b"0123456789", None),
    ],
)
def test_only_a_single_valid_range_is_served(
    cache: Cache, header: str, status: int, body: bytes | None, content_range: str | None
) -> None:
    cache.put("ranged", b"0123456789")
    response = cache.get("ranged", headers=f"{AUTHORIZED}Range: {header}\r\n")
    assert (response.status, response.headers.get("content-range")) == (status, content_range)
    assert body is None or response.body == body


def test_a_range_of_a_large_object_is_exact(cache: Cache) -> None:
    cache.put("large", LARGE_BODY)
    response = cache.get("large", headers=f"{AUTHORIZED}Range: bytes=1000000-2500000\r\n")
    assert response.body == LARGE_BODY[1_000_000:2_500_001]


def test_conditions_are_evaluated_in_order(cache: Cache) -> None:
    etag = cache.put("conditional", b"0123456789").headers["etag"]
    assert etag == f'"{hashlib.sha256(b"0123456789").hexdigest()}"'
    date = cache.get("conditional").headers["last-modified"]
    long_ago = "Sun, 06 Nov 1994 08:49:37 GMT"
    for condition, status in [
        (f"If-None-Match: {etag}", 304),
        (f'If-None-Match: "x", W/{etag}', 304),
        ("If-None-Match: *", 304),
        ('If-None-Match: "x"', 200),
        (f'If-None-Match: "x"\r\nIf-None-Match: {etag}', 304),
        (f"If-Match: {etag}", 200),
        (f"If-Match: W/{etag}", 412),
        ('If-Match: "x"', 412),
        (f"If-Modified-Since: {date}", 304),
        (f"If-Modified-Since: {long_ago}", 200),
        ("If-Modified-Since: yesterday", 200),
        (f"If-Unmodified-Since: {long_ago}", 412),
        (f'If-None-Match: "x"\r\nIf-Modified-Since: {date}', 200),
        (f"Range: bytes=0-3\r\nIf-Range: {etag}", 206),
        (f"Range: bytes=0-3\r\nIf-Range: W/{etag}", 200),
        (f"Range: bytes=0-3\r\nIf-Range: {date}", 206),
        (f"Range: bytes=0-3\r\nIf-Range: {long_ago}", 200),
    ]:
        response = cache.get("conditional", headers=f"{AUTHORIZED}{condition}\r\n")
        assert response.status == status, condition
        assert status not in (200, 206, 304) or response.headers["etag"] == etag


def test_a_conditional_put_creates_or_replaces(cache: Cache) -> None:
    new = f"{AUTHORIZED}If-None-Match: *\r\n"
    etag = cache.put("once", b"1", headers=new).headers["etag"]
    assert cache.put("once", b"2", headers=new).status == 412
    assert cache.put("once", b"2", headers=f"{AUTHORIZED}If-Match: {etag}\r\n").status == 201
    assert cache.put("once", b"3", headers=f"{AUTHORIZED}If-Match: {etag}\r\n").status == 412
    assert cache.get("once").body == b"2"


def test_a_replaced_object_is_not_served_from_memory(cache: Cache) -> None:
    old = cache.put("replaced", b"old").headers["etag"]
    assert cache.request("HEAD", "/v1/objects/private/replaced").headers["etag"] == old
    new = cache.put("replaced", b"new").headers["etag"]
    assert cache.request("HEAD", "/v1/objects/private/replaced").headers["etag"] == new
    assert cache.get("replaced", headers=f"{AUTHORIZED}If-None-Match: {old}\r\n").status == 200


def test_an_announced_digest_is_checked(cache: Cache) -> None:
    digest = base64.b64encode(hashlib.sha256(b"whole").digest()).decode()
    assert cache.put("digested", b"whole", headers=f"{AUTHORIZED}Content-Digest: sha-256=:{digest}:\r\n").status == 201
    assert cache.put("flipped", b"whale", headers=f"{AUTHORIZED}Content-Digest: sha-256=:{digest}:\r\n").status == 400
    assert cache.put("flipped", b"whole", headers=f"{AUTHORIZED}Content-Digest: sha-256=:%%:\r\n").status == 201
    assert cache.put("broken", b"whole", headers=f"{AUTHORIZED}Content-Digest: sha-256=:abcd:\r\n").status == 400


@pytest.mark.parametrize(
    ("bucket", "method", "token", "status"),
    [
        ("public", "GET", "", 200),
        ("public", "PUT", "", 401),
        ("public", "PUT", "Authorization: Bearer stranger\r\n", 403),
        ("public", "PUT", AUTHORIZED, 201),
        ("private", "GET", "", 401),
        ("private", "GET", "Authorization: Bearer unknown-token\r\n", 401),
        ("private", "GET", "Authorization: Basic Z29vZDp0b2tlbg==\r\n", 401),
        ("private", "GET", "Authorization: Bearer\r\n", 401),
        ("private", "GET", "Authorization: Bearer two words\r\n", 401),
        ("private", "GET", "Authorization: Bearer stranger\r\n", 403),
        ("private", "GET", AUTHORIZED, 200),
        ("private", "GET", AUTHORIZED.replace("Bearer", "bearer"), 200),
    ],
)
def test_authorization_by_bucket_and_method(cache: Cache, bucket: str, method: str, token: str, status: int) -> None:
    cache.put("guarded", b"x", bucket=bucket)
    response = cache.request(method, f"/v1/objects/{bucket}/guarded", headers=token)
    assert response.status == status
    assert (response.headers.get("www-authenticate", "").startswith("Bearer")) == (status == 401)


@pytest.mark.parametrize("header", ["Origin: https://elsewhere.example", "Origin: null", "Sec-Fetch-Site: cross-site"])
def test_requests_from_web_pages_are_refused(cache: Cache, header: str) -> None:
    assert cache.get("anything", bucket="public", headers=f"{header}\r\n").status == 403


@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_405_with_allow(cache: Cache, method: str) -> None:
    response = cache.request(method, "/v1/objects/private/x")
    assert (response.status, response.headers["allow"]) == (405, "GET, HEAD, PUT")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        ("GET /v1/objects/private/x HTTP/1.1\r\n\r\n", 400),
        ("GET /v1/objects/private/x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (f"GET /v1/objects/private/x HTTP/1.1\r\nHost: a\r\n{AUTHORIZED}{AUTHORIZED}\r\n", 400),
        ("GET /v1/objects/public/x HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\nRange: bytes=0-2\r\n\r\n", 400),
        ("GET /v1/objects/public/x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 400),
        (f"PUT /v1/objects/private/x HTTP/1.1\r\nHost: a\r\n{AUTHORIZED}Transfer-Encoding: chunked\r\n\r\n", 411),
        (
            f"PUT /v1/objects/private/x HTTP/1.1\r\nHost: a\r\n{AUTHORIZED}"
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (f"PUT /v1/objects/private/x HTTP/1.1\r\nHost: a\r\n{AUTHORIZED}Content-Length: -1\r\n\r\n", 400),
        (f"PUT /v1/objects/private/x HTTP/1.1\r\nHost: a\r\n{AUTHORIZED}Content-Length: 1, 1\r\n\r\n", 400),
        (
            f"PUT /v1/objects/private/x HTTP/1.1\r\nHost: a\r\n{AUTHORIZED}"
            "Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
            400,
        ),
        (f"PUT /v1/objects/private/x HTTP/1.1\r\nHost: a\r\n{AUTHORIZED}Content-Length: 99999999999\r\n\r\n", 413),
        (f"PUT /v1/objects/private/x HTTP/1.1\r\nHost: a\r\n{AUTHORIZED}Content-Length: {'9' * 400}\r\n\r\n", 400),
        (f"PUT /v1/objects/private/x HTTP/1.1\r\nHost: a\r\n{AUTHORIZED}Content-Length: 1\r\nExpect: tea\r\n\r\n", 400),
        (f"GET /v1/objects/public/{'n' * 17_000} HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (f"GET /v1/objects/public/x HTTP/1.1\r\nHost: a\r\nX: {'y' * 60_000}\r\n\r\n", 431),
        ("GET /v1/objects/public/x HTTP/1.1\r\nHost: a\r\n" + f"X: {'y' * 1000}\r\n" * 70, 431),
        ("GET /v1/objects/public/a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /v1/objects/public/ä HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /v1/objects/public/x HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("GET /v1/objects/public/x HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    ],
)
def test_a_malformed_request_is_refused_and_the_connection_closed(cache: Cache, raw: str, status: int) -> None:
    connection = cache.connect().send(raw.encode("latin-1"))
    response = connection.answer()
    assert (response.status, response.headers["connection"]) == (status, "close")
    assert connection.ended()


def test_a_put_needs_a_length(cache: Cache) -> None:
    connection = cache.connect().send(f"PUT /v1/objects/private/x HTTP/1.1\r\nHost: a\r\n{AUTHORIZED}\r\n".encode())
    assert connection.answer().status == 411


def test_requests_may_come_in_one_piece_or_byte_by_byte(cache: Cache) -> None:
    cache.put("piped", b"small")
    cache.put("piped-large", LARGE_BODY)
    gets = "".join(
        f"GET /v1/objects/private/{key} HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}\r\n" for key in ("piped", "piped-large")
    )
    connection = cache.connect()
    threading.Thread(target=connection.send, args=(gets.encode() * 20,)).start()
    for _ in range(20):
        assert connection.answer().body == b"small"
        assert connection.answer().body == LARGE_BODY
    for number in range(len(gets)):
        connection.send(gets[number : number + 1].encode())
    assert (connection.answer().body, connection.answer().body) == (b"small", LARGE_BODY)


def test_a_put_in_the_middle_of_a_pipeline_keeps_its_place(cache: Cache) -> None:
    connection = cache.connect()
    put = f"PUT /v1/objects/private/order HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}Content-Length: %d\r\n\r\n"
    get = f"GET /v1/objects/private/order HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}\r\n".encode()
    connection.send((put % 3).encode() + b"one" + get + (put % len(LARGE_BODY)).encode() + LARGE_BODY[:1000])
    assert connection.answer().status == 201
    assert connection.answer().body == b"one"
    connection.send(LARGE_BODY[1000:] + get)
    assert connection.answer().status == 201
    assert connection.answer().body == LARGE_BODY


def test_100_continue_is_sent_only_if_the_body_is_accepted(cache: Cache) -> None:
    head = (
        "PUT /v1/objects/private/expected HTTP/1.1\r\nHost: here\r\n%sContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
    )
    connection = cache.connect().send((head % AUTHORIZED).encode())
    assert connection.answer().status == 100
    assert connection.send(b"hello").answer().status == 201
    assert cache.connect().send((head % "").encode()).answer().status == 401
    assert cache.get("expected").body == b"hello"


def test_a_refused_body_is_read_to_its_end_so_that_the_client_reads_the_error(cache: Cache) -> None:
    connection = cache.connect()
    head = f"PUT /v1/objects/private/much HTTP/1.1\r\nHost: here\r\nContent-Length: {len(LARGE_BODY) * 8}\r\n\r\n"
    connection.send(head.encode())
    for _ in range(8):
        connection.send(LARGE_BODY)
    assert connection.answer().status == 401


def test_a_body_that_is_cut_off_leaves_nothing(cache: Cache) -> None:
    before = cache.store.index.accounts()["private"]
    connection = cache.connect()
    connection.send(
        f"PUT /v1/objects/private/cut HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}Content-Length: 9999\r\n\r\n".encode()
    )
    connection.send(b"some")
    connection.close()
    assert cache.get("cut").status == 404
    until(lambda: cache.store.index.accounts()["private"] == before)
    # The index is updated before the file is deleted.
    until(lambda: not list((cache.config.directory / "temp").iterdir()))


def test_http_1_0_is_answered_once(cache: Cache) -> None:
    cache.put("old", b"x", bucket="public")
    connection = cache.connect().send(b"GET /v1/objects/public/old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    response = connection.answer()
    assert (response.status, response.headers["connection"]) == (200, "close") and connection.ended()


def test_an_upgrade_is_ignored_and_the_request_is_answered(cache: Cache) -> None:
    cache.put("upgraded", b"x", bucket="public")
    upgrade = "GET /v1/objects/public/upgraded HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert cache.connect().send(upgrade.encode()).answer().body == b"x"


def test_health_and_metrics_need_no_token(cache: Cache) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    assert (
        cache.request("GET", "/healthz", headers="").status == cache.request("GET", "/readyz", headers="").status == 200
    )
    before = samples(cache, text_string_to_metric_families)
    cache.put("counted", b"12345", bucket="public")
    cache.get("counted", bucket="public")
    cache.get("not-counted", bucket="public")
    after = samples(cache, text_string_to_metric_families)
    grown = {key: after[key] - before.get(key, 0) for key in after}
    assert grown["scs_hits_total", "public"] == grown["scs_misses_total", "public"] == 1
    assert grown["scs_sent_bytes_total", "public"] == grown["scs_used_bytes", "public"] == 5
    assert after["scs_quota_bytes", "public"] == 1 << 20


def samples(cache: Cache, parse: object) -> dict[tuple[str, str], float]:
    """Return every sample that has a bucket, by name and bucket."""
    assert callable(parse)
    page = cache.request("GET", "/metrics", headers="").body.decode()
    return {
        (sample.name, sample.labels["bucket"]): sample.value
        for family in parse(page)
        for sample in family.samples
        if "bucket" in sample.labels
    }


class SlowAuthenticator:
    """Authenticator that blocks until released, and is unavailable for the token "down"."""

    def __init__(self) -> None:
        self.calls = 0
        self.released = threading.Event()

    def authenticate(self, token: str) -> Identity | None:
        self.calls += 1
        assert self.released.wait(TIMEOUT)
        if token == "down":
            raise Unavailable("no connection")
        return Identity("team", "x", expires=time.time() - 1.0)


def test_concurrent_requests_with_a_token_share_an_authentication(tmp_path: Path) -> None:
    authenticator = SlowAuthenticator()
    with running(cache_config(tmp_path), authenticator) as cache:
        connections = [cache.connect() for _ in range(20)]
        for connection in connections:
            connection.send(f"GET /v1/objects/private/x HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}\r\n".encode())
        for _ in range(2):  # the loop reads all received requests before it answers the second
            assert cache.request("GET", "/healthz").status == 200
        authenticator.released.set()
        assert [connection.answer().status for connection in connections] == [404] * 20
        assert authenticator.calls == 1
        response = cache.get("x", headers="Authorization: Bearer down\r\n")
        assert (response.status, response.headers["retry-after"]) == (503, "1")


def test_slow_clients_are_disconnected(tmp_path: Path) -> None:
    limits = Limits(idle=1.0, head_time=1.0, stall=1.0, slowest=1 << 20)
    with running(replace(cache_config(tmp_path), limits=limits)) as cache:
        cache.put("big", LARGE_BODY * 8)
        silent, incomplete = cache.connect(), cache.connect().send(b"GET /v1/objects/private/x HTTP/1.1\r\nHos")
        not_reading = cache.connect()
        not_reading.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        not_reading.send(f"GET /v1/objects/private/big HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}\r\n".encode())
        sending = cache.connect()
        head = f"PUT /v1/objects/private/y HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}Content-Length: 99\r\n\r\n"
        sending.send(head.encode())
        assert silent.ended()
        assert incomplete.answer().status == 408
        assert sending.ended()
        until(lambda: cache.server.connections == 0)


def test_connections_beyond_the_limit_get_503(tmp_path: Path) -> None:
    with running(replace(cache_config(tmp_path), limits=Limits(connections=8))) as cache:
        connections = [cache.connect() for _ in range(8)]
        for connection in connections:
            assert connection.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").answer().status == 200
        assert cache.connect().answer().status == 503
        connections[0].close()
        until(lambda: cache.server.connections < 8)
        assert cache.request("GET", "/healthz").status == 200


def test_sixteen_puts_wait_for_each_that_is_received_and_further_ones_get_503(tmp_path: Path) -> None:
    head = f"PUT /v1/objects/private/%d HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n{AUTHORIZED}\r\n"
    with running(replace(cache_config(tmp_path), limits=Limits(writers=1))) as cache:
        waiting = []
        for number in range(17):
            waiting.append(cache.connect().send((head % number).encode()))
            until(lambda: cache.server._puts_in_progress == len(waiting))
        assert cache.put("refused", b"body").status == 503
        for connection in waiting:
            connection.send(b"body")
        assert [connection.answer().status for connection in waiting] == [201] * 17


def test_clients_that_reset_before_the_503_do_not_disturb_others(tmp_path: Path) -> None:
    with running(replace(cache_config(tmp_path), limits=Limits(connections=8))) as cache:
        connections = [cache.connect() for _ in range(8)]
        for connection in connections:
            assert connection.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").answer().status == 200
        cache.server.call(partial(time.sleep, 0.5))  # the clients connect and reset before the loop accepts
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", cache.port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for connection in connections:
            assert connection.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").answer().status == 200


@pytest.mark.parametrize("size", [5_000, len(LARGE_BODY)])
def test_a_file_outside_the_page_cache_is_read_into_memory_first(cache: Cache, size: int) -> None:
    cache.put(f"cold-{size}", LARGE_BODY[:size])
    for number in range(3):
        stored = cache.store.cached(b"/v1/objects/private/cold-%d" % size)
        if stored is not None:
            with open(stored.path, "rb+") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert cache.get(f"cold-{size}").body == LARGE_BODY[:size], number


@pytest.mark.parametrize("size", [5_000, len(LARGE_BODY)])
def test_a_truncated_file_is_never_served(cache: Cache, size: int) -> None:
    cache.put("short", LARGE_BODY[:size])
    assert cache.get("short").body == LARGE_BODY[:size]
    stored = cache.store.cached(b"/v1/objects/private/short")
    assert stored is not None
    os.truncate(stored.path, size - 1)
    assert cache.get("short").status == 404


def test_a_removed_file_is_a_miss_and_its_row_is_deleted(cache: Cache) -> None:
    cache.put("removed", b"x" * 100)
    assert cache.get("removed").status == 200
    stored = cache.store.cached(b"/v1/objects/private/removed")
    assert stored is not None
    os.unlink(stored.path)
    assert cache.get("removed").status == 404
    assert cache.store.index.get_row(stored.name) is None


def test_a_removed_file_whose_row_cannot_be_deleted_is_a_miss_and_blocks_no_request(tmp_path: Path) -> None:
    get = f"GET /v1/objects/private/removed HTTP/1.1\r\nHost: here\r\n{AUTHORIZED}\r\n".encode()
    with running(cache_config(tmp_path)) as cache:
        assert cache.put("removed", b"x" * 100).status == 201
        for file, _ in cache.store.files():
            os.unlink(cache.store.folder / file)
        writing = cache.store.index.write(lambda writer: writer)
        writing.execute("pragma query_only=on")
        try:
            connection = cache.connect().send(get)
            assert cache.request("GET", "/healthz").status == 200
            assert connection.answer().status == 404
            assert cache.store.index.get_row(name_of("private", b"removed")) is not None
        finally:
            writing.execute("pragma query_only=off")
