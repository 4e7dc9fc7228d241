"""Staging from an origin that is slow, fails or sends wrong bytes: the right files or a clear error."""

import hashlib
import io
import logging
import random
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from common.errors import Corrupt, OriginChanged, OriginFailed, PlatformError
from datasets.download.downloader import RetryLimits
from datasets.nodecache.node_cache import DownloadProgress, NodeCache
from datasets.objectstore.connections import Connection
from datasets.objectstore.filesystem import FilesystemStore
from datasets.objectstore.s3 import S3Store
from datasets.objectstore.s3_client import client
from datasets.versions.manifest import ManifestEntry, digest_of
from tests.faulty_s3_proxy import FINAL, PASSING, Fault, Proxy, flips_a_bit, redirects, stalled, truncated
from tests.s3_servers import S3Server, fresh_bucket

#: Long enough for a machine under load, short enough for a test.
SHORT_LIMITS = RetryLimits(connect=5.0, stall=1.0, tries=4, mismatches=3, first=0.01, longest=0.05)
LARGE = 3_000_000
#: Faults after which all bytes arrive and are verified.
WITHOUT_LOSS = {"slow to begin", "announces more", "gives more"}


class Origin:
    """A bucket in MinIO, reached through a proxy."""

    def __init__(self, minio: S3Server, tmp_path: Path, tls: ssl.SSLContext | None = None) -> None:
        self.proxy = Proxy(minio.endpoint, tls)
        self.bucket = fresh_bucket()
        keys = {"access_key": minio.access_key, "secret_key": minio.secret_key}
        self.secret = minio.secret_key
        direct = Connection(name="direct", endpoint=minio.endpoint, **keys)
        self.store = S3Store(direct, self.bucket)
        self.connection = Connection(name="flaky", endpoint=self.proxy.endpoint, **keys)
        self.client = client(direct)
        self.folder = tmp_path / "cache"
        self.platform_store = FilesystemStore(tmp_path / "objects")

    def put(self, key: str, content: bytes) -> ManifestEntry:
        """Store an object and return its entry, as a registration by reference does."""
        self.store.put(key, [content])
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        source = f"s3:flaky/{self.bucket}/{key}"
        return ManifestEntry(
            path=key, size=len(content), digest=digest, source=source, offset=0, etag=hashlib.md5(content).hexdigest()
        )

    def stage(self, entries: list[ManifestEntry], retry_limits: RetryLimits = SHORT_LIMITS) -> Path:
        """Stage the dataset."""
        cache = NodeCache(self.folder, self.platform_store, {"flaky": self.connection}, retry_limits=retry_limits)
        return cache.tree(digest_of(entries), lambda: iter(entries), holder="sim")

    def has_no_complete_entry(self) -> bool:
        """Return whether the cache has no entry that is marked complete."""
        return not list(self.folder.glob("trees/*")) and not list(self.folder.glob("objects/*"))


@pytest.fixture
def origin(minio: S3Server, tmp_path: Path) -> Iterator[Origin]:
    origin = Origin(minio, tmp_path)
    yield origin
    origin.proxy.close()


@pytest.mark.parametrize("size", [7_000, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("name", PASSING)
def test_transient_faults_are_retried(name: str, size: int, origin: Origin) -> None:
    content = random.Random(name).randbytes(size)
    entry = origin.put("a/file.bin", content)
    origin.proxy.next.append(PASSING[name])
    assert (origin.stage([entry]) / "a/file.bin").read_bytes() == content
    assert not list((origin.folder / "partial").iterdir())


@pytest.mark.parametrize("name", [name for name in (*PASSING, *FINAL) if name not in WITHOUT_LOSS])
def test_permanent_faults_are_a_clear_error(name: str, origin: Origin, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    entry = origin.put("a/file.bin", b"content" * 1000)
    caplog.clear()
    origin.proxy.always = {**PASSING, **FINAL}[name]
    retry_limits = RetryLimits(connect=5.0, stall=1.0, tries=2, mismatches=2, first=0.01, longest=0.05)
    with pytest.raises((OriginFailed, Corrupt)) as caught:
        origin.stage([entry], retry_limits)
    assert origin.has_no_complete_entry()
    output = str(caught.value) + repr(caught.value.members) + caplog.text
    assert f"s3://{origin.bucket}/a/file.bin" in str(caught.value)
    for secret in (origin.secret, "Credential", "Signature", "Authorization", "http://"):
        assert secret not in output
    assert len(origin.proxy.requests) == (1 if name in FINAL else 2)


def test_an_interrupted_download_resumes(origin: Origin) -> None:
    content = random.Random(1).randbytes(LARGE)
    entry = origin.put("file.bin", content)
    origin.proxy.next.extend([truncated, truncated])
    assert (origin.stage([entry]) / "file.bin").read_bytes() == content
    starts = [int(byte_range.removeprefix("bytes=").split("-")[0]) for _, byte_range in origin.proxy.requests]
    assert starts[0] == 0 < starts[1] < starts[2]


def test_a_connection_that_breaks_often_but_makes_progress_is_not_given_up(origin: Origin) -> None:
    content = random.Random(2).randbytes(5 * LARGE)
    entry = origin.put("file.bin", content)
    origin.proxy.next.extend([truncated] * 3)
    retry_limits = RetryLimits(connect=5.0, stall=5.0, tries=2, first=0.01, longest=0.05)
    assert (origin.stage([entry], retry_limits) / "file.bin").read_bytes() == content


def test_progress_is_reported_within_a_large_file(origin: Origin) -> None:
    content = random.Random(3).randbytes(LARGE)
    entry = origin.put("file.bin", content)
    origin.proxy.next.extend([stalled, flips_a_bit])
    cache = NodeCache(origin.folder, origin.platform_store, {"flaky": origin.connection}, retry_limits=SHORT_LIMITS)
    reports: list[DownloadProgress] = []
    cache.tree(digest_of([entry]), lambda: iter([entry]), holder="sim", on_progress=reports.append)
    assert any(0 < progress.bytes < LARGE and progress.files == 0 for progress in reports)
    assert (reports[-1].bytes, reports[-1].files) == (LARGE, 1), "bytes that were downloaded twice count once"


def test_a_changed_object_is_detected_before_any_byte_of_it_is_used(origin: Origin) -> None:
    entries = [origin.put("a", b"as registered"), origin.put("b", b"original")]
    origin.store.put("b", [b"changed!"])
    with pytest.raises(OriginChanged, match=f"s3://{origin.bucket}/b"):
        origin.stage(entries)
    assert origin.has_no_complete_entry()


def test_a_truncated_object_is_detected_without_an_etag(origin: Origin) -> None:
    entry = origin.put("a", b"as registered")
    without_etag = ManifestEntry(entry.path, entry.size, entry.digest, entry.source)
    origin.store.put("a", [b"short"])
    with pytest.raises((OriginFailed, OriginChanged), match=f"s3://{origin.bucket}/a"):
        origin.stage([without_etag])
    assert origin.has_no_complete_entry()


def test_keys_with_any_characters_are_requested_unchanged(origin: Origin) -> None:
    keys = ["a b+c&d=e?f#g.bin", "ünï/çödé.bin", "x..y/.z", "100%25/$@!*'(),;:~_-.bin"]
    origin.put("first", b"makes the bucket")
    entries = []
    for key in sorted(keys, key=str.encode):
        content = key.encode() * 10
        origin.client.put_object(origin.bucket, key, io.BytesIO(content), len(content))
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        entries.append(ManifestEntry(key, len(content), digest, f"s3:flaky/{origin.bucket}/{key}"))
    tree = origin.stage(entries)
    assert {key: (tree / key).read_bytes() for key in keys} == {key: key.encode() * 10 for key in keys}


def test_a_hanging_download_does_not_delay_other_downloads(origin: Origin) -> None:
    entries = [origin.put(f"{number}", b"x" * 5000) for number in range(12)]
    origin.proxy.next.extend([stalled, redirects])
    start = time.monotonic()
    with pytest.raises(PlatformError):
        origin.stage(entries)
    assert time.monotonic() - start < 60
    assert origin.has_no_complete_entry()


def test_a_certificate_is_accepted_if_this_machine_trusts_it(
    minio: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "certificate.pem"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own_certificate(certificate))
    origin = Origin(minio, tmp_path, tls)
    try:
        entry = origin.put("a", b"a" * 1000)
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(OriginFailed, match="certificate"):
            origin.stage([entry])
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert (origin.stage([entry]) / "a").read_bytes() == b"a" * 1000
    finally:
        origin.proxy.close()


def test_metadata_addresses_are_not_requested(origin: Origin) -> None:
    entry = origin.put("a", b"a" * 1000)
    origin.connection = Connection(name="flaky", endpoint="http://169.254.169.254")
    with pytest.raises(OriginFailed, match=f"s3://{origin.bucket}/a: no connection"):
        origin.stage([entry])


def test_a_bucket_that_its_connection_no_longer_names_is_not_requested(origin: Origin) -> None:
    entry = origin.put("a", b"a" * 1000)
    allowed = origin.connection
    origin.connection = replace(allowed, buckets=("another",))
    with pytest.raises(OriginFailed, match=f"s3://{origin.bucket}/a: no connection may read it"):
        origin.stage([entry])
    assert not origin.proxy.requests and origin.has_no_complete_entry()
    origin.connection = replace(allowed, buckets=("another", origin.bucket))
    assert (origin.stage([entry]) / "a").read_bytes() == b"a" * 1000


def test_objects_of_the_platforms_store_are_not_read_through_a_connection(origin: Origin) -> None:
    entry = origin.put("a", b"a" * 1000)
    cache = NodeCache(origin.folder, origin.store, {"flaky": replace(origin.store.connection, name="flaky")})
    with pytest.raises(OriginFailed, match="the platform's own"):
        cache.tree(digest_of([entry]), lambda: iter([entry]), holder="sim")
    own = replace(entry, source="store:a", etag=None)
    assert (cache.tree(digest_of([own]), lambda: iter([own]), holder="sim") / "a").read_bytes() == b"a" * 1000


def test_many_small_files_are_staged_over_a_faulty_connection(origin: Origin) -> None:
    files = {f"{number:03d}": random.Random(number).randbytes(3000) for number in range(150)}
    entries = [origin.put(key, content) for key, content in files.items()]
    quick = [PASSING[name] for name in ("500", "truncated", "reset in mid-body", "hangs up", "flips a bit")]
    origin.proxy.next.extend([*quick, *quick, *[None] * 20] * 3)
    tree = origin.stage(entries, replace(SHORT_LIMITS, tries=20, mismatches=20))
    assert {key: (tree / key).read_bytes() for key in files} == files
    assert len(origin.proxy.requests) >= 150 + 30


@pytest.mark.parametrize("seed", range(3))
def test_under_any_faults_a_dataset_is_correct_or_absent(seed: int, origin: Origin) -> None:
    rng = random.Random(seed)
    files = {f"d{number % 3}/{number:03d}": rng.randbytes(rng.choice([0, 10, 9_000, 400_000])) for number in range(30)}
    entries = sorted(
        (origin.put(key, content) for key, content in files.items()), key=lambda entry: entry.path.encode()
    )
    quick = [
        fault
        for name, fault in PASSING.items()
        if name not in {"silent", "stalled in mid-body", "503 with Retry-After"}
    ]
    faults: list[Fault | None] = [*quick, *quick, *[None] * 60]
    rng.shuffle(faults)
    origin.proxy.next.extend(faults)
    for _ in range(20):
        try:
            tree = origin.stage(entries)
        except (OriginFailed, Corrupt):
            assert origin.has_no_complete_entry()
            continue
        assert {key: (tree / key).read_bytes() for key in files} == files
        return
    pytest.fail("the dataset never became complete")


def own_certificate(path: Path) -> Path:
    """Write a key and a self-signed certificate for this machine."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    return path
