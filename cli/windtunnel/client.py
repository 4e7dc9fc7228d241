"""Client of the platform's HTTP API, for the CLI and the demo."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx


class RequestRefused(Exception):
    """The platform refused the request; the message is the `detail` of its problem document."""


class Client:
    """Client of one platform; ``token`` is its bearer token, if it has one."""

    def __init__(self, url: str = "http://localhost:5000", *, token: str = "") -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=httpx.Timeout(30.0, read=120.0))

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **params: Any) -> Any:
        """Return the JSON at a path."""
        return _raise_for_error(self._http.get(path, params=params)).json()

    def text(self, path: str, **params: Any) -> tuple[int, str]:
        """Return status and text at a path."""
        response = _raise_for_error(self._http.get(path, params=params))
        return response.status_code, response.text

    def read(self, path: str) -> bytes:
        """Return the bytes at a path."""
        return _raise_for_error(self._http.get(path)).content

    def submit(self, document: dict[str, Any], model: str | None = None) -> dict[str, Any]:
        """Submit a simulation; ``model`` is the path of a model binary that is sent in the same request."""
        if model is None:
            response = self._http.post("/v1/simulations", json=document)
        else:
            form = {key: value if isinstance(value, str) else json.dumps(value) for key, value in document.items()}
            with open(model, "rb") as file:
                response = self._http.post("/v1/simulations", data=form, files={"model": file})
        simulation: dict[str, Any] = _raise_for_error(response).json()
        return simulation

    def events(self, id: str, after: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the events of a simulation until its end; reconnect when the connection breaks."""
        while True:
            try:
                with self._http.stream("GET", f"/v1/simulations/{id}/events", params={"after": after}) as response:
                    if response.status_code == 204:
                        return
                    if response.status_code != 200:
                        response.read()
                        _raise_for_error(response)
                    event_type = ""
                    for line in response.iter_lines():
                        field, _, value = line.partition(":")
                        if field == "id":
                            after = int(value)
                        elif field == "event":
                            event_type = value.strip()
                        elif field == "data":
                            yield {"type": event_type, **json.loads(value)}
            except httpx.TransportError:
                time.sleep(0.5)

    def lines(self, id: str) -> Iterator[dict[str, Any]]:
        """Yield all results in task order."""
        with self._http.stream("GET", f"/v1/simulations/{id}/results") as response:
            for line in response.iter_lines():
                yield json.loads(line)


def _raise_for_error(response: httpx.Response) -> httpx.Response:
    if response.is_error:
        try:
            raise RequestRefused(response.json().get("detail", response.text))
        except json.JSONDecodeError:
            raise RequestRefused(f"{response.status_code}: {response.text[:500]}") from None
    return response
