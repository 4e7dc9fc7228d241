"""One kept-alive connection to the platform: HTTP as any user speaks it, with little overhead of our own."""

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

JSON = {"Content-Type": "application/json"}
FINAL = frozenset({"succeeded", "failed", "cancelled", "errored"})


class Unexpected(Exception):
    """The platform answered something a measure cannot use; the text is its answer."""


class Wire:
    """Talks to the platform on one port, of this machine unless another is named."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.connection = http.client.HTTPConnection(host, port, timeout=300)

    def open(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """Send a request and return its answer, unread."""
        # by the name that every installation answers to, whatever its address
        self.connection.request(method, path, body=body, headers={"Host": "localhost", **(headers or {})})
        answer = self.connection.getresponse()
        if answer.status >= 400:
            raise Unexpected(f"{method} {path}: {answer.status} {answer.read(2000).decode(errors='replace')}")
        return answer

    def get(self, path: str) -> Any:
        """Return the JSON at a path."""
        return json.loads(self.open("GET", path).read())

    def submit(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Submit a simulation and return it as accepted."""
        answer = self.open("POST", "/v1/simulations", json.dumps(document).encode(), JSON)
        accepted: dict[str, Any] = json.loads(answer.read())
        return accepted

    def lines(self, document: Mapping[str, Any]) -> Iterator[bytes]:
        """Submit and yield the results as they come, on the same request."""
        headers = {**JSON, "Accept": "application/x-ndjson"}
        answer = self.open("POST", "/v1/simulations", json.dumps(document).encode(), headers)
        while line := answer.readline():
            if line != b"\n":
                yield line

    def until(self, id: str, *, all_done: bool = False, every: float = 0.02, limit: float = 500) -> dict[str, Any]:
        """Ask until a simulation is final, or with ``all_done`` until every task has a result."""
        deadline = time.monotonic() + limit
        while True:
            found: dict[str, Any] = self.get(f"/v1/simulations/{id}")
            if found["state"] in FINAL or (all_done and found["tasks"]["done"] == found["tasks"]["total"]):
                break
            if time.monotonic() > deadline:
                raise Unexpected(f"{id} is still {found['state']} after {limit} s: {found['tasks']}, {found['reason']}")
            time.sleep(every)
        if found["state"] in FINAL - {"succeeded"}:
            raise Unexpected(f"{id} {found['state']}: {found['reason']}")
        return found

    def until_final(self, id: str) -> None:
        """Wait for an end of any kind."""
        while self.get(f"/v1/simulations/{id}")["state"] not in FINAL:
            time.sleep(0.05)

    def close(self) -> None:
        """Hang up."""
        self.connection.close()
