"""Runner API: WSGI application for runners, without a framework, because its requests are the most frequent.

Each request has the token of a launch, which permits nothing else. Warm runners wait for their launch, and then read
its description like other runners. Status 410 means that the launch is over: the runner discards its work and exits.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from itertools import chain
from typing import IO, Any, TypeVar
from urllib.parse import parse_qs, parse_qsl

import msgspec

from api.problems import disk_full, retry_headers, status_of
from common.errors import BadRequest, NotFound, PlatformError, TooLarge
from core.domain.scheduling.ranges import Ended, Later, Lease
from core.services.scheduling.leases import CachedLaunch, Leases, ReportOutcome
from core.services.scheduling.reports import TaskReport
from runtimes.harness.runner.runner_api_messages import (
    CheckpointReport,
    DeathReport,
    LeaseEntries,
    LeaseRequest,
    LookRequests,
    ModelRefusal,
    Name,
    NewestCheckpoint,
    PieceQuery,
    Position,
    ProgressReport,
    TaskFileHeader,
    pack_look,
    unpack_look,
    unpack_report,
)
from runtimes.harness.visible_text import visible

logger = logging.getLogger(__name__)

#: Most bytes of a request body; a task's file is not held in memory, and comes in chunks.
LARGEST = 64 << 20
#: Most bytes of a file that a look has seen.
LARGEST_LOOK = 1 << 20
CHUNK = 1 << 20
_PATH = re.compile(r"/v1/launches/([0-9a-z]{1,40})(?:/([a-z]+))?")
#: A file that a task stores, and the newest checkpoint of a task with its files.
_STORED_FILE = re.compile(r"/v1/launches/([0-9a-z]{1,40})/(output|checkpoint)/file")
_FILE = re.compile(r"/v1/launches/([0-9a-z]{1,40})/(model|play|environment)")
#: The bytes that people send to a port of a program.
_TUNNEL = re.compile(r"/v1/launches/([0-9a-z]{1,40})/tunnel")
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})", re.ASCII)
#: Seconds that a runner waits for its launch within one request; less than its timeout for responses.
WAIT = 20.0
#: Seconds until a presigned URL expires.
URL_LIFETIME = 600


_decode: Mapping[Any, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (LeaseRequest, LeaseEntries, DeathReport, ModelRefusal, CheckpointReport, ProgressReport)
}


class StoredFileQuery(msgspec.Struct, frozen=True):
    """The query of a request for the newest checkpoint of a task, or for some bytes of a file of it."""

    task: Position
    object: Name = ""
    start: Position = 0
    length: Position = LARGEST


Query = TypeVar("Query")
Environ = dict[str, Any]
Start = Callable[[str, list[tuple[str, str]]], Any]


def create(leases: Leases, *, links: bool = False, wait: float = WAIT) -> Callable[[Environ, Start], Iterable[bytes]]:
    """Return the WSGI application; with ``links``, files are redirects to the object store if it supports them.

    ``wait`` is the number of seconds that a runner waits for its launch within one request.
    """

    def application(environ: Environ, start: Start) -> Iterable[bytes]:
        extra: dict[str, str] = {}
        try:
            if (match := _FILE.fullmatch(environ["PATH_INFO"])) and environ["REQUEST_METHOD"] == "GET":
                return _file(leases, _authenticated(leases, match[1], environ), match[2], environ, start, links=links)
            if (match := _TUNNEL.fullmatch(environ["PATH_INFO"])) and environ["REQUEST_METHOD"] == "GET":
                return _pull_pieces(leases, _authenticated(leases, match[1], environ), environ, start)
            if match := _STORED_FILE.fullmatch(environ["PATH_INFO"]):
                launch = _authenticated(leases, match[1], environ)
                if environ["REQUEST_METHOD"] == "GET":
                    return _stored_file(leases, launch, environ, start)
                status, answer = _store(leases, launch, match[2], environ)
            else:
                status, answer = _serve(leases, environ, wait)
        except Exception as error:
            problem = _problem_of(error)
            if problem is None:
                logger.exception("runner API: %s %s failed", environ["REQUEST_METHOD"], environ["PATH_INFO"])
                problem = PlatformError()
            status = status_of(type(problem))
            answer = {"status": status, "detail": problem.detail}
            extra = retry_headers(problem)
        body = msgspec.json.encode(answer)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *extra.items()]
        start(f"{status} {HTTPStatus(status).phrase}", headers)
        return [body]

    return application


def _problem_of(error: Exception) -> PlatformError | None:
    if isinstance(error, OSError):
        return disk_full(error)
    return error if isinstance(error, PlatformError) else None


def _serve(leases: Leases, environ: Environ, wait: float) -> tuple[int, Any]:
    if environ["PATH_INFO"] == "/healthz":
        return 200, {"status": "ok"}
    match = _PATH.fullmatch(environ["PATH_INFO"])
    if match is None:
        raise NotFound()
    operation = (environ["REQUEST_METHOD"], match[2])
    if operation == ("GET", "wait") and not leases.launch_waiters.wait(match[1], wait):
        return 200, {"retry_after": 0.0}
    launch = _authenticated(leases, match[1], environ)
    if operation in (("GET", None), ("GET", "wait")):
        return 200, leases.describe(launch)
    serve = _OPERATIONS.get(operation)
    if serve is None:
        raise NotFound()
    return serve(leases, launch, _body(environ), environ)


def _authenticated(leases: Leases, id: str, environ: Environ) -> CachedLaunch:
    scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    return leases.authenticate(id, token if scheme == "Bearer" else "")


def _file(
    leases: Leases, launch: CachedLaunch, name: str, environ: Environ, start: Start, *, links: bool
) -> Iterable[bytes]:
    """Answer with a file of a launch, or with a range of it, streamed from the object store."""
    file = leases.files.find(launch.simulation, name)
    if links and (url := leases.files.link(file, URL_LIFETIME)) is not None:
        start("307 Temporary Redirect", [("Location", url), ("Cache-Control", "no-store"), ("Content-Length", "0")])
        return []
    byte_range = _RANGE.fullmatch(environ.get("HTTP_RANGE", ""))
    first = int(byte_range[1]) if byte_range else 0
    stop = min(file.size, int(byte_range[2]) + 1) if byte_range and byte_range[2] else file.size
    headers = [("Content-Type", "application/octet-stream"), ("Accept-Ranges", "bytes")]
    if byte_range and not first < stop:
        start(
            "416 Range Not Satisfiable",
            [*headers, ("Content-Range", f"bytes */{file.size}"), ("Content-Length", "0")],
        )
        return []
    chunks = leases.files.read(file, first, stop)
    first_chunk = next(chunks, b"")  # before the head is sent: an error of the store still gets a response of its own
    if byte_range:
        headers.append(("Content-Range", f"bytes {first}-{stop - 1}/{file.size}"))
    status = HTTPStatus.PARTIAL_CONTENT if byte_range else HTTPStatus.OK
    start(f"{status} {status.phrase}", [*headers, ("Content-Length", str(stop - first))])
    return chain((first_chunk,), chunks)


def _stored_file(leases: Leases, launch: CachedLaunch, environ: Environ, start: Start) -> Iterable[bytes]:
    """Answer with bytes of a file of a checkpoint."""
    query = _query(StoredFileQuery, environ)
    chunks = leases.task_files.read(launch.simulation, query.task, query.object, query.start, query.length)
    first_chunk = next(chunks, b"")
    start("200 OK", [("Content-Type", "application/octet-stream")])
    return chain((first_chunk,), chunks)


def _pull_pieces(leases: Leases, launch: CachedLaunch, environ: Environ, start: Start) -> Iterable[bytes]:
    """Answer with bytes that a person has sent to a port of a program, once there are any."""
    query = _query(PieceQuery, environ)
    body = pack_look(*leases.looks.tunnels.pull(launch.simulation, query.id, "program", query.number))
    start("200 OK", [("Content-Type", "application/octet-stream"), ("Content-Length", str(len(body)))])
    return [body]


def _store(leases: Leases, launch: CachedLaunch, kind: str, environ: Environ) -> tuple[int, object]:
    """Store a file of a task as it arrives, without holding it in memory."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > leases.largest_output:
        raise TooLarge()
    header, files = _query(TaskFileHeader, environ), leases.task_files
    store = files.store_output if kind == "output" else files.store_part
    return 200, store(launch.simulation, header, _chunks(environ["wsgi.input"], length))


def _chunks(stream: IO[bytes], length: int) -> Iterator[bytes]:
    """Yield a request's body; raise BadRequest if it ends early, so that nothing is stored of it."""
    while length:
        chunk = stream.read(min(length, CHUNK))
        if not chunk:
            raise BadRequest("The body ended before its Content-Length.")
        length -= len(chunk)
        yield chunk


def _query(kind: type[Query], environ: Environ) -> Query:
    """Return the parameters of a request."""
    values = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadRequest(str(error)) from None


def _body(environ: Environ) -> bytes:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > LARGEST:
        raise TooLarge()
    body: bytes = environ["wsgi.input"].read(length)
    if len(body) != length:
        raise BadRequest("The body ended before its Content-Length.")
    return body


def _parsed(kind: Any, body: bytes) -> Any:
    try:
        return _decode[kind].decode(body)
    except msgspec.MsgspecError as error:
        raise BadRequest(str(error)) from None


def _next_lease(outcome: Lease | Later | Ended | None) -> dict[str, Any]:
    match outcome:
        case Lease():
            return {"lease": outcome}
        case Later():
            return {"retry_after": outcome.seconds}
        case Ended():
            return {"ended": True}
        case None:
            return {}


def _lease(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    request = _parsed(LeaseRequest, body)
    return 200, _next_lease(leases.lease(launch, request.worker, request.rate))


def _report(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    try:
        report = TaskReport(*unpack_report(body))
    except msgspec.MsgspecError as error:
        raise BadRequest(str(error)) from None
    outcome: ReportOutcome = leases.report(launch, report)
    if outcome.position is None:
        return 409, {"lost": True}
    position = {"cursor": outcome.position.cursor, "stop": outcome.position.stop}
    return (200, position | _next_lease(outcome.next)) if outcome.accepted else (409, position)


def _positions(body: bytes) -> list[tuple[str, int, str, int]]:
    return [(entry.stage, entry.start, entry.fencing_token, entry.task) for entry in _parsed(LeaseEntries, body).leases]


def _heartbeat(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    reported = _positions(body)
    positions = leases.heartbeat(launch, reported)
    standings = [
        {"start": start, "lost": True}
        if position is None
        else {"start": start, "cursor": position.cursor, "stop": position.stop}
        for (_, start, _, _), position in zip(reported, positions, strict=True)
    ]
    return 200, {"leases": standings, **({"looked": True} if leases.looks.are_waiting(launch.simulation) else {})}


def _leave(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    leases.leave(launch, _positions(body))
    return 200, {}


def _death(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    death = _parsed(DeathReport, body)
    leases.record_death(launch, msgspec.structs.replace(death, reason=visible(death.reason)))
    return 200, {}


def _checkpoint(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, object]:
    leases.task_files.finish(launch.simulation, _parsed(CheckpointReport, body))
    return 200, {}


def _progress(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, object]:
    leases.task_progress.record(launch.simulation, _parsed(ProgressReport, body))
    return 200, {}


def _newest_checkpoint(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, object]:
    task = _query(StoredFileQuery, environ).task
    return 200, NewestCheckpoint(leases.task_files.newest(launch.simulation, task))


def _looks(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, object]:
    """Answer with looks into the launch's tasks, once there are any, which may take a while."""
    return 200, LookRequests(list(leases.looks.take(launch.simulation)))


def _answer_look(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, object]:
    try:
        answer, data = unpack_look(body)
    except msgspec.MsgspecError as error:
        raise BadRequest(str(error)) from None
    if len(data) > LARGEST_LOOK:
        raise TooLarge()
    leases.looks.answer(launch.simulation, answer, data)
    return 200, {}


def _push_piece(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, object]:
    query = _query(PieceQuery, environ)
    return 200, leases.looks.tunnels.push(launch.simulation, query.id, "program", query.number, body)


def _refused(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    leases.fail(launch, visible(_parsed(ModelRefusal, body).reason))
    return 200, {}


def _logs(leases: Leases, launch: CachedLaunch, body: bytes, environ: Environ) -> tuple[int, Any]:
    name = parse_qs(environ.get("QUERY_STRING", "")).get("name", ["output"])[0]
    leases.log(launch, visible(name), body)
    return 200, {}


_OPERATIONS: Mapping[tuple[str, str | None], Callable[[Leases, CachedLaunch, bytes, Environ], tuple[int, Any]]] = {
    ("POST", "lease"): _lease,
    ("POST", "report"): _report,
    ("POST", "heartbeat"): _heartbeat,
    ("POST", "leave"): _leave,
    ("POST", "death"): _death,
    ("POST", "refused"): _refused,
    ("POST", "logs"): _logs,
    ("POST", "checkpoint"): _checkpoint,
    ("POST", "progress"): _progress,
    ("GET", "checkpoint"): _newest_checkpoint,
    ("GET", "looks"): _looks,
    ("POST", "looks"): _answer_look,
    ("POST", "tunnel"): _push_piece,
}
