"""Flask error handlers: exceptions of the platform, of Werkzeug and of the disk become problem responses (RFC 9457)."""

import logging
from collections.abc import Mapping
from http import HTTPStatus

from flask import Flask, Response, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed, RequestEntityTooLarge
from werkzeug.exceptions import NotFound as NoRoute

from api.problems import FrameworkError, WrongMethod, disk_full, encode, invalid, named_by_path
from common.errors import BadRequest, NotFound, PlatformError, TooLarge

logger = logging.getLogger(__name__)


def problem_response(error: PlatformError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the response for an error, and log errors of the platform itself (5xx except 503)."""
    g.problem = error.slug  # for the audit log
    status, body, problem_headers = encode(error, named=named_by_path(request.method, request.view_args or ()))
    if status == HTTPStatus.INSUFFICIENT_STORAGE:
        logger.warning("%s %s: %s", request.method, request.path, error.detail)
    elif status >= 500 and status != HTTPStatus.SERVICE_UNAVAILABLE:
        logger.error("%s %s: %s", request.method, request.path, error.detail, exc_info=error)
    return Response(body, status, headers=problem_headers | dict(headers or {}))


def translate(error: HTTPException) -> PlatformError:
    """Return the platform's error for an exception of Werkzeug or webargs."""
    webargs_data = getattr(error, "data", None) or {}
    if messages := webargs_data.get("messages"):
        return invalid(messages)
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ()))
        return WrongMethod(f"{request.method} is not allowed for {request.path}; use one of {allowed}.")
    if isinstance(error, NoRoute):
        hint = "is a name or an id in it misspelt? /docs lists every address."
        return NotFound(f"There is no resource at {request.path[:200]}; {hint}")
    if isinstance(error, RequestEntityTooLarge):
        return TooLarge()
    if error.code == HTTPStatus.BAD_REQUEST:
        return BadRequest(str(error.description))
    if error.code is None or error.code == HTTPStatus.INTERNAL_SERVER_ERROR:
        return PlatformError()
    slug = error.name.lower().replace(" ", "-")
    return FrameworkError(str(error.description), slug=slug, status=error.code)


def register(app: Flask) -> None:
    """Register the error handlers of an application."""

    def framework_error(error: HTTPException) -> Response:
        headers: dict[str, str] = dict(error.get_headers(request.environ))
        kept_headers = {name: value for name, value in headers.items() if name in {"Allow", "Location"}}
        return problem_response(translate(error), kept_headers)

    def recursion_error(error: RecursionError) -> Response:
        return problem_response(BadRequest("The body is nested too deeply to be parsed."))

    def disk_error(error: OSError) -> Response:
        if (full := disk_full(error)) is None:
            raise error
        return problem_response(full)

    app.register_error_handler(PlatformError, problem_response)
    app.register_error_handler(OSError, disk_error)
    app.register_error_handler(HTTPException, framework_error)
    app.register_error_handler(RecursionError, recursion_error)
