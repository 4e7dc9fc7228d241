"""Mirror: a second project on a test's platform, which makes every request of the test first, with names of its own.

It is WSGI middleware around the application under test. Answers to the test are recorded in their order, so that they
can be compared with those of a run without a mirror (tests/mirror_answers.py).
"""

import io
import json
import re
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.api.people import OPERATOR
from tests.mirror_words import MirrorWords

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

#: The largest body that a mirror sends as well, and the most that is recorded of an answer.
LARGEST = 4 << 20
#: Where a mirror's requests come from, on a platform with accounts: attempts are counted for each address.
MIRROR_ADDRESS = "192.0.2.7"
#: Documents whose `name` is that of a project or a user, and therefore the platform's.
NAMING = re.compile(r"/v1/(projects|users)")
#: What the record of a request ends with that an operator makes in no project.
OF_ALL = " by an operator, of all projects"
#: Members that are sent back whole.
OPAQUE = ("next", "invitation", "cursor", "etag")


def text_of_archive(body: bytes) -> str:
    """Return the files of an archive as text: its sums are of ids and times; of a part of one, nothing."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            members = [(name, archive.read(name)) for name in archive.namelist()]
    except (zipfile.BadZipFile, ValueError):  # ValueError: its index is there, and what it points to is not
        return "<part of an archive>"
    return "\n".join(f"{name}\n{content.decode('utf-8', 'backslashreplace')}" for name, content in members)


@dataclass
class RecordedAnswer:
    """An answer to the test: what was asked, and what came."""

    request: str
    status: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytearray = field(default_factory=bytearray)

    def document(self) -> dict[str, Any]:
        text = self.body.decode("utf-8", "backslashreplace")
        if dict(self.headers).get("Content-Type") == "application/zip":
            text = text_of_archive(bytes(self.body))
        return {"request": self.request, "status": self.status, "headers": sorted(self.headers), "body": text}


@dataclass
class MirroredTest:
    """What a test and its mirror said to each other's platform: answers, and how many requests of both ended alike."""

    words: MirrorWords
    beside: bool
    answers: list[RecordedAnswer] = field(default_factory=list)
    alike: int = 0
    unlike: list[str] = field(default_factory=list)


def is_followed(environ: "WSGIEnvironment") -> bool:
    """Return whether an answer may last until something happens."""
    query, accept = environ.get("QUERY_STRING", ""), environ.get("HTTP_ACCEPT", "")
    return "follow" in query or "wait" in query or "event-stream" in accept or "HTTP_LAST_EVENT_ID" in environ


def is_of_all_projects(environ: "WSGIEnvironment") -> bool:
    """Return whether an operator asks, and names no project: what is answered is of all of them."""
    named = "HTTP_WINDTUNNEL_PROJECT" in environ or "project=" in environ.get("QUERY_STRING", "")
    return environ.get("HTTP_AUTHORIZATION") == f"Bearer {OPERATOR}" and not named


def body_of(environ: "WSGIEnvironment") -> bytes | None:
    """Return the body of a request, which is left to be read again; None if it can be read only once."""
    stream = environ["wsgi.input"]
    if not hasattr(stream, "seek") or not hasattr(stream, "getvalue"):
        return None
    body: bytes = stream.getvalue()[stream.tell() :]
    return body if len(body) <= LARGEST else None


class MirrorMiddleware:
    """Passes a request to the mirror's application first, in the words of the mirror, and then to the test's."""

    def __init__(
        self, own: "WSGIApplication", mirror: "WSGIApplication", test: MirroredTest, *, accounts: bool
    ) -> None:
        self._own, self._mirror, self._test, self._accounts = own, mirror, test, accounts
        self._inside = threading.local()

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if getattr(self._inside, "busy", False):
            return self._own(environ, start_response)
        path, method = environ.get("PATH_INFO", ""), environ["REQUEST_METHOD"]
        of_all = self._accounts and is_of_all_projects(environ)
        answer = RecordedAnswer(f"{method} {path}?{environ.get('QUERY_STRING', '')}{OF_ALL if of_all else ''}")
        self._test.answers.append(answer)
        reads = method in ("GET", "HEAD")
        mirror: RecordedAnswer | None = None
        if self._test.beside and self._is_mirrored(environ) and not (reads and is_followed(environ)):
            self._inside.busy = True
            try:
                mirror = self._ask(environ)
            finally:
                self._inside.busy = False

        def started(status: str, headers: list[tuple[str, str]], *rest: Any) -> Callable[[bytes], object]:
            answer.status, answer.headers = status, list(headers)
            if mirror is not None:
                self._learn_headers(headers, mirror.headers)
            return start_response(status, headers, *rest)

        return PassedBody(self._own(environ, started), answer, lambda: self._learn(answer, mirror))

    def _is_mirrored(self, environ: "WSGIEnvironment") -> bool:
        """Return whether a request is of the API, and in a project of its credential."""
        path = environ.get("PATH_INFO", "")
        named = not self._accounts or "HTTP_AUTHORIZATION" in environ or "HTTP_COOKIE" in environ
        return path.startswith("/v1/") or (path.startswith("/1.0/") and named)

    def _ask(self, environ: "WSGIEnvironment") -> RecordedAnswer | None:
        body = body_of(environ)
        if body is None:
            return None
        words, path = self._test.words, environ["PATH_INFO"]
        content_type = environ.get("CONTENT_TYPE", "").partition(";")[0].strip()
        if environ["REQUEST_METHOD"] == "POST" and NAMING.fullmatch(path):
            try:
                name = json.loads(body)["name"]
                if isinstance(name, str):
                    words.name(name)
            except (ValueError, KeyError, TypeError, RecursionError):
                pass  # it is refused
        sent = words.body(body, content_type)
        mirror = {key: value for key, value in environ.items() if not key.startswith(("werkzeug.", "flask."))}
        mirror |= {"PATH_INFO": words.path(path), "QUERY_STRING": words.query(environ.get("QUERY_STRING", ""))}
        mirror |= {"wsgi.input": io.BytesIO(sent), "wsgi.errors": io.StringIO()}
        for key in ("REQUEST_URI", "RAW_URI"):
            mirror.pop(key, None)
        if "CONTENT_LENGTH" in environ and len(sent) != len(body):
            mirror["CONTENT_LENGTH"] = str(len(sent))
        for key in [key for key in mirror if key.startswith("HTTP_")]:
            mirror[key] = words.reference(mirror[key])
        if mirror.get("HTTP_AUTHORIZATION", "").startswith("Bearer "):
            mirror["HTTP_AUTHORIZATION"] = "Bearer " + words.text(mirror["HTTP_AUTHORIZATION"].removeprefix("Bearer "))
        if "json" in mirror.get("HTTP_ACCEPT", "") and environ["REQUEST_METHOD"] == "POST":
            mirror["HTTP_ACCEPT"] = "application/json"  # lines would be sent until the simulation ends
        mirror.pop("HTTP_PREFER", None)  # it does not wait for an end either
        if self._accounts:
            mirror["REMOTE_ADDR"] = MIRROR_ADDRESS
        answer = RecordedAnswer("")

        def started(status: str, headers: list[tuple[str, str]], *_: Any) -> Callable[[bytes], object]:
            answer.status, answer.headers = status, list(headers)
            return answer.body.extend

        try:
            chunks = self._mirror(mirror, started)
            try:
                if not dict(answer.headers).get("Content-Type", "").startswith("text/event-stream"):
                    for chunk in chunks:
                        answer.body += chunk
            finally:
                if hasattr(chunks, "close"):
                    chunks.close()
        except Exception as error:  # the test's own request meets the same, where that is meant
            answer.status = f"500 {type(error).__name__}"
        return answer

    def _learn_headers(self, own: list[tuple[str, str]], mirror: list[tuple[str, str]]) -> None:
        theirs = dict(mirror)
        for key, value in own:
            self._test.words.learn(value, theirs.get(key, ""))
            if key == "ETag":
                self._test.words.learn_opaque(value, theirs.get(key, ""))
            if key == "Set-Cookie":
                self._test.words.learn_opaque(value.partition(";")[0], theirs.get(key, "").partition(";")[0])

    def _learn(self, own: RecordedAnswer, mirror: RecordedAnswer | None) -> None:
        if mirror is None:
            return
        if own.status[:3] == mirror.status[:3]:
            self._test.alike += 1
        else:
            self._test.unlike.append(f"{own.request}: {own.status} and {mirror.status} {bytes(mirror.body[:300])!r}")
        try:
            document, theirs = json.loads(own.body), json.loads(mirror.body)
        except (ValueError, RecursionError):
            return
        self._test.words.learn(document, theirs)
        if isinstance(document, dict) and isinstance(theirs, dict):
            for key in OPAQUE:
                if isinstance(document.get(key), str) and isinstance(theirs.get(key), str):
                    self._test.words.learn_opaque(document[key], theirs[key])


class PassedBody:
    """Body of an answer on its way to the test: each piece is recorded when it is read, and nothing is read before."""

    def __init__(self, chunks: Iterable[bytes], answer: RecordedAnswer, at_end: Callable[[], None]) -> None:
        self._chunks, self._answer, self._at_end = chunks, answer, at_end

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            if len(self._answer.body) < LARGEST:
                self._answer.body += chunk
            yield chunk
        self._end()

    def close(self) -> None:
        self._end()
        if hasattr(self._chunks, "close"):
            self._chunks.close()

    def _end(self) -> None:
        self._at_end()
        self._at_end = lambda: None
