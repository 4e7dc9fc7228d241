"""Errors as RFC 9457 problems: one answer for what the platform, the framework or a plain bug says no to."""

import errno
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar

import msgspec
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, RequestEntityTooLarge
from werkzeug.exceptions import NotFound as NoRoute

from errors import (
    BadRequest,
    Invalid,
    NotFound,
    PlatformError,
    StorageFull,
    TooLarge,
    UnknownDataset,
    UnknownModel,
    UnknownRuntime,
    UnknownUpload,
)

MEDIA_TYPE = "application/problem+json"
#: Seconds a client is asked to stay away when the answer is "not now" and the error names no other time.
PAUSE = 2
#: What a disk says that has no room left, for anybody or for us.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

Kind = type[PlatformError]
logger = logging.getLogger(__name__)


class LengthRequired(PlatformError):
    """Send a Content-Length: the end of a chunked upload cannot be told from a broken connection."""

    slug: ClassVar[str] = "length-required"
    status: ClassVar[HTTPStatus] = HTTPStatus.LENGTH_REQUIRED


class WrongMethod(PlatformError):
    """This method is not for this address; the Allow header names those that are."""

    slug: ClassVar[str] = "method-not-allowed"
    status: ClassVar[HTTPStatus] = HTTPStatus.METHOD_NOT_ALLOWED


def looks_up(method: str, parameters: Iterable[str]) -> bool:
    """Tell whether what a request is about is named by its address, which has these parameters."""
    return method.upper() in {"GET", "HEAD", "DELETE", "PATCH"} or not {"dataset", "tag"}.isdisjoint(parameters)


def status_of(kind: type[PlatformError], named_by_path: bool) -> HTTPStatus:
    """Return what a kind of problem is answered with: what a *path* names and is not there is a 404, not a 422."""
    missing = named_by_path and issubclass(kind, (UnknownDataset, UnknownModel, UnknownRuntime, UnknownUpload))
    return HTTPStatus.NOT_FOUND if missing else kind.status


def describe(error: PlatformError, *, named_by_path: bool = False) -> dict[str, Any]:
    """Put an error into the members of RFC 9457."""
    status = status_of(type(error), named_by_path) if error.status is type(error).status else error.status
    title = error.slug.replace("-", " ").capitalize()
    fixed = {"type": f"/problems/{error.slug}", "title": title, "status": status.value, "detail": error.detail}
    return dict(error.members) | fixed


def encode(problem: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a problem."""
    headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store"}
    pause = problem.get("retry_after")
    if pause is None and (problem["status"] == 503 or problem["type"].endswith("/idempotency-in-progress")):
        pause = PAUSE
    if pause is not None:
        headers["Retry-After"] = str(max(1, round(float(pause))))
    if problem["status"] == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="windtunnel"'
    return msgspec.json.encode(problem, enc_hook=str), headers


def answer(error: PlatformError, headers: Mapping[str, str] | None = None) -> Response:
    """Answer a request with a problem."""
    problem = describe(error, named_by_path=looks_up(request.method, request.view_args or ()))
    if problem["status"] >= 500 and problem["status"] != 503:
        logger.error("%s %s: %s", request.method, request.path, error.detail, exc_info=error)
    body, fixed = encode(problem)
    return Response(body, problem["status"], headers=fixed | dict(headers or {}))


def sentences(errors: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Flatten a tree of validation errors to ``field: what is wrong`` lines."""
    if isinstance(errors, Mapping):
        for name, inner in errors.items():
            yield from sentences(inner, path if name in {"_schema", "query", "headers"} else (*path, str(name)))
    elif isinstance(errors, Sequence) and not isinstance(errors, str):
        for inner in errors:
            yield from sentences(inner, path)
    else:
        yield f"{'.'.join(path)}: {errors}" if path else str(errors)


def invalid(errors: Any) -> Invalid:
    """Make the error for fields that do not hold what they should."""
    lines = list(sentences(errors))
    return Invalid(" ".join(lines[:8]), errors=lines[:100])


def translate(error: HTTPException) -> PlatformError:
    """Say in our words what the framework refused."""
    given = getattr(error, "data", None) or {}  # left by webargs
    if messages := given.get("messages"):
        return invalid(messages)
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        return WrongMethod(f"{request.method} is not for {request.path}; use one of {allowed}.")
    if isinstance(error, NoRoute):
        return NotFound(f"There is nothing at {request.path[:200]}. /docs lists what there is.")
    if isinstance(error, RequestEntityTooLarge):
        return TooLarge()
    if error.code == HTTPStatus.BAD_REQUEST:
        return BadRequest(str(error.description))
    made = PlatformError(None if error.code in {None, 500} else str(error.description))
    if error.code is not None and error.code != HTTPStatus.INTERNAL_SERVER_ERROR:
        vars(made).update(status=HTTPStatus(error.code), slug=error.name.lower().replace(" ", "-"))
    return made


def register(app: Flask) -> None:
    """Make every refusal of this application a problem."""

    def framework(error: HTTPException) -> Response:
        headers: dict[str, str] = dict(error.get_headers(request.environ))
        kept = {name: value for name, value in headers.items() if name in {"Allow", "Location"}}
        return answer(translate(error), kept)

    def recursion(error: RecursionError) -> Response:
        return answer(BadRequest("The body is nested too deeply to be read."))

    def disk(error: OSError) -> Response:
        if error.errno not in FULL:
            raise error
        return answer(StorageFull())

    app.register_error_handler(PlatformError, answer)
    app.register_error_handler(OSError, disk)
    app.register_error_handler(HTTPException, framework)
    app.register_error_handler(RecursionError, recursion)


def every(kind: type[PlatformError] = PlatformError) -> Iterator[type[PlatformError]]:
    """Walk the tree of errors, each problem type once; a class without a slug of its own is the one above it."""
    if "slug" in vars(kind):
        yield kind
    for inner in kind.__subclasses__():
        yield from every(inner)


def catalogue() -> Mapping[str, type[PlatformError]]:
    """Return every problem type by its slug."""
    return {kind.slug: kind for kind in every()}


def for_statuses(kinds: Iterable[Kind], *, named_by_path: bool = False) -> dict[int, list[Kind]]:
    """Group problem types by the status that they answer with, in a fixed order."""
    grouped: dict[int, list[Kind]] = {}
    for kind in sorted(set(kinds), key=lambda kind: kind.slug):
        grouped.setdefault(status_of(kind, named_by_path).value, []).append(kind)
    return dict(sorted(grouped.items()))
