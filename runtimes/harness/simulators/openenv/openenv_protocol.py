"""OpenEnv protocol: reset, step and schema as JSON over a WebSocket, or over HTTP where a server has no WebSocket.

Both on one connected socket; see openenv/core/env_server/types.py and http_server.py for the messages.
"""

import http.client
import json
import socket
import time
from collections.abc import Mapping
from typing import Any

from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

#: The most bytes of an answer.
LARGEST = 4 << 20
#: The most characters of an environment's own words in a reason.
WORDS = 300
_PIECE = 1 << 16


class BadAnswer(Exception):
    """The environment's server answered something else than the protocol says, an error, or not in time."""


class NoWebSocket(BadAnswer):
    """The server has no WebSocket at /ws."""


class TooLate(BadAnswer):
    """No answer came in time."""


class Closed(BadAnswer):
    """The server closed the connection."""


class WebSocketTransport:
    """The WebSocket /ws: a session with an environment of its own."""

    def __init__(self, connected: socket.socket, seconds: float) -> None:
        """Open the WebSocket. Raises NoWebSocket if the server has none."""
        self._socket = connected
        self._protocol = ClientProtocol(parse_uri("ws://environment/ws"), max_size=LARGEST)
        self._protocol.send_request(self._protocol.connect())
        self._send()
        until = time.monotonic() + seconds
        while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
            self._receive(until, "the opening of /ws")
        self._protocol.events_received()
        if self._protocol.handshake_exc is not None:
            raise NoWebSocket(f"its server has no WebSocket at /ws: {self._protocol.handshake_exc}")

    def reset(self, parameters: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        return self._exchange("reset", parameters, seconds)

    def step(self, action: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        return self._exchange("step", action, seconds)

    def _exchange(self, kind: str, data: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        self._protocol.send_text(json.dumps({"type": kind, "data": data}).encode())
        self._send()
        message = _parsed(self._message(time.monotonic() + seconds, kind), kind)
        if message.get("type") == "error":
            raise BadAnswer(f"it answers {kind} with an error: {_error_text(message.get('data'))}")
        if message.get("type") != "observation":
            raise BadAnswer(f"it answers {kind} with a message of the type {str(message.get('type'))[:40]!r}")
        return checked(message.get("data"), kind)

    def _message(self, until: float, kind: str) -> bytes:
        parts: list[bytes] = []
        while True:
            for frame in self._protocol.events_received():
                if not isinstance(frame, Frame) or frame.opcode not in {Opcode.TEXT, Opcode.BINARY, Opcode.CONT}:
                    continue
                parts.append(bytes(frame.data))
                if frame.fin:
                    return b"".join(parts)
            self._receive(until, kind)

    def _send(self) -> None:
        try:
            for data in self._protocol.data_to_send():
                if data:
                    self._socket.sendall(data)
        except OSError:
            raise Closed("it closed the connection") from None

    def _receive(self, until: float, what: str) -> None:
        """Receive bytes; raise Closed or BadAnswer if none come."""
        if (problem := self._protocol.parser_exc) is not None:
            raise BadAnswer(f"it violates the WebSocket protocol: {str(problem)[:WORDS]}")
        data = _bytes(self._socket, until, what)
        try:
            self._protocol.receive_data(data)
        except WebSocketException as error:
            raise BadAnswer(f"it violates the WebSocket protocol: {str(error)[:WORDS]}") from None
        self._send()  # pongs


class HttpTransport:
    """POST /reset and /step, for servers without a WebSocket; they have one environment for all requests."""

    def __init__(self, connected: socket.socket) -> None:
        self._connection = http.client.HTTPConnection("environment")
        self._connection.sock = connected

    def reset(self, parameters: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        return checked(self.request("POST", "/reset", parameters, seconds), "/reset")

    def step(self, action: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        return checked(self.request("POST", "/step", {"action": action}, seconds), "/step")

    def request(self, method: str, path: str, body: Any, seconds: float) -> dict[str, Any]:
        """Send a request and return the JSON object of the answer."""
        connection = self._connection
        if connection.sock is None:
            raise Closed("it closed the HTTP connection, which has to be kept alive for an episode")
        connection.sock.settimeout(seconds)
        try:
            connection.request(
                method,
                path,
                None if body is None else json.dumps(body).encode(),
                {"Content-Type": "application/json", "Host": "environment"},
            )
            response = connection.getresponse()
            data = response.read(LARGEST + 1)
        except TimeoutError:
            raise TooLate(f"it did not answer {path} within {seconds:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise Closed(f"it closed the connection ({type(error).__name__})") from None
        if len(data) > LARGEST:
            raise BadAnswer(f"its answer to {path} has more than {LARGEST:,} bytes")
        if response.status != 200:
            quoted = data[:WORDS].decode(errors="replace")
            raise BadAnswer(f"it answers {path} with the status {response.status}: {quoted}")
        return _parsed(data, path)


#: A connection to an environment's server: an episode is started, and an action applied, within ``seconds``.
Transport = WebSocketTransport | HttpTransport


def checked(answer: Any, kind: str) -> dict[str, Any]:
    """Return an answer with an observation, its reward (0 if there is none) and whether the episode is over."""
    if not isinstance(answer, dict) or not isinstance(answer.get("observation"), dict):
        raise BadAnswer(f"its answer to {kind} has no object `observation`")
    reward, done = answer.get("reward"), answer.get("done", False)
    if reward is None:
        reward = 0.0
    if not isinstance(reward, int | float) or not -1e300 < reward < 1e300:
        raise BadAnswer(f"the reward in its answer to {kind} is not a finite number")
    if not isinstance(done, bool):
        raise BadAnswer(f"`done` in its answer to {kind} is neither true nor false")
    observation = answer["observation"]
    if isinstance(answer.get("metadata"), dict):
        observation = {"metadata": answer["metadata"], **observation}
    return {"observation": observation, "reward": float(reward), "done": done}


def _parsed(data: bytes, kind: str) -> dict[str, Any]:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        raise BadAnswer(f"its answer to {kind} is not JSON") from None
    if not isinstance(message, dict):
        raise BadAnswer(f"its answer to {kind} is not a JSON object")
    return message


def _bytes(connected: socket.socket, until: float, what: str) -> bytes:
    try:
        if (left := until - time.monotonic()) <= 0:
            raise TimeoutError
        connected.settimeout(left)
        data = connected.recv(_PIECE)
    except TimeoutError:
        raise TooLate(f"it did not answer {what} in time") from None
    except OSError:
        data = b""
    if not data:
        raise Closed("it closed the connection")
    return data


def _error_text(data: Any) -> str:
    if not isinstance(data, dict):
        return "without a reason"
    text = f"{data.get('message')} ({data.get('code')})"
    return f"{text}: {json.dumps(data['errors'])}"[:WORDS] if data.get("errors") else text[:WORDS]
