"""A thin client of the platform's HTTP API: what the CLI and the demo say to it."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx


class RequestRefused(Exception):
    """The platform said no; the text is the problem's own, with the next step in it."""


class Client:
    """Talks to one platform."""

    def __init__(self, url: str = "http://localhost:5000") -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, timeout=httpx.Timeout(30.0, read=120.0))

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON at a path."""
        return _checked(self._http.get(path, params=params)).json()

    def text(self, path: str, **params: Any) -> tuple[int, str]:
        """Return status and text at a path."""
        answer = _checked(self._http.get(path, params=params))
        return answer.status_code, answer.text

    def submit(self, document: dict[str, Any], model: str | None = None) -> dict[str, Any]:
        """Submit a simulation, with the binary at the path ``model`` in the same request if there is one."""
        if model is None:
            answer = self._http.post("/v1/simulations", json=document)
        else:
            form = {key: value if isinstance(value, str) else json.dumps(value) for key, value in document.items()}
            with open(model, "rb") as file:
                answer = self._http.post("/v1/simulations", data=form, files={"model": file})
        found: dict[str, Any] = _checked(answer).json()
        return found

    def events(self, id: str, after: int = 0) -> Iterator[dict[str, Any]]:
        """Yield a simulation's events to the last one, coming back whenever the line breaks."""
        while True:
            try:
                with self._http.stream("GET", f"/v1/simulations/{id}/events", params={"after": after}) as answer:
                    if answer.status_code == 204:
                        return
                    if answer.status_code != 200:
                        answer.read()
                        _checked(answer)
                    name = ""
                    for line in answer.iter_lines():
                        field, _, value = line.partition(":")
                        if field == "id":
                            after = int(value)
                        elif field == "event":
                            name = value.strip()
                        elif field == "data":
                            yield {"type": name, **json.loads(value)}
            except httpx.TransportError:
                time.sleep(0.5)

    def lines(self, id: str) -> Iterator[dict[str, Any]]:
        """Yield every result in task order."""
        with self._http.stream("GET", f"/v1/simulations/{id}/results") as answer:
            for line in answer.iter_lines():
                yield json.loads(line)


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_error:
        try:
            raise RequestRefused(answer.json().get("detail", answer.text))
        except json.JSONDecodeError:
            raise RequestRefused(f"{answer.status_code}: {answer.text[:500]}") from None
    return answer
