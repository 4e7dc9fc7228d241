"""HTTP client of the public API, with the credentials and the address of the browser whose request is served.

Requests stay in the process (`httpx.WSGITransport`), but pass the same request guard, routes and schemas as those of
any other client.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import httpx
from flask import Flask, current_app, g, request

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

EXTENSION = "windtunnel-api"
#: What the API checks of the browser's request: credentials, origin and addresses, by keys of the WSGI environment.
PASSED_ON = (
    "HTTP_AUTHORIZATION",
    "HTTP_COOKIE",
    "HTTP_HOST",
    "HTTP_ORIGIN",
    "HTTP_X_FORWARDED_FOR",
    "REMOTE_ADDR",
    "wsgi.url_scheme",
)


class Refused(Exception):
    """The API refused a request. ``problem``: its problem document (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail", "")))
        self.status = status
        self.problem = problem


def path_of(*segments: str) -> str:
    """Return the path of a resource of the API: ``path_of("models", name)``. Segments may have any characters.

    A slash in a segment arrives as its escape %2F, which no name has: WSGI has decoded paths, where it would separate.
    """
    escaped = (quote(segment.replace("/", "%2F"), safe="@:") for segment in segments)
    return "/v1/" + "/".join(segment.replace(".", "%2E") if segment in {".", ".."} else segment for segment in escaped)


def path_of_reference(kind: str, reference: str, *rest: str) -> str:
    """Return the path of a model or a dataset, which may be another project's: ``team-a/brake``.

    That has a version there: without one, ``x/content`` would be read as the content of x.
    """
    project, slash, name = reference.partition("/")
    if not slash:
        return path_of(kind, reference, *rest)
    return path_of(kind, project, name if "@" in name else f"{name}@latest", *rest)


class ApiClient:
    """The API, as a browser sees it whose request has the given WSGI environment.

    ``project``: the one that its requests name, if any.
    """

    project: str | None = None

    def __init__(self, api: "WSGIApplication", browser: Mapping[str, Any]) -> None:
        passed_on = {"REMOTE_ADDR": ""} | {name: browser[name] for name in PASSED_ON if name in browser}

        def as_browser(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
            path = environ["PATH_INFO"].encode().decode("latin-1")  # PEP 3333; httpx gives the text itself
            named = {"HTTP_WINDTUNNEL_PROJECT": self.project} if self.project else {}
            return api(environ | passed_on | named | {"PATH_INFO": path}, start_response)

        self._http = httpx.Client(transport=httpx.WSGITransport(app=as_browser), base_url="http://api")

    def get(self, path: str, **parameters: Any) -> Any:
        """Return a JSON document; raise Refused. Parameters that are None or empty are left out."""
        return self.send("GET", path, parameters=parameters).json()

    def find(self, path: str, missing: Collection[int] = (404, 410), **parameters: Any) -> Any:
        """Return a JSON document, or None for a status in ``missing``; raise Refused for others."""
        try:
            return self.get(path, **parameters)
        except Refused as error:
            if error.status not in missing:
                raise
        return None

    def status(self, path: str, *, headers: Mapping[str, str] | None = None) -> int:
        """Return the status of a HEAD: of a refusal too, which has no document here."""
        return self._http.head(path, headers=dict(headers or {})).status_code

    def post(self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Send a POST, with a JSON body if there is one; raise Refused."""
        return self.send("POST", path, body=body, headers=headers)

    def put(self, path: str, body: object) -> httpx.Response:
        """Send a PUT with a JSON body; raise Refused."""
        return self.send("PUT", path, body=body)

    def delete(self, path: str) -> httpx.Response:
        """Send a DELETE; raise Refused."""
        return self.send("DELETE", path)

    def send(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request and return its answer; raise Refused for 400 and above."""
        query = {name: value for name, value in (parameters or {}).items() if value not in (None, "", [])}
        try:
            answer = self._http.request(method, path, params=query, json=body, headers=dict(headers or {}))
        except httpx.InvalidURL:  # it is longer than any name and query
            raise Refused(414, {"title": "Too long", "detail": "This address is too long; write less."}) from None
        if answer.status_code >= 400:
            raise Refused(answer.status_code, answer.json())
        return answer

    def close(self) -> None:
        """Release the client."""
        self._http.close()


def api() -> ApiClient:
    """Return the API for the current request."""
    if "api" not in g:
        g.api = ApiClient(current_app.extensions[EXTENSION], request.environ)
    return cast(ApiClient, g.api)


def register(app: Flask, wsgi_api: "WSGIApplication") -> None:
    """Give an application the API whose client it is."""
    app.extensions[EXTENSION] = wsgi_api

    def close(error: BaseException | None) -> None:
        if (client := g.pop("api", None)) is not None:
            client.close()

    app.teardown_request(close)
