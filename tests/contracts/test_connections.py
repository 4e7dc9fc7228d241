"""Connections to users' object storage: read from a protected file, limited to permitted addresses, without leaks."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from common.errors import Invalid, OriginChanged, OriginFailed
from datasets.objectstore import bucket_reader, connections, open_store
from datasets.objectstore.bucket_reader import BucketReader
from datasets.objectstore.connections import Connection
from tests.s3_servers import S3Server, fresh_bucket

SECRET = "an-extremely-secret-key"


def write_config(path: Path, document: Any, mode: int = 0o600) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    path.chmod(mode)
    return path


def config_document(**values: Any) -> dict[str, Any]:
    return {"connections": {"lake": {"endpoint": "https://s3.example", "secret_key": SECRET, **values}}}


@pytest.fixture
def lake(minio: S3Server) -> Connection:
    """A connection to a real server."""
    return Connection(name="lake", endpoint=minio.endpoint, access_key=minio.access_key, secret_key=minio.secret_key)


@pytest.fixture
def bucket(minio: S3Server) -> str:
    """A user's bucket with some objects."""
    name = fresh_bucket()
    store = open_store(minio.url(name), (minio.access_key, minio.secret_key))
    for key in ("set/b", "set/a", "set/deep/c", "other/d"):
        store.put(key, [key.encode()])
    return name


# -- the file


def test_connections_are_read_by_name_and_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert connections.load(tmp_path / "none.json") == {}
    loaded = connections.load(
        write_config(tmp_path / "c.json", config_document(access_key="me", buckets=["one", "two"], region="eu-1"))
    )
    assert loaded["lake"] == Connection(
        name="lake",
        endpoint="https://s3.example",
        region="eu-1",
        access_key="me",
        secret_key=SECRET,
        buckets=("one", "two"),
    )


@pytest.mark.parametrize(
    ("listed", "projects"), [({}, ("default",)), ({"projects": ["red", "*"]}, ("red", "*")), ({"projects": []}, ())]
)
def test_a_connection_has_the_projects_that_it_lists_and_else_the_first(
    tmp_path: Path, listed: Any, projects: tuple[str, ...]
) -> None:
    loaded = connections.load(write_config(tmp_path / "c.json", config_document(**listed)))
    assert loaded["lake"].projects == projects


@pytest.mark.parametrize("projects", ["red", [1], ["Red"], [""], None, {"red": True}])
def test_projects_are_a_list_of_names(tmp_path: Path, projects: Any) -> None:
    with pytest.raises(ValueError, match="connection lake: projects are a list") as refused:
        connections.load(write_config(tmp_path / "c.json", config_document(projects=projects)))
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ValueError, match="chmod 600"):
        connections.load(write_config(tmp_path / "c.json", config_document(), mode))


@pytest.mark.parametrize(
    "document",
    [
        f'{{"connections": {{"lake": "{SECRET}',
        [SECRET],
        {"connections": [SECRET]},
        {"connections": {"lake": SECRET}},
        {"connections": {SECRET.upper(): {"endpoint": "http://a"}}},
        {"connections": {}, "password": SECRET},
        {"connections": {"lake": {"secret_key": SECRET}}},
        config_document(password=SECRET),
        config_document(secret_key=[SECRET]),
        config_document(secret_key={"value": SECRET}),
        config_document(buckets=SECRET),
        config_document(buckets=[1, SECRET]),
        config_document(region=f"a b {SECRET}"),
        config_document(endpoint=f"https://me:{SECRET}@s3.example"),
        config_document(endpoint=f"https://s3.example/{SECRET}"),
        config_document(endpoint=f"https://s3.example?{SECRET}"),
        config_document(endpoint=f"ftp://{SECRET}"),
        config_document(endpoint=f"https://s3.example:{SECRET}"),
        config_document(endpoint=SECRET),
        SECRET * 100_000,
    ],
)
def test_an_error_in_the_file_is_named_without_its_content(tmp_path: Path, document: Any) -> None:
    with pytest.raises(ValueError) as caught:
        connections.load(write_config(tmp_path / "c.json", document))
    error: BaseException | None = caught.value
    assert SECRET.lower() not in str(error).lower()
    assert caught.value.__cause__ is None and (caught.value.__suppress_context__ or caught.value.__context__ is None)


def test_a_connection_does_not_show_its_keys() -> None:
    connection = Connection(name="lake", endpoint="http://a", access_key="AKIA", secret_key=SECRET)
    assert SECRET not in f"{connection!r} {connection} {[connection]}" and "AKIA" not in repr(connection)


def test_the_error_for_an_unknown_connection_lists_the_known_connections() -> None:
    available = {"lake": Connection(name="lake", endpoint="http://a", secret_key=SECRET)}
    with pytest.raises(Invalid, match=r"'pond'.*lake"):
        connections.find(available, "pond")
    assert connections.find(available, "lake") is available["lake"]


# -- permitted endpoints and buckets


@pytest.mark.parametrize("name", ["abc", "a-b.c1", "1ab", "a" * 63])
def test_a_valid_bucket_name_is_accepted(name: str) -> None:
    assert connections.is_bucket(name)


@pytest.mark.parametrize(
    "name",
    ["", "ab", "A-b", "a_b", "-ab", "ab-", "a..b", "a.-b", "a-.b", "10.0.0.1", "a/b", "a b", "../x", "xn--ab", "a" * 64,
     "a-s3alias", "ab\n", "ä-b"],
)  # fmt: skip
def test_an_invalid_bucket_name_is_refused(name: str) -> None:
    assert not connections.is_bucket(name)
    with pytest.raises(Invalid):
        connections.check(Connection(name="lake", endpoint="http://127.0.0.1:1"), name)


def test_only_the_buckets_that_a_connection_names_may_be_read() -> None:
    connection = Connection(name="lake", endpoint="http://127.0.0.1:1", buckets=("these",))
    assert connections.check(connection, "these") == ("127.0.0.1",)
    with pytest.raises(Invalid, match="those"):
        connections.check(connection, "those")


@pytest.mark.parametrize("alias", ["127.0.0.1", "localhost"])
def test_the_platforms_own_bucket_is_refused_under_every_name_of_its_host(alias: str) -> None:
    own = Connection(name="objects", endpoint="http://127.0.0.1:9000")
    with pytest.raises(Invalid, match="own"):
        connections.check(
            Connection(name="lake", endpoint=f"http://{alias}:9000"), "own-bucket", own=[(own, "own-bucket")]
        )
    assert connections.check(
        Connection(name="lake", endpoint=f"http://{alias}:9000"), "user-bucket", own=[(own, "own-bucket")]
    )
    assert connections.check(
        Connection(name="lake", endpoint=f"http://{alias}:9001"), "own-bucket", own=[(own, "own-bucket")]
    )


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "169.254.1.1", "[fe80::1]", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "100.100.100.200",
     "0.0.0.0", "[::]", "224.0.0.1", "0xa9fea9fe", "2852039166"],
)  # fmt: skip
def test_metadata_addresses_of_clouds_are_refused(host: str) -> None:
    with pytest.raises(Invalid):
        connections.check(Connection(name="lake", endpoint=f"http://{host}:80"), "these")


def test_a_host_that_does_not_exist_is_an_error_that_calls_it_unknown() -> None:
    with pytest.raises(Invalid, match="cannot be resolved"):
        connections.check(Connection(name="lake", endpoint="http://nothing.invalid"), "these")


def test_a_name_that_resolves_to_another_address_when_used_is_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_reader, "permitted", lambda number: number != "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = Connection(
            name="lake", endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}", secret_key=SECRET
        )
        with pytest.raises(OriginFailed):
            list(BucketReader(connection).listing("these", ""))
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


# -- listing and reading


def test_a_bucket_is_listed_in_order_and_read_while_its_etag_matches(
    lake: Connection, bucket: str, minio: S3Server
) -> None:
    objects = list(BucketReader(lake).listing(bucket, "set/"))
    assert [(entry.key, entry.size) for entry in objects] == [("set/a", 5), ("set/b", 5), ("set/deep/c", 10)]
    assert b"".join(BucketReader(lake).read(bucket, "set/a", objects[0].etag)) == b"set/a"
    open_store(minio.url(bucket), (minio.access_key, minio.secret_key)).put("set/a", [b"other"])
    with pytest.raises(OriginChanged, match=f"{bucket}/set/a"):
        list(BucketReader(lake).read(bucket, "set/a", objects[0].etag))
    with pytest.raises(OriginFailed, match=f"{bucket}/set/none"):
        list(BucketReader(lake).read(bucket, "set/none"))
    with pytest.raises(OriginFailed, match="s3://"):
        list(BucketReader(lake).listing(fresh_bucket(), ""))


def test_a_long_listing_is_read_page_by_page(lake: Connection, bucket: str, minio: S3Server) -> None:
    store = open_store(minio.url(bucket, "many"), (minio.access_key, minio.secret_key))

    def fill(part: int) -> None:
        for number in range(part, 1050, 6):
            store.put(f"{number:04d}", [b"x"])

    threads = [threading.Thread(target=fill, args=(part,)) for part in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry.key for entry in BucketReader(lake).listing(bucket, "many/")] == [
        f"many/{number:04d}" for number in range(1050)
    ]


def test_wrong_keys_are_an_error_that_names_the_bucket_and_no_key(
    lake: Connection, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Connection(name="lake", endpoint=lake.endpoint, access_key="someone", secret_key=SECRET)
    for attempt in (
        lambda: list(BucketReader(wrong).listing(bucket, "set/")),
        lambda: list(BucketReader(wrong).read(bucket, "set/a")),
    ):
        with pytest.raises(OriginFailed) as caught:
            attempt()
        output = f"{caught.value!r} {caught.value.detail} {caught.value.members}"
        assert bucket in output
        for hidden in (SECRET, "someone", lake.endpoint, "X-Amz", "Signature="):
            assert hidden not in output + caplog.text


class RedirectingServer(BaseHTTPRequestHandler):
    """Server that answers every request with a redirect to a forbidden address."""

    requests: ClassVar[list[str]] = []
    target: ClassVar[str] = ""

    def do_GET(self) -> None:
        self.requests.append(self.path)
        self.send_response(307)
        self.send_header("Location", self.target)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def redirecting_server() -> Iterator[str]:
    """The endpoint of a server that redirects every request."""
    RedirectingServer.requests = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), RedirectingServer)
    RedirectingServer.target = f"http://127.0.0.1:{server.server_port}/elsewhere"
    serving = threading.Thread(target=server.serve_forever, args=(0.05,))
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    serving.join()
    server.server_close()


def test_no_redirect_is_followed(redirecting_server: str) -> None:
    connection = Connection(name="lake", endpoint=redirecting_server, access_key="me", secret_key=SECRET)
    with pytest.raises(OriginFailed):
        list(BucketReader(connection).listing("these", ""))
    with pytest.raises(OriginFailed):
        list(BucketReader(connection).read("these", "key"))
    assert RedirectingServer.requests and not any(path.startswith("/elsewhere") for path in RedirectingServer.requests)


def test_the_permissions_of_the_opened_file_are_checked(tmp_path: Path) -> None:
    target = write_config(tmp_path / "c.json", config_document(), 0o600)
    link = tmp_path / "link.json"
    os.symlink(target, link)
    assert connections.load(link)["lake"].secret_key == SECRET
    target.chmod(0o644)
    with pytest.raises(ValueError):
        connections.load(link)
