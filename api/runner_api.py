"""The runner API: raw WSGI, msgspec, no framework, for these are the requests that cost grows with.

Runners hold a launch's token and may do nothing else; those that were started before there is a launch wait for it,
and then are told of it as all others are. 410 means: the launch is over, drop everything and exit.
"""

import logging
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from itertools import chain
from typing import Any
from urllib.parse import parse_qs

import msgspec

from api.problems import status_of
from core.domain.ranges import Ended, Later, Lease
from core.services.scheduling.leases import CachedLaunch, Leases, ReportOutcome
from core.services.scheduling.reports import TaskReport
from errors import BadRequest, NotFound, PlatformError, TooLarge

logger = logging.getLogger(__name__)

LARGEST = 64 << 20
_PATH = re.compile(r"/v1/launches/([0-9a-z]{1,40})(?:/([a-z]+))?")
_FILE = re.compile(r"/v1/launches/([0-9a-z]{1,40})/(model|play)")
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})", re.ASCII)
_LENGTH = struct.Struct("<I")
#: Seconds for which a runner is let wait before it is told to ask again; less than it waits for any answer.
WAIT = 20.0
#: Seconds for which a link into the object store is good.
VALID = 600


class _Lease(msgspec.Struct):
    worker: str
    rate: float | None = None


class _Report(msgspec.Struct, rename={"since": "from"}):
    worker: str
    stage: str
    start: int
    fencing_token: str
    since: int
    to: int
    lines: int
    artifacts: list[tuple[int, str, str, int]] = []
    sketch: dict[str, Any] = {}
    rate: float | None = None
    next: bool = False


class _Held(msgspec.Struct):
    stage: str
    start: int
    fencing_token: str
    task: int = -1


class _Heartbeat(msgspec.Struct):
    leases: list[_Held]


class _Death(msgspec.Struct):
    worker: str
    stage: str
    start: int
    fencing_token: str
    task: int = -1
    reason: str = "its process ended"


class _Refusal(msgspec.Struct):
    reason: str
    status: str = "failed"


_decode: Mapping[Any, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (_Lease, _Report, _Heartbeat, _Death, _Refusal)
}

Environ = dict[str, Any]
Start = Callable[[str, list[tuple[str, str]]], Any]


def create(leases: Leases, *, links: bool = False, wait: float = WAIT) -> Callable[[Environ, Start], Iterable[bytes]]:
    """Make the WSGI application; with ``links``, runners fetch files from the object store where it can be reached.

    ``wait`` is how many seconds a runner waits for its launch before it is told to ask again.
    """

    def application(environ: Environ, start: Start) -> Iterable[bytes]:
        later = None
        try:
            if (found := _FILE.fullmatch(environ["PATH_INFO"])) and environ["REQUEST_METHOD"] == "GET":
                return _file(leases, _known(leases, found[1], environ), found[2], environ, start, links=links)
            status, answer = _serve(leases, environ, wait)
        except PlatformError as error:
            status = status_of(type(error))
            answer = {"status": status, "detail": error.detail}
            later = error.members.get("retry_after")
        except Exception:
            logger.exception("%s %s", environ["REQUEST_METHOD"], environ["PATH_INFO"])
            status, answer = 500, {"status": 500, "detail": PlatformError.__doc__}
        body = msgspec.json.encode(answer)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if later is not None:
            headers.append(("Retry-After", str(later)))
        start(f"{status} {HTTPStatus(status).phrase}", headers)
        return [body]

    return application


def _serve(leases: Leases, environ: Environ, wait: float) -> tuple[int, Any]:
    if environ["PATH_INFO"] == "/healthz":
        return 200, {"status": "ok"}
    found = _PATH.fullmatch(environ["PATH_INFO"])
    if found is None:
        raise NotFound()
    verb = (environ["REQUEST_METHOD"], found[2])
    if verb == ("GET", "wait") and not leases.wait(found[1], wait):
        return 200, {"retry_after": 0.0}
    launch = _known(leases, found[1], environ)
    if verb in (("GET", None), ("GET", "wait")):
        return 200, leases.describe(launch)
    serve = _VERBS.get(verb)
    if serve is None:
        raise NotFound()
    return serve(leases, launch, _body(environ), environ)


def _known(leases: Leases, id: str, environ: Environ) -> CachedLaunch:
    scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    return leases.authenticate(id, token if scheme == "Bearer" else "")


def _file(
    leases: Leases, launch: CachedLaunch, name: str, environ: Environ, start: Start, *, links: bool
) -> Iterable[bytes]:
    """Give a file, or the rest of it from a byte on, as it comes from the store."""
    bundle = leases.bundle(launch, name)
    if links and (link := leases.link(bundle, VALID)) is not None:
        start("307 Temporary Redirect", [("Location", link), ("Cache-Control", "no-store"), ("Content-Length", "0")])
        return []
    asked = _RANGE.fullmatch(environ.get("HTTP_RANGE", ""))
    first = int(asked[1]) if asked else 0
    stop = min(bundle.size, int(asked[2]) + 1) if asked and asked[2] else bundle.size
    headers = [("Content-Type", "application/octet-stream"), ("Accept-Ranges", "bytes")]
    if asked and not first < stop:
        start(
            "416 Range Not Satisfiable",
            [*headers, ("Content-Range", f"bytes */{bundle.size}"), ("Content-Length", "0")],
        )
        return []
    pieces = leases.read(bundle, first, stop)
    begun = next(pieces, b"")  # a store that does not answer is told of before the head is sent
    if asked:
        headers.append(("Content-Range", f"bytes {first}-{stop - 1}/{bundle.size}"))
    status = HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK
    start(f"{status} {status.phrase}", [*headers, ("Content-Length", str(stop - first))])
    return chain((begun,), pieces)


def _body(environ: Environ) -> bytes:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > LARGEST:
        raise TooLarge()
    body: bytes = environ["wsgi.input"].read(length)
    if len(body) != length:
        raise BadRequest("The body ended early.")
    return body


def _parsed(kind: Any, body: bytes) -> Any:
    try:
        return _decode[kind].decode(body)
    except msgspec.MsgspecError as error:
        raise BadRequest(str(error)) from None


def _following(answer: Lease | Later | Ended | None) -> dict[str, Any]:
    match answer:
        case Lease():
            return {"lease": answer}
        case Later():
            return {"retry_after": answer.seconds}
        case Ended():
            return {"ended": True}
        case None:
            return {}


def _lease(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    asked = _parsed(_Lease, body)
    return 200, _following(leases.lease(launch, asked.worker, asked.rate))


def _report(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    if len(body) < _LENGTH.size:
        raise BadRequest("The report has no header.")
    edge = _LENGTH.size + _LENGTH.unpack_from(body)[0]
    head = _parsed(_Report, body[_LENGTH.size : edge])
    report = TaskReport(
        worker=head.worker,
        stage=head.stage,
        start=head.start,
        fencing_token=head.fencing_token,
        since=head.since,
        to=head.to,
        lines=body[edge : edge + head.lines],
        blobs=body[edge + head.lines :],
        artifacts=head.artifacts,
        sketch=head.sketch,
        rate=head.rate,
        next=head.next,
    )
    answer: ReportOutcome = leases.report(launch, report)
    if answer.position is None:
        return 409, {"lost": True}
    place = {"cursor": answer.position.cursor, "stop": answer.position.stop}
    return (200, place | _following(answer.next)) if answer.accepted else (409, place)


def _heartbeat(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    held = [(one.stage, one.start, one.fencing_token, one.task) for one in _parsed(_Heartbeat, body).leases]
    places = leases.heartbeat(launch, held)
    return 200, {
        "leases": [
            {"start": start, "lost": True}
            if place is None
            else {"start": start, "cursor": place.cursor, "stop": place.stop}
            for (_, start, _, _), place in zip(held, places, strict=True)
        ]
    }


def _leave(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    leases.leave(
        launch, [(one.stage, one.start, one.fencing_token, one.task) for one in _parsed(_Heartbeat, body).leases]
    )
    return 200, {}


def _death(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    said = _parsed(_Death, body)
    leases.death(launch, said.stage, said.start, said.fencing_token, said.task, said.reason)
    return 200, {}


def _refused(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    leases.refused(launch, _parsed(_Refusal, body).reason)
    return 200, {}


def _logs(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    name = parse_qs(environ.get("QUERY_STRING", "")).get("name", ["output"])[0]
    leases.log(launch, name, body)
    return 200, {}


_VERBS: Mapping[tuple[str, str | None], Callable[[Leases, CachedLaunch, bytes, Environ], tuple[int, Any]]] = {
    ("POST", "lease"): _lease,
    ("POST", "report"): _report,
    ("POST", "heartbeat"): _heartbeat,
    ("POST", "leave"): _leave,
    ("POST", "death"): _death,
    ("POST", "refused"): _refused,
    ("POST", "logs"): _logs,
}
