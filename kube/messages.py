"""Requests to an API server, and its refusals (which are transient). No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
#: Media type of objects with their metadata only.
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
#: Transient statuses: too many requests, a failing server, a gateway without a backend. After 401, credentials are
#: renewed for a later request.
_TRANSIENT = frozenset({401, 429, 500, 502, 503, 504})


class ApiRefused(Exception):
    """The API server refused a request: HTTP status, Kubernetes reason and message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


@dataclass(frozen=True, slots=True)
class Request:
    """A request; ``document`` is sent as JSON."""

    method: str
    path: str
    document: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""


def refusal(request: Request, status: int, body: bytes) -> ApiRefused | ConnectionError:
    """Return the exception of a response without success: ConnectionError if the request may be retried."""
    try:
        answer = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        answer = _Status(message=body[:500].decode(errors="replace"))
    return refusal_of(request, status, answer.reason, answer.message)


def refusal_of(request: Request, status: int, reason: str, message: str) -> ApiRefused | ConnectionError:
    """Return the exception of a Status object: ConnectionError if the request may be retried."""
    if status in _TRANSIENT:
        return ConnectionError(f"the API server answered {status} to {request.method} {request.path}: {message[:500]}")
    return ApiRefused(status, reason, message)


def path_of(api: str, plural: str, namespace: str = "", name: str = "") -> str:
    """Return an API path; ``api`` is ``v1`` or ``group/version``."""
    root = f"/apis/{api}" if "/" in api else f"/api/{api}"
    space = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{space}/{plural}" + (f"/{quote(name, safe='')}" if name else "")
