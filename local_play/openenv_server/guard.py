"""Guard: ASGI middleware that refuses requests of web pages and, where the server has a token, requests without it.

Without it any web page could play on a server on loopback: browsers connect WebSockets across origins, and a rebound
DNS name reaches every port. Programs send no Origin.
"""

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


def refusal(path: str, headers: dict[str, str], token: str) -> tuple[int, str] | None:
    """Return the HTTP status and the sentence with which a request is refused; None if it is accepted.

    A server with a token may have any name; a server without one has the names of loopback.
    """
    if "origin" in headers:
        return 403, "Requests of web pages are refused: use OpenEnv's client, or another program."
    host = headers.get("host", "")
    name, colon, port = host.rpartition(":")
    if not token and (name if colon and port.isdigit() else host).lower() not in LOOPBACK:
        return 421, f"This server is on loopback: call it localhost or 127.0.0.1, not {host[:100]!r}."
    if token and path != "/health":
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(bearer.strip().encode(), token.encode()):
            return 401, "This server requires its token: send `Authorization: Bearer <token>` (headers= of the client)."
    return None


class Guard:
    """The middleware. ``token``: empty for none."""

    def __init__(self, application: Application, token: str) -> None:
        self._application = application
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request or WebSocket connection."""
        if scope["type"] in ("http", "websocket"):
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            if (refused := refusal(scope["path"], headers, self._token)) is not None:
                return await _refuse(scope, send, *refused)
        await self._application(scope, receive, send)


async def _refuse(scope: Scope, send: Send, status: int, detail: str) -> None:
    prefix = "http" if scope["type"] == "http" else "websocket.http"
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": f"{prefix}.response.start", "status": status, "headers": headers})
    await send({"type": f"{prefix}.response.body", "body": body})
