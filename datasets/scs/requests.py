"""Request handling: authorization, object look-up, conditions and ranges. Uses no sockets and never blocks."""

import re
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from datasets.scs import http_answers
from datasets.scs.authenticators import Identity
from datasets.scs.config import Bucket, Config
from datasets.scs.metrics import ProcessMetrics
from datasets.scs.object_index import Condition, name_of
from datasets.scs.object_request import BROWSERS, ObjectRequest
from datasets.scs.store import Store, StoredObject, etag_of, http_date
from datasets.scs.token_cache import TokenCache

PREFIX = b"/v1/objects/"
_BEARER = re.compile(rb"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
#: Bytes of the longest accepted Authorization header; a service account's token is about 1 KiB.
_MAX_TOKEN = 8192
#: Headers that a repeated request may have and still be answered without parsing.
_PLAIN = frozenset({b"host", b"authorization", b"connection"})


class BodyPart(NamedTuple):
    """Respond with bytes of an object's file, from ``start`` to ``end`` (exclusive)."""

    head: bytes
    stored: StoredObject
    start: int
    end: int


class TokenCheck(NamedTuple):
    """Have the authenticator check a token, then call `Service.answer` again."""

    key: bytes
    token: str


class PutRequest(NamedTuple):
    """Receive a body, and store it as an object."""

    bucket: Bucket
    key: bytes
    size: int
    digest: bytes | None
    condition: Condition | None


@dataclass(frozen=True, slots=True)
class Scrape:
    """Respond with the metrics of all processes."""


Answer = bytes | BodyPart | TokenCheck | PutRequest | Scrape


class Service:
    """Request handling of one process."""

    def __init__(self, config: Config, store: Store, counts: ProcessMetrics) -> None:
        self.config, self.store, self.counts = config, store, counts
        self.token_cache = TokenCache()
        self.ready = True
        self._date, self._dated = b"", 0
        self._labels = {name: f'bucket="{name}"' for name in config.buckets}
        self._counters = {name: counts.counters_for(label) for name, label in self._labels.items()}

    def date(self, now: float) -> bytes:
        """Return the Date header; formatted once a second."""
        if int(now) != self._dated:
            self._dated = int(now)
            self._date = b"Date: " + http_date(self._dated) + b"\r\n"
        return self._date

    def answer(self, request: ObjectRequest, now: float) -> Answer:
        """Decide how to answer; ``request.keep_alive`` is false afterwards if the connection ends with the response."""
        if request.fault:
            return self.refuse(request, request.fault, now)
        target = request.target
        stored = self.store.cached(target)
        if stored is not None:
            bucket, key = stored.bucket, b""
        else:
            location = self._bucket_and_key(target)
            if location is None:
                return self._service_route(request, now)
            bucket, key = location
        headers = request.headers
        if not BROWSERS.isdisjoint(headers) and (b"origin" in headers or headers[b"sec-fetch-site"] != b"none"):
            return self.refuse(request, 403, now, detail="Requests from web pages are refused.")
        method = request.method
        if method == b"GET" or method == b"HEAD":
            if not bucket.public and (denied := self._denied(request, bucket, now)) is not None:
                return denied
            if stored is None:
                stored = self.store.find(bucket, key, target)
            return self._read(request, bucket, key, stored, now)
        if method == b"PUT":
            if (denied := self._denied(request, bucket, now)) is not None:
                return denied
            return self._write(request, bucket, key or self._key(target), now)
        return self.refuse(request, 405, now, extra=b"Allow: GET, HEAD, PUT\r\n")

    def match_repeated(self, data: bytes, now: float) -> StoredObject | None:
        """Return the object for a GET that repeats an earlier request, None if it has to be parsed.

        The target was parsed before, and so were, byte by byte, the headers: the parser and `answer` would give the
        same result.
        """
        line, _, head = data.partition(b"\r\n")
        if line[:4] != b"GET " or line[-9:] != b" HTTP/1.1":
            return None
        stored = self.store.cached(line[4:-9])
        if stored is None or not stored.size or (key := self.token_cache.token_key_of(head)) is None:
            return None
        if not stored.bucket.public:
            authentication = self.token_cache.get(key, now)
            if (
                authentication is None
                or authentication.identity is None
                or not stored.bucket.allows(authentication.identity.namespace)
            ):
                return None
        return stored

    def full_response_head(self, stored: StoredObject, now: float) -> bytes:
        """Count a hit, and return the head of the 200 response."""
        counters = self._counters[stored.bucket.name]
        counters.hits += 1
        counters.sent += stored.size
        self.store.touch(stored, now)
        return b"%b%b\r\n" % (stored.head, self.date(now))

    def remember_head(self, data: bytes, request: ObjectRequest) -> None:
        """Cache the head of a request that came in one read, whole, and asks for nothing but its target."""
        line, _, head = data.partition(b"\r\n")
        if line != b"GET %b HTTP/1.1" % request.target or self.store.cached(request.target) is None:
            return
        if request.fault or not (request.complete and request.keep_alive):
            return
        if request.headers.keys() <= _PLAIN and len(head) <= _MAX_TOKEN:
            header = request.headers.get(b"authorization")
            self.token_cache.remember_head(head, b"" if header is None else self.token_cache.key(header))

    def refuse(
        self, request: ObjectRequest, status: int, now: float, *, detail: str | None = None, extra: bytes = b""
    ) -> bytes:
        """Return an error response; the connection ends with it if a part of the body is still to come."""
        if request.fault or not request.complete:
            request.keep_alive = False
        if status == 503:
            extra += b"Retry-After: 1\r\n"
        if status != 404:
            self.counts.add("scs_refusals_total", f'status="{status}"')
        return http_answers.problem(status, self.date(now), detail=detail, extra=extra, close=not request.keep_alive)

    # -- routing

    def _bucket_and_key(self, target: bytes) -> tuple[Bucket, bytes] | None:
        """Return bucket and key: the raw target, not decoded, merged or resolved in any way."""
        target = _origin_form(target)
        if target.startswith(PREFIX):
            name, slash, key = target[len(PREFIX) :].partition(b"/")
            bucket = self.config.buckets.get(name.decode("latin-1"))
            if bucket is not None and slash and key:
                return bucket, key
        return None

    def _key(self, target: bytes) -> bytes:
        return _origin_form(target)[len(PREFIX) :].partition(b"/")[2]

    def _service_route(self, request: ObjectRequest, now: float) -> Answer:
        path = _origin_form(request.target).partition(b"?")[0]
        if path not in (b"/healthz", b"/readyz", b"/metrics"):
            return self.refuse(request, 404, now, detail="Objects are at /v1/objects/{bucket}/{key}; see docs/scs.md.")
        if request.method not in (b"GET", b"HEAD"):
            return self.refuse(request, 405, now, extra=b"Allow: GET, HEAD\r\n")
        if path == b"/metrics":
            return Scrape()
        if path == b"/readyz" and not self.ready:
            return self.refuse(request, 503, now, detail="The object index cannot be written.")
        return self.plain(request, b'{"status": "ok"}\n', b"application/json", now)

    def plain(self, request: ObjectRequest, body: bytes, kind: bytes, now: float) -> bytes:
        """Return a 200 response with a body that is not an object."""
        end = b"" if request.keep_alive else b"Connection: close\r\n"
        length = b"Content-Type: %b\r\nContent-Length: %d\r\n" % (kind, len(body))
        return b"".join((http_answers.STATUS[200], length, end, self.date(now), b"\r\n", body))

    # -- authorization

    def _denied(self, request: ObjectRequest, bucket: Bucket, now: float) -> Answer | None:
        """Return the refusal, or the token check that comes first; None if the token may use the bucket."""
        header = request.headers.get(b"authorization")
        if header is None:
            return self.refuse(request, 401, now, extra=b'WWW-Authenticate: Bearer realm="scs"\r\n')
        key = self.token_cache.key(header)
        authentication = self.token_cache.get(key, now)
        if authentication is None:
            token = _BEARER.fullmatch(header)
            if token is not None and len(header) <= _MAX_TOKEN:
                return (
                    self.refuse(request, 503, now)
                    if request.authenticator_unavailable
                    else TokenCheck(key, token[1].decode())
                )
        elif authentication.identity is not None:
            if bucket.allows(authentication.identity.namespace):
                return None
            return self.refuse(request, 403, now)
        challenge = b'WWW-Authenticate: Bearer realm="scs", error="invalid_token"\r\n'
        return self.refuse(request, 401, now, detail="The token is not valid for this service.", extra=challenge)

    def authenticated(self, key: bytes, identity: Identity | None, now: float) -> None:
        """Cache the authenticator's result."""
        self.token_cache.store(key, identity, now)
        self.counts.add("scs_reviews_total", f'verdict="{"no" if identity is None else "yes"}"')

    # -- reads and writes

    def _read(
        self, request: ObjectRequest, bucket: Bucket, key: bytes, stored: StoredObject | None, now: float
    ) -> Answer:
        headers, counters = request.headers, self._counters[bucket.name]
        conditional = len(headers) > 2 and not http_answers.CONDITIONS.isdisjoint(headers)
        if stored is not None and (conditional or request.method == b"HEAD" or not stored.size):
            stored = self.store.revalidate(stored, key or self._key(request.target), request.target)
        if stored is None:
            counters.misses += 1
            return self.refuse(request, 404, now)
        counters.hits += 1
        self.store.touch(stored, now)
        start, end, head = 0, stored.size, stored.head
        if conditional:
            status = http_answers.failed_condition(headers, stored.etag, stored.modified, reading=True)
            if status == 412:
                return self.refuse(request, 412, now)
            if status == 304:
                tag = b"ETag: %b\r\nLast-Modified: %b\r\n" % (stored.etag, http_date(stored.modified))
                return http_answers.empty(304, self.date(now), tag, close=not request.keep_alive)
        header = headers.get(b"range")
        if header is not None and request.method == b"GET":
            byte_range = http_answers.parse_range(header, stored.size)
            if (test := headers.get(b"if-range")) is not None and http_answers.ignores_range(
                test, stored.etag, stored.modified
            ):
                byte_range = None
            if byte_range is False:
                return self.refuse(request, 416, now, extra=b"Content-Range: bytes */%d\r\n" % stored.size)
            if isinstance(byte_range, tuple):
                start, end = byte_range
                head = _partial(stored, start, end)
        if not request.keep_alive:
            head += b"Connection: close\r\n"
        head = b"%b%b\r\n" % (head, self.date(now))
        if request.method == b"HEAD" or start == end:
            return head
        counters.sent += end - start
        return BodyPart(head, stored, start, end)

    def count_damaged(self, bucket: Bucket) -> None:
        """Count an object that was dropped because its file failed."""
        self.counts.add("scs_damaged_total", self._labels[bucket.name])

    def uncount_hit(self, part: BodyPart) -> None:
        """Revert the hit that was counted for a response that failed."""
        counters = self._counters[part.stored.bucket.name]
        counters.hits -= 1
        counters.sent -= part.end - part.start

    def _write(self, request: ObjectRequest, bucket: Bucket, key: bytes, now: float) -> Answer:
        headers = request.headers
        if request.length is None:
            return self.refuse(request, 411, now)
        if b"content-range" in headers or headers.get(b"content-encoding", b"identity") != b"identity":
            return self.refuse(request, 400, now, detail="A PUT supports no Content-Range or Content-Encoding.")
        if headers.get(b"expect", b"100-continue").lower() != b"100-continue":
            return self.refuse(request, 400, now, detail="The only supported expectation is 100-continue.")
        try:
            digest = http_answers.content_digest(headers.get(b"content-digest"))
        except ValueError:
            return self.refuse(request, 400, now, detail="The Content-Digest is malformed.")
        if request.length > min(bucket.quota, self.config.capacity):
            return self.refuse(request, 413, now)
        condition = None
        if not http_answers.CONDITIONS.isdisjoint(headers):
            condition = partial(_may_replace, headers)
            row = self.store.index.get_row(name_of(bucket.name, key))
            # checked here so that no body is sent in vain, and again when the object is committed
            if not condition(row.digest if row else None, row.added if row else 0.0):
                return self.refuse(request, 412, now)
        return PutRequest(bucket=bucket, key=key, size=request.length, digest=digest, condition=condition)

    def put_response(
        self, request: ObjectRequest, put: PutRequest, written: StoredObject, evicted: int, now: float
    ) -> bytes:
        """Return the response to a stored PUT: 201 whether the object is new or replaced, as clients expect."""
        label = self._labels[put.bucket.name]
        self.counts.add("scs_stores_total", label)
        self.counts.add("scs_received_bytes_total", label, put.size)
        if evicted:
            self.counts.add("scs_evictions_total", label, evicted)
        return http_answers.empty(201, self.date(now), b"ETag: %b\r\n" % written.etag, close=not request.keep_alive)


def _may_replace(headers: http_answers.Headers, digest: bytes | None, added: float) -> bool:
    etag = etag_of(digest) if digest is not None else None
    return http_answers.failed_condition(headers, etag, int(added), reading=False) is None


def _origin_form(target: bytes) -> bytes:
    """Return a target without scheme and host; a server must accept the absolute form too (RFC 9112, 3.2.2)."""
    if target.startswith((b"http://", b"https://")):
        slash = target.find(b"/", 8)
        return target[slash:] if slash >= 0 else b"/"
    return target


def _partial(stored: StoredObject, start: int, end: int) -> bytes:
    return (
        b"HTTP/1.1 206 Partial Content\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n"
        b"Content-Range: bytes %d-%d/%d\r\nETag: %b\r\nLast-Modified: %b\r\nAccept-Ranges: bytes\r\n"
        % (end - start, start, end - 1, stored.size, stored.etag, http_date(stored.modified))
    )
