"""Problem details (RFC 9457): HTTP status and headers of each error, problem documents, and the catalogue of types.

Independent of Flask, because the request guard and the runner API use it too; `api/problem_responses.py` is the adapter
to Flask.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from typing import Any

import msgspec

from common.errors import (
    AccountsOff,
    BadRequest,
    ChecksumMismatch,
    ClusterFull,
    Conflict,
    Corrupt,
    FinalUpload,
    Forbidden,
    Gone,
    Invalid,
    LaunchRefused,
    LooksNotAllowed,
    Misdirected,
    NameTaken,
    NodeFull,
    NotAcceptable,
    NotFound,
    NotGranted,
    NotPermitted,
    NotPrepared,
    OriginFailed,
    PlatformError,
    PreconditionFailed,
    ProjectClosed,
    ProjectOpen,
    ProviderUnavailable,
    QuotaExceeded,
    RangeNotSatisfiable,
    RunnerSilent,
    SignInRefused,
    StalledBody,
    StillRunning,
    StorageFull,
    StoreUnavailable,
    TooLarge,
    TooManyBodies,
    TooManyDryRuns,
    TooManyGuesses,
    TooManyPasswords,
    TooManyRequests,
    TooManyStreams,
    TooManyUploads,
    TooManyWaits,
    TusVersion,
    Unauthorized,
    UnknownDataset,
    UnknownDevice,
    UnknownModel,
    UnknownPasskey,
    UnknownProvider,
    UnknownRuntime,
    UnknownUpload,
    UnsupportedMedia,
    UploadsBusy,
)
from common.full_disks import is_disk_full

MEDIA_TYPE = "application/problem+json"

ErrorClass = type[PlatformError]


class LengthRequired(PlatformError):
    """Send a Content-Length: the end of a chunked upload cannot be distinguished from a broken connection."""

    slug = "length-required"


class WrongMethod(PlatformError):
    """This method is not allowed for this address; the `Allow` header lists the allowed methods."""

    slug = "method-not-allowed"


class FrameworkError(PlatformError):
    """The web framework refused the request; the problem type is named after the HTTP status."""

    def __init__(self, detail: str, *, slug: str, status: int) -> None:
        super().__init__(detail)
        self.slug, self.status = slug, status


@dataclass(frozen=True, slots=True)
class ProblemType:
    """HTTP status of an error class, and the headers that its responses have besides those of every problem."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


#: The request may succeed after 2 seconds; an error's member `retry_after` takes precedence.
RETRY = {"Retry-After": "2"}
#: Statuses of refusals that end: their responses say when to try again.
RETRIED = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_AUTHENTICATE = {"WWW-Authenticate": 'Bearer realm="windtunnel"'}

#: A class that is not listed has the entry of its nearest base class.
PROBLEM_TYPES: Mapping[ErrorClass, ProblemType] = {
    BadRequest: ProblemType(HTTPStatus.BAD_REQUEST),
    Unauthorized: ProblemType(HTTPStatus.UNAUTHORIZED, _AUTHENTICATE),
    Forbidden: ProblemType(HTTPStatus.FORBIDDEN),
    AccountsOff: ProblemType(HTTPStatus.CONFLICT),
    SignInRefused: ProblemType(HTTPStatus.FORBIDDEN),
    UnknownProvider: ProblemType(HTTPStatus.NOT_FOUND),
    UnknownPasskey: ProblemType(HTTPStatus.NOT_FOUND),
    UnknownDevice: ProblemType(HTTPStatus.NOT_FOUND),
    ProviderUnavailable: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, RETRY),
    FinalUpload: ProblemType(HTTPStatus.FORBIDDEN),
    LooksNotAllowed: ProblemType(HTTPStatus.FORBIDDEN),
    NameTaken: ProblemType(HTTPStatus.CONFLICT),
    NotPermitted: ProblemType(HTTPStatus.FORBIDDEN),
    ProjectClosed: ProblemType(HTTPStatus.CONFLICT),
    ProjectOpen: ProblemType(HTTPStatus.CONFLICT),
    QuotaExceeded: ProblemType(HTTPStatus.FORBIDDEN),
    NotFound: ProblemType(HTTPStatus.NOT_FOUND),
    WrongMethod: ProblemType(HTTPStatus.METHOD_NOT_ALLOWED),
    NotAcceptable: ProblemType(HTTPStatus.NOT_ACCEPTABLE),
    StalledBody: ProblemType(HTTPStatus.REQUEST_TIMEOUT, RETRY),
    Conflict: ProblemType(HTTPStatus.CONFLICT),
    StillRunning: ProblemType(HTTPStatus.CONFLICT, RETRY),
    Gone: ProblemType(HTTPStatus.GONE),
    LengthRequired: ProblemType(HTTPStatus.LENGTH_REQUIRED),
    PreconditionFailed: ProblemType(HTTPStatus.PRECONDITION_FAILED),
    TusVersion: ProblemType(HTTPStatus.PRECONDITION_FAILED),
    TooLarge: ProblemType(HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    UnsupportedMedia: ProblemType(HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    RangeNotSatisfiable: ProblemType(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE),
    Misdirected: ProblemType(HTTPStatus.MISDIRECTED_REQUEST),
    Invalid: ProblemType(HTTPStatus.UNPROCESSABLE_ENTITY),
    TooManyDryRuns: ProblemType(HTTPStatus.TOO_MANY_REQUESTS, RETRY),
    TooManyGuesses: ProblemType(HTTPStatus.TOO_MANY_REQUESTS, RETRY),
    TooManyPasswords: ProblemType(HTTPStatus.TOO_MANY_REQUESTS, RETRY),
    TooManyRequests: ProblemType(HTTPStatus.TOO_MANY_REQUESTS, RETRY),
    TooManyUploads: ProblemType(HTTPStatus.TOO_MANY_REQUESTS, RETRY),
    TooManyWaits: ProblemType(HTTPStatus.TOO_MANY_REQUESTS, RETRY),
    ChecksumMismatch: ProblemType(460),  # defined by tus 1.0, not registered with IANA
    PlatformError: ProblemType(HTTPStatus.INTERNAL_SERVER_ERROR),
    Corrupt: ProblemType(HTTPStatus.INTERNAL_SERVER_ERROR),
    LaunchRefused: ProblemType(HTTPStatus.BAD_GATEWAY),
    NotGranted: ProblemType(HTTPStatus.BAD_GATEWAY),
    OriginFailed: ProblemType(HTTPStatus.BAD_GATEWAY),
    ClusterFull: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, RETRY),
    StoreUnavailable: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, RETRY),
    TooManyBodies: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, RETRY),
    TooManyStreams: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, RETRY),
    UploadsBusy: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, RETRY),
    NodeFull: ProblemType(HTTPStatus.INSUFFICIENT_STORAGE),
    NotPrepared: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, RETRY),
    RunnerSilent: ProblemType(HTTPStatus.SERVICE_UNAVAILABLE, RETRY),
    StorageFull: ProblemType(HTTPStatus.INSUFFICIENT_STORAGE),
}

#: Errors about a resource that is missing, with the parameters of addresses that name it: 404 if the address does, 422
#: if the body does.
_MISSING: Mapping[ErrorClass, frozenset[str]] = {
    UnknownDataset: frozenset({"dataset", "tag"}),
    UnknownModel: frozenset({"model", "tag"}),
    UnknownRuntime: frozenset(),
    UnknownUpload: frozenset(),
}


def problem_type(error_class: ErrorClass) -> ProblemType:
    """Return the entry of an error class in PROBLEM_TYPES, or of its nearest base class."""
    return next(PROBLEM_TYPES[base] for base in error_class.__mro__ if base in PROBLEM_TYPES)


def status_of(error_class: ErrorClass, *, named: Collection[ErrorClass] = ()) -> int:
    """Return the HTTP status of an error class; ``named``: errors about resources that the address names."""
    if any(issubclass(error_class, missing) for missing in named):
        return HTTPStatus.NOT_FOUND.value
    return int(problem_type(error_class).status)


def named_by_path(method: str, parameters: Iterable[str]) -> tuple[ErrorClass, ...]:
    """Return the errors about a missing resource that the address of a route, with these parameters, names."""
    if method.upper() in {"GET", "HEAD", "DELETE", "PATCH"}:
        return tuple(_MISSING)
    present = set(parameters)
    return tuple(error_class for error_class, names in _MISSING.items() if present & names)


def disk_full(error: OSError) -> StorageFull | None:
    """Return the platform's error for a file system without free space, None for another error of the system."""
    return StorageFull() if is_disk_full(error) else None


def title_of(slug: str) -> str:
    """Return the title of a problem type, for display."""
    return slug.replace("-", " ").capitalize()


def described(slug: str) -> dict[str, Any]:
    """Return the document that describes a problem type of the catalogue: a problem without a detail of its own."""
    error_class = catalogue()[slug]
    return {
        "type": f"/problems/{slug}",
        "title": title_of(slug),
        "status": status_of(error_class),
        "detail": error_class.__doc__,
    }


def describe(error: PlatformError, *, named: Collection[ErrorClass] = ()) -> dict[str, Any]:
    """Return the problem document of an error: its own members, and those of RFC 9457."""
    if isinstance(error, FrameworkError):
        status = error.status
    else:
        status = status_of(type(error), named=named)
    members = {
        "type": f"/problems/{error.slug}",
        "title": title_of(error.slug),
        "status": status,
        "detail": error.detail,
    }
    return dict(error.members) | members


def encode(error: PlatformError, *, named: Collection[ErrorClass] = ()) -> tuple[int, bytes, dict[str, str]]:
    """Return the HTTP status, the body and the headers of an error."""
    problem = describe(error, named=named)
    headers = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store"} | retry_headers(error)
    return problem["status"], msgspec.json.encode(problem, enc_hook=str), headers


def retry_headers(error: PlatformError) -> dict[str, str]:
    """Return the headers of an error besides its document; every 429 and 503 has a Retry-After."""
    headers = dict(problem_type(type(error)).headers)
    if (retry_after := error.members.get("retry_after")) is not None:
        headers["Retry-After"] = str(max(1, math.ceil(float(retry_after))))
    elif isinstance(error, FrameworkError) and error.status in RETRIED:
        headers |= RETRY
    return headers


def field_messages(errors: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Flatten a tree of validation errors to lines ``field: message``."""
    if isinstance(errors, Mapping):
        for name, nested in errors.items():
            yield from field_messages(nested, path if name in {"_schema", "query", "headers"} else (*path, str(name)))
    elif isinstance(errors, Sequence) and not isinstance(errors, str):
        for nested in errors:
            yield from field_messages(nested, path)
    else:
        yield f"{'.'.join(path)}: {errors}" if path else str(errors)


def invalid(errors: Any) -> Invalid:
    """Return the error for a tree of validation errors, with a line for each of the first 100 invalid fields."""
    lines = list(islice(field_messages(errors), 100))
    return Invalid(" ".join(lines[:8]), errors=lines)


def error_classes(base: ErrorClass = PlatformError) -> Iterator[ErrorClass]:
    """Yield an error class and its subclasses that have a slug of their own, each once."""
    if "slug" in vars(base):
        yield base
    for subclass in base.__subclasses__():
        yield from error_classes(subclass)


def catalogue() -> Mapping[str, ErrorClass]:
    """Return all error classes by their slug."""
    return {error_class.slug: error_class for error_class in error_classes()}


def by_status(
    error_classes: Iterable[ErrorClass], *, named: Collection[ErrorClass] = ()
) -> dict[int, list[ErrorClass]]:
    """Group error classes by their HTTP status; statuses and slugs ascend."""
    groups: dict[int, list[ErrorClass]] = {}
    for error_class in sorted(set(error_classes), key=lambda error_class: error_class.slug):
        groups.setdefault(status_of(error_class, named=named), []).append(error_class)
    return dict(sorted(groups.items()))
