"""What a request is answered with: who may, which object, which part of it. No sockets and no waiting here."""

import re
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from datasets.scs import http_answers
from datasets.scs.authenticators import Identity
from datasets.scs.config import Bucket, Config
from datasets.scs.connection import BROWSERS, Request
from datasets.scs.metrics import Counts
from datasets.scs.object_index import Condition, name_of
from datasets.scs.store import Object, Store, etag_of, http_date
from datasets.scs.token_cache import Verdicts

PREFIX = b"/v1/objects/"
_BEARER = re.compile(rb"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
#: Longer tokens than this nobody makes; a service account's is about 1 KiB.
_LONGEST = 8192
#: What a request may say and still be like any other.
_PLAIN = frozenset({b"host", b"authorization", b"connection"})


class Part(NamedTuple):
    """Answer with bytes of an object's file, from ``start`` to ``end``."""

    head: bytes
    found: Object
    start: int
    end: int


class Review(NamedTuple):
    """Ask the reviewer about a token, then this service again."""

    key: bytes
    token: str


class Intake(NamedTuple):
    """Take in a body, and make it an object."""

    bucket: Bucket
    key: bytes
    size: int
    digest: bytes | None
    condition: Condition | None


@dataclass(frozen=True, slots=True)
class Scrape:
    """Answer with the metrics of all processes."""


Answer = bytes | Part | Review | Intake | Scrape


class Service:
    """The decisions of one process."""

    def __init__(self, config: Config, store: Store, counts: Counts) -> None:
        self.config, self.store, self.counts = config, store, counts
        self.verdicts = Verdicts()
        self.ready = True
        self._date, self._dated = b"", 0
        self._labels = {name: f'bucket="{name}"' for name in config.buckets}
        self._tallies = {name: counts.tally(label) for name, label in self._labels.items()}

    def date(self, now: float) -> bytes:
        """Return the Date header's line; written once a second."""
        if int(now) != self._dated:
            self._dated = int(now)
            self._date = b"Date: " + http_date(self._dated) + b"\r\n"
        return self._date

    def answer(self, request: Request, now: float) -> Answer:
        """Decide. ``request.keep_alive`` is false afterwards if the connection has to end with this answer."""
        if request.fault:
            return self.refuse(request, request.fault, now)
        target = request.target
        found = self.store.remembered(target)
        if found is not None:
            bucket, key = found.bucket, b""
        else:
            place = self._place(target)
            if place is None:
                return self._elsewhere(request, now)
            bucket, key = place
        headers = request.headers
        if not BROWSERS.isdisjoint(headers) and (b"origin" in headers or headers[b"sec-fetch-site"] != b"none"):
            return self.refuse(request, 403, now, detail="No web page has anything to do here.")
        method = request.method
        if method == b"GET" or method == b"HEAD":
            if not bucket.public and (barred := self._barred(request, bucket, now)) is not None:
                return barred
            if found is None:
                found = self.store.find(bucket, key, target)
            return self._read(request, bucket, key, found, now)
        if method == b"PUT":
            if (barred := self._barred(request, bucket, now)) is not None:
                return barred
            return self._write(request, bucket, key or self._key(target), now)
        return self.refuse(request, 405, now, extra=b"Allow: GET, HEAD, PUT\r\n")

    def repeated(self, data: bytes, now: float) -> Object | None:
        """Return what a plain GET in which nothing is new is to be answered with; None if it has to be parsed.

        The target is one that was parsed before, and so is, byte by byte, all that follows it: then the parser, and
        `answer`, would say the same again.
        """
        line, _, head = data.partition(b"\r\n")
        if line[:4] != b"GET " or line[-9:] != b" HTTP/1.1":
            return None
        found = self.store.remembered(line[4:-9])
        if found is None or not found.size or (key := self.verdicts.known(head)) is None:
            return None
        if not found.bucket.public:
            verdict = self.verdicts.get(key, now)
            if verdict is None or verdict.identity is None or not found.bucket.allows(verdict.identity.namespace):
                return None
        return found

    def whole(self, found: Object, now: float) -> bytes:
        """Count an answer with a whole object, and return its head."""
        tally = self._tallies[found.bucket.name]
        tally.hits += 1
        tally.sent += found.size
        self.store.touch(found, now)
        return b"%b%b\r\n" % (found.head, self.date(now))

    def learn(self, data: bytes, request: Request) -> None:
        """Remember a request's head, if the request is the whole of what came and asks for nothing but its target."""
        line, _, head = data.partition(b"\r\n")
        if line != b"GET %b HTTP/1.1" % request.target or self.store.remembered(request.target) is None:
            return
        if request.fault or not (request.whole and request.keep_alive):
            return
        if request.headers.keys() <= _PLAIN and len(head) <= _LONGEST:
            given = request.headers.get(b"authorization")
            self.verdicts.learn(head, b"" if given is None else self.verdicts.key(given))

    def refuse(
        self, request: Request, status: int, now: float, *, detail: str | None = None, extra: bytes = b""
    ) -> bytes:
        """Return a refusal; the connection ends with it if a body is still to come."""
        if request.fault or not request.whole:
            request.keep_alive = False
        if status == 503:
            extra += b"Retry-After: 1\r\n"
        if status != 404:
            self.counts.add("scs_refusals_total", f'status="{status}"')
        return http_answers.problem(status, self.date(now), detail=detail, extra=extra, close=not request.keep_alive)

    # -- where

    def _place(self, target: bytes) -> tuple[Bucket, bytes] | None:
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

    def _elsewhere(self, request: Request, now: float) -> Answer:
        path = _origin_form(request.target).partition(b"?")[0]
        if path not in (b"/healthz", b"/readyz", b"/metrics"):
            return self.refuse(request, 404, now, detail="Objects are at /v1/objects/{bucket}/{key}; see docs/scs.md.")
        if request.method not in (b"GET", b"HEAD"):
            return self.refuse(request, 405, now, extra=b"Allow: GET, HEAD\r\n")
        if path == b"/metrics":
            return Scrape()
        if path == b"/readyz" and not self.ready:
            return self.refuse(request, 503, now, detail="The ledger cannot be written.")
        return self.plain(request, b'{"status": "ok"}\n', b"application/json", now)

    def plain(self, request: Request, body: bytes, kind: bytes, now: float) -> bytes:
        """Return a whole answer of our own."""
        end = b"" if request.keep_alive else b"Connection: close\r\n"
        length = b"Content-Type: %b\r\nContent-Length: %d\r\n" % (kind, len(body))
        return b"".join((http_answers.STATUS[200], length, end, self.date(now), b"\r\n", body))

    # -- who

    def _barred(self, request: Request, bucket: Bucket, now: float) -> Answer | None:
        """Return why the request's token does not open a bucket, None if it does."""
        given = request.headers.get(b"authorization")
        if given is None:
            return self.refuse(request, 401, now, extra=b'WWW-Authenticate: Bearer realm="scs"\r\n')
        key = self.verdicts.key(given)
        verdict = self.verdicts.get(key, now)
        if verdict is None:
            token = _BEARER.fullmatch(given)
            if token is not None and len(given) <= _LONGEST:
                return self.refuse(request, 503, now) if request.unreviewed else Review(key, token[1].decode())
        elif verdict.identity is not None:
            if bucket.allows(verdict.identity.namespace):
                return None
            return self.refuse(request, 403, now)
        challenge = b'WWW-Authenticate: Bearer realm="scs", error="invalid_token"\r\n'
        return self.refuse(request, 401, now, detail="The token is not good for this service.", extra=challenge)

    def reviewed(self, key: bytes, identity: Identity | None, now: float) -> None:
        """Take over what a reviewer said."""
        self.verdicts.keep(key, identity, now)
        self.counts.add("scs_reviews_total", f'verdict="{"no" if identity is None else "yes"}"')

    # -- what

    def _read(self, request: Request, bucket: Bucket, key: bytes, found: Object | None, now: float) -> Answer:
        headers, tally = request.headers, self._tallies[bucket.name]
        conditional = len(headers) > 2 and not http_answers.CONDITIONS.isdisjoint(headers)
        if found is not None and (conditional or request.method == b"HEAD" or not found.size):
            found = self.store.current(found, key or self._key(request.target), request.target)
        if found is None:
            tally.misses += 1
            return self.refuse(request, 404, now)
        tally.hits += 1
        self.store.touch(found, now)
        start, end, head = 0, found.size, found.head
        if conditional:
            status = http_answers.unmet(headers, found.etag, found.modified, reading=True)
            if status == 412:
                return self.refuse(request, 412, now)
            if status == 304:
                tag = b"ETag: %b\r\nLast-Modified: %b\r\n" % (found.etag, http_date(found.modified))
                return http_answers.empty(304, self.date(now), tag, close=not request.keep_alive)
        given = headers.get(b"range")
        if given is not None and request.method == b"GET":
            wanted = http_answers.span(given, found.size)
            if (test := headers.get(b"if-range")) is not None and http_answers.whole_for(
                test, found.etag, found.modified
            ):
                wanted = None
            if wanted is False:
                return self.refuse(request, 416, now, extra=b"Content-Range: bytes */%d\r\n" % found.size)
            if isinstance(wanted, tuple):
                start, end = wanted
                head = _partial(found, start, end)
        if not request.keep_alive:
            head += b"Connection: close\r\n"
        head = b"%b%b\r\n" % (head, self.date(now))
        if request.method == b"HEAD" or start == end:
            return head
        tally.sent += end - start
        return Part(head, found, start, end)

    def uncount(self, part: Part) -> None:
        """Take back the hit that was counted for an answer that could not be given."""
        tally = self._tallies[part.found.bucket.name]
        tally.hits -= 1
        tally.sent -= part.end - part.start

    def _write(self, request: Request, bucket: Bucket, key: bytes, now: float) -> Answer:
        headers = request.headers
        if request.length is None:
            return self.refuse(request, 411, now)
        if b"content-range" in headers or headers.get(b"content-encoding", b"identity") != b"identity":
            return self.refuse(request, 400, now, detail="An object is put whole and as it is.")
        if headers.get(b"expect", b"100-continue").lower() != b"100-continue":
            return self.refuse(request, 400, now, detail="No other expectation than 100-continue can be met.")
        try:
            digest = http_answers.announced(headers.get(b"content-digest"))
        except ValueError:
            return self.refuse(request, 400, now, detail="The Content-Digest cannot be read.")
        if request.length > min(bucket.quota, self.config.capacity):
            return self.refuse(request, 413, now)
        condition = None
        if not http_answers.CONDITIONS.isdisjoint(headers):
            condition = partial(_may_replace, headers)
            row = self.store.ledger.look(name_of(bucket.name, key))
            # here so that no body comes in vain, and again when it takes the other's place
            if not condition(row.digest if row else None, row.added if row else 0.0):
                return self.refuse(request, 412, now)
        return Intake(bucket, key, request.length, digest, condition)

    def stored(self, request: Request, intake: Intake, made: Object, evicted: int, now: float) -> bytes:
        """Say that an object was stored; 201 whether it is new or not, for that is what clients wait for."""
        label = self._labels[intake.bucket.name]
        self.counts.add("scs_stores_total", label)
        self.counts.add("scs_received_bytes_total", label, intake.size)
        if evicted:
            self.counts.add("scs_evictions_total", label, evicted)
        return http_answers.empty(201, self.date(now), b"ETag: %b\r\n" % made.etag, close=not request.keep_alive)


def _may_replace(headers: http_answers.Headers, digest: bytes | None, added: float) -> bool:
    etag = etag_of(digest) if digest is not None else None
    return http_answers.unmet(headers, etag, int(added), reading=False) is None


def _origin_form(target: bytes) -> bytes:
    """Return a target without scheme and host, which a server has to understand too (RFC 9112, 3.2.2)."""
    if target.startswith((b"http://", b"https://")):
        slash = target.find(b"/", 8)
        return target[slash:] if slash >= 0 else b"/"
    return target


def _partial(found: Object, start: int, end: int) -> bytes:
    return (
        b"HTTP/1.1 206 Partial Content\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n"
        b"Content-Range: bytes %d-%d/%d\r\nETag: %b\r\nLast-Modified: %b\r\nAccept-Ranges: bytes\r\n"
        % (end - start, start, end - 1, found.size, found.etag, http_date(found.modified))
    )
