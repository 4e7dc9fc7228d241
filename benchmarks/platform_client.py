"""A keep-alive HTTP connection to the platform, like a user's client but with little overhead."""

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

JSON = {"Content-Type": "application/json"}
FINAL = frozenset({"succeeded", "failed", "cancelled", "errored"})


class UnexpectedResponse(Exception):
    """Unexpected response of the platform; the text contains its body."""


class PlatformClient:
    """Client of the platform at a port, on this machine unless another host is named; ``token``: of a user there."""

    def __init__(self, port: int, host: str = "127.0.0.1", token: str = "") -> None:
        self._token = {"Authorization": f"Bearer {token}"} if token else {}
        self.connection = http.client.HTTPConnection(host, port, timeout=300)

    def open(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """Send a request; return the response, unread."""
        # every installation accepts this host name, also at another address
        self.connection.request(
            method, path, body=body, headers={"Host": "localhost", **self._token, **(headers or {})}
        )
        response = self.connection.getresponse()
        if response.status >= 400:
            body_text = response.read(2000).decode(errors="replace")
            raise UnexpectedResponse(f"{method} {path}: {response.status} {body_text}")
        return response

    def get(self, path: str) -> Any:
        """Return the JSON at a path."""
        return json.loads(self.open("GET", path).read())

    def submit(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Submit a simulation and return the accepted simulation."""
        response = self.open("POST", "/v1/simulations", json.dumps(document).encode(), JSON)
        accepted: dict[str, Any] = json.loads(response.read())
        return accepted

    def lines(self, document: Mapping[str, Any]) -> Iterator[bytes]:
        """Submit and yield the results of the same request as they arrive."""
        headers = {**JSON, "Accept": "application/x-ndjson"}
        response = self.open("POST", "/v1/simulations", json.dumps(document).encode(), headers)
        while line := response.readline():
            if line != b"\n":
                yield line

    def until(self, id: str, *, all_done: bool = False, every: float = 0.02, limit: float = 500) -> dict[str, Any]:
        """Poll until a simulation has ended, or with ``all_done`` until every task has a result."""
        deadline = time.monotonic() + limit
        while True:
            simulation: dict[str, Any] = self.get(f"/v1/simulations/{id}")
            state, tasks = simulation["state"], simulation["tasks"]
            if state in FINAL or (all_done and tasks["done"] == tasks["total"]):
                break
            if time.monotonic() > deadline:
                raise UnexpectedResponse(f"{id} is still {state} after {limit} s: {tasks}, {simulation['reason']}")
            time.sleep(every)
        if state in FINAL - {"succeeded"}:
            raise UnexpectedResponse(f"{id} {state}: {simulation['reason']}")
        return simulation

    def until_final(self, id: str) -> None:
        """Wait for a final state."""
        while self.get(f"/v1/simulations/{id}")["state"] not in FINAL:
            time.sleep(0.05)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
