"""The application; with OLD=yes in its environment it is like the first servers, without a WebSocket."""

import json
import os

from ..server.corridor import SCHEMA, Corridor

corridor = Corridor()


async def app(scope, receive, send):
    """Serve a request or a connection."""
    if scope["type"] == "websocket":
        await serve_websocket(receive, send)
    elif scope["type"] == "http":
        await serve_http(scope, receive, send)


def answer(kind, data):
    """Return the answer to a message, as OpenEnv has it."""
    try:
        return {"type": "observation", "data": corridor.reset(data) if kind == "reset" else corridor.step(data)}
    except Exception as error:
        return {"type": "error", "data": {"message": str(error), "code": "EXECUTION_ERROR"}}


async def serve_websocket(receive, send):
    """Serve /ws."""
    await receive()
    if os.environ.get("OLD"):
        await send({"type": "websocket.close", "code": 1000})
        return
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        message = json.loads(event["text"])
        await send({"type": "websocket.send", "text": json.dumps(answer(message["type"], message["data"]))})


async def serve_http(scope, receive, send):
    """Serve /schema, /reset and /step."""
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    if scope["path"] == "/schema":
        content, status = SCHEMA, 200
    else:
        data = json.loads(body or b"{}")
        answered = answer(scope["path"][1:], data if scope["path"] == "/reset" else data["action"])
        content, status = answered["data"], 200 if answered["type"] == "observation" else 500
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": json.dumps(content).encode()})
