"""S3 faults: the object store returns every byte unchanged or raises StoreUnavailable, without host names."""

import logging
import random
import socket
import threading
from collections.abc import Iterator

import pytest

from common.errors import NotFound, StoreUnavailable
from datasets.objectstore import open_store
from datasets.objectstore.connection_pools import ConnectionLimits
from datasets.objectstore.connections import Connection
from datasets.objectstore.s3 import S3Store
from datasets.objectstore.s3_client import client
from tests.faulty_s3_proxy import FINAL, PASSING, Proxy, hangs_up, truncated
from tests.s3_servers import S3Server, fresh_bucket
from tests.waiting import TIMEOUT

CONTENT = random.Random(7).randbytes(3_000_000)
#: As short as a busy machine allows.
SHORT_LIMITS = ConnectionLimits(connect=5.0, read=1.0, resumptions=2)


@pytest.fixture
def bucket(minio: S3Server) -> str:
    """A bucket with one object."""
    name = fresh_bucket()
    open_store(minio.url(name), (minio.access_key, minio.secret_key)).put("a", [CONTENT])
    return name


@pytest.fixture
def proxy(minio: S3Server) -> Iterator[Proxy]:
    server = Proxy(minio.endpoint)
    yield server
    server.close()


def connection(server: S3Server, endpoint: str) -> Connection:
    return Connection(name="objects", endpoint=endpoint, access_key=server.access_key, secret_key=server.secret_key)


@pytest.fixture
def store(minio: S3Server, bucket: str, proxy: Proxy) -> Iterator[S3Store]:
    """The store, through the proxy."""
    store = S3Store(connection(minio, proxy.endpoint), bucket, limits=SHORT_LIMITS)
    yield store
    store.close()  # the proxy waits for clients that keep a connection


@pytest.mark.parametrize("name", ["truncated", "reset in mid-body", "stalled in mid-body"])
def test_an_interrupted_body_is_resumed(name: str, store: S3Store, proxy: Proxy) -> None:
    proxy.next.extend([PASSING[name], PASSING[name]])
    assert b"".join(store.get("a")) == CONTENT
    starts = [int(byte_range.removeprefix("bytes=").partition("-")[0]) for _, byte_range in proxy.requests]
    assert starts[0] == 0 < starts[1] <= starts[2]


@pytest.mark.parametrize(
    "name", ["500", "503 with Retry-After", "silent", "announces less", "announces more", "gives more", "babbles"]
)
def test_a_single_fault_loses_no_byte(name: str, store: S3Store, proxy: Proxy) -> None:
    proxy.next.append(PASSING[name])
    try:
        assert b"".join(store.get("a", 1, 2_000_000)) == CONTENT[1:2_000_001]
    except StoreUnavailable:
        assert b"".join(store.get("a", 1, 2_000_000)) == CONTENT[1:2_000_001]


@pytest.mark.parametrize("name", ["500", "truncated", "announces less", "babbles", "403", "redirects"])
def test_a_lasting_fault_is_an_error_without_secrets(
    name: str, store: S3Store, proxy: Proxy, minio: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    proxy.always = {**PASSING, **FINAL}[name]
    for attempt in (lambda: b"".join(store.get("a")), lambda: b"".join(store.get("a", 5, 2_000_000))):
        with pytest.raises(StoreUnavailable) as caught:
            attempt()
        assert caught.value.__suppress_context__
        output = f"{caught.value} {caught.value.members} {caplog.text}"
        for hidden in (minio.secret_key, minio.access_key, "Signature", "Credential"):
            assert hidden not in output
        assert proxy.endpoint not in str(caught.value)


def test_a_missing_object_differs_from_an_unavailable_store(store: S3Store, proxy: Proxy) -> None:
    with pytest.raises(NotFound):
        store.get("b")
    proxy.always = hangs_up
    for attempt in (
        lambda: store.get("b"),
        lambda: store.size("b"),
        lambda: list(store.list("")),
        lambda: store.delete("b"),
    ):
        with pytest.raises(StoreUnavailable):
            attempt()


def test_an_object_replaced_during_a_download_is_not_mixed(store: S3Store, proxy: Proxy, minio: S3Server) -> None:
    proxy.next.append(truncated)
    reading = store.get("a")
    first = next(reading)
    assert CONTENT.startswith(first)
    open_store(minio.url(store.bucket), (minio.access_key, minio.secret_key)).put("a", [CONTENT[::-1]])
    with pytest.raises(StoreUnavailable):
        list(reading)


def test_a_server_that_freezes_is_given_up_and_used_again_when_it_resumes(own_minio: S3Server) -> None:
    store = S3Store(connection(own_minio, own_minio.endpoint), fresh_bucket(), limits=SHORT_LIMITS)
    store.put("a", [b"before"])
    own_minio.freeze()
    with pytest.raises(StoreUnavailable):
        store.put("b", [b"while frozen"])
    with pytest.raises(StoreUnavailable):
        store.get("a")
    own_minio.thaw()
    store.put("c", [b"after"])
    assert b"".join(store.get("a")) == b"before"


def test_a_server_killed_and_restarted_during_a_download_loses_nothing(own_minio: S3Server) -> None:
    store = open_store(own_minio.url(fresh_bucket()), (own_minio.access_key, own_minio.secret_key))
    content = CONTENT * 12
    store.put("a", [content])
    reading = store.get("a")
    chunks = [next(reading)]
    own_minio.kill()
    reader = threading.Thread(target=lambda: chunks.extend(reading))
    reader.start()
    with socket.create_server(("127.0.0.1", own_minio.port)) as listener:
        listener.settimeout(TIMEOUT)
        listener.accept()[0].close()  # the client has retried while the server is down
    own_minio.start()
    reader.join()
    assert b"".join(chunks) == content


def test_unfinished_multipart_uploads_are_aborted(minio: S3Server) -> None:
    from datetime import UTC, datetime, timedelta

    store = S3Store(connection(minio, minio.endpoint), fresh_bucket())
    store.put("there", [b"x"])
    s3_client = client(store.connection)
    upload_id = s3_client._create_multipart_upload(store.bucket, "never", {})
    assert upload_id
    assert store.sweep(datetime.now(UTC) - timedelta(days=1)) == 0
    uploads = s3_client._list_multipart_uploads(store.bucket, prefix="never").uploads
    assert [upload.object_name for upload in uploads] == ["never"]
    assert store.sweep(datetime.now(UTC) + timedelta(minutes=1)) == 1
    assert not s3_client._list_multipart_uploads(store.bucket, prefix="never").uploads
