"""HTTP client of the public API, with the credentials and the address of the browser whose request is served.

Requests stay in the process (`httpx.WSGITransport`), but pass the same request guard, routes and schemas as those of
any other client.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

import httpx
from flask import Flask, current_app, g, request

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

EXTENSION = "windtunnel-api"
#: Headers of the browser's request that the API checks: its credentials, its origin and its address.
PASSED_ON = ("Authorization", "Cookie", "Host", "Origin", "X-Forwarded-For")


class Refused(Exception):
    """The API refused a request. ``problem``: its problem document (RFC 9457)."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail", "")))
        self.status = status
        self.problem = problem


class ApiClient:
    """The API, as the browser of the current request sees it."""

    def __init__(self, api: "WSGIApplication", headers: Mapping[str, str], *, address: str, scheme: str) -> None:
        self._http = httpx.Client(
            transport=httpx.WSGITransport(app=api, remote_addr=address),
            base_url=f"{scheme}://{headers['Host']}",
            headers=dict(headers),
        )

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

    def post(self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Send a POST, with a JSON body if there is one; raise Refused."""
        return self.send("POST", path, body=body, headers=headers)

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
        answer = self._http.request(method, path, params=query, json=body, headers=dict(headers or {}))
        if answer.status_code >= 400:
            raise Refused(answer.status_code, answer.json())
        return answer

    def close(self) -> None:
        """Release the client."""
        self._http.close()


def api() -> ApiClient:
    """Return the API for the current request."""
    if "api" not in g:
        passed_on = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        g.api = ApiClient(
            current_app.extensions[EXTENSION],
            {"Host": request.host} | passed_on,
            address=request.remote_addr or "",
            scheme=request.scheme,
        )
    return cast(ApiClient, g.api)


def register(app: Flask, wsgi_api: "WSGIApplication") -> None:
    """Give an application the API whose client it is."""
    app.extensions[EXTENSION] = wsgi_api

    def close(error: BaseException | None) -> None:
        if (client := g.pop("api", None)) is not None:
            client.close()

    app.teardown_request(close)
