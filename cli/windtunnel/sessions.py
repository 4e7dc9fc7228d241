"""Session: scenarios of a dataset step by step, on an OpenEnv server; on this machine, see local_sessions.py."""

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from windtunnel.errors import CannotConnect, Interrupted, WindtunnelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Seconds for which a remote session waits for an answer: a server ends a step that takes longer than 50.
ANSWER_SECONDS = 60.0
#: Seconds for a connection to a server.
CONNECT_SECONDS = 10.0


class Refused(WindtunnelError):
    """A reset or a step was refused; the scenario, if one is under way, goes on."""


class ScenarioLost(WindtunnelError):
    """The simulator has failed, or its process has ended: the scenario is lost. The next reset starts another one."""


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """Observation or action space: names, units and bounds of its entries, in C order; None: without a bound.

    ``gymnasium``: what the space is in Gymnasium; None: a Box of these entries.
    """

    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    units: tuple[str, ...] = ()
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    gymnasium: dict[str, Any] | None = None


class World(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset as a session serves it. ``scenarios``: their number."""

    dataset: str
    scenarios: int
    observation: Space
    action: Space


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Observation after a reset or a step, in C order. ``about``: the scenario, of the first and of the last one.

    ``reward``: None after a reset, and in a world without rewards. ``metrics``: of the scenario that has ended.
    """

    values: "Sequence[float] | NDArray[Any]"
    reward: float | None
    over: bool
    about: Mapping[str, Any]
    metrics: Mapping[str, Any] | None = None
    truncated: bool = False  # it has ended by a limit of time


class RemoteSession:
    """A connection to an OpenEnv server (`python -m local_play.openenv_server`), with a session of its own there."""

    def __init__(self, dataset: str | None, url: str, token: str | None = None) -> None:
        from websockets.exceptions import InvalidStatus, WebSocketException
        from websockets.sync.client import connect

        self._stack = contextlib.ExitStack()
        self._url = url.rstrip("/").replace("http://", "ws://", 1).replace("https://", "wss://", 1)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._errors: tuple[type[Exception], ...] = (WebSocketException, OSError, TimeoutError)
        self.world = self._described(headers, dataset)
        try:
            self._connection = self._stack.enter_context(
                connect(
                    f"{self._url}/ws",
                    additional_headers=headers,
                    open_timeout=CONNECT_SECONDS,
                    max_size=None,
                    proxy=None,
                )
            )
        except InvalidStatus as error:
            raise CannotConnect(f"{url} refuses the connection: HTTP {error.response.status_code}.") from None
        except self._errors as error:
            raise CannotConnect(f"No OpenEnv server answers at {url}: {error}.") from None

    def _described(self, headers: Mapping[str, str], dataset: str | None) -> World:
        """Ask the server for its dataset; raise CannotConnect if it does not answer, or serves another one."""
        import httpx

        address = self._url.replace("ws", "http", 1)
        try:
            with httpx.Client(
                base_url=address, headers=dict(headers), timeout=CONNECT_SECONDS, trust_env=False
            ) as client:
                name = client.get("/metadata").raise_for_status().json()["name"]
                schema = client.get("/schema").raise_for_status().json()
                split = {"split": "scenarios"}
                count = client.post(f"/{name}/num_tasks", json=split).raise_for_status().json()["num_tasks"]
        except httpx.HTTPStatusError as error:
            detail = _detail(error.response.text)
            raise CannotConnect(f"{address} answers HTTP {error.response.status_code}: {detail}") from None
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise CannotConnect(
                f"No OpenEnv server of Windtunnel answers at {address} ({error or type(error).__name__}). Start it:"
                f" windtunnel-server openenv --dataset {dataset or 'NAME'}"
            ) from None
        if dataset is not None and name != dataset.partition("@")[0]:
            raise CannotConnect(f"The server at {address} serves {name}, not {dataset}.")
        spaces = {part: _space(schema[part]["properties"]["values"]) for part in ("observation", "action")}
        return World(dataset=name, scenarios=count, **spaces)

    def reset(self, scenario: int, repeat: int, seed: int) -> Observed:
        """Start a scenario."""
        return self._ordered("reset", {"scenario": scenario, "repeat": repeat, "seed": seed})

    def step(self, values: "NDArray[np.float64]") -> Observed:
        """Apply an action, flat."""
        return self._ordered("step", {"values": values.tolist()})

    def _ordered(self, verb: str, data: Mapping[str, Any]) -> Observed:
        try:
            self._connection.send(msgspec.json.encode({"type": verb, "data": data}).decode())
            answer = msgspec.json.decode(self._connection.recv(ANSWER_SECONDS))
        except self._errors as error:
            raise Interrupted(
                f"The connection to {self._url} is lost ({error or type(error).__name__}). Make the environment again."
            ) from None
        body = answer["data"]
        if answer["type"] == "error":
            lost = "lost" in body["message"] or "ends the scenario" in body["message"]
            raise (ScenarioLost if lost else Refused)(body["message"])
        observation = body["observation"]
        about = dict(observation.get("metadata") or body.get("metadata") or {})
        values = [math.nan if value is None else value for value in observation["values"]]
        return Observed(
            values=values,
            reward=body["reward"],
            over=body["done"],
            metrics=about.pop("metrics", None),
            truncated=about.pop("truncated", False),
            about=about,
        )

    def close(self) -> None:
        """Close the connection; may be called twice."""
        with contextlib.suppress(*self._errors):
            self._stack.close()


def _space(schema: Mapping[str, Any]) -> Space:
    """Return the space of a schema of OpenEnv's server."""
    entries = schema["prefixItems"]
    return Space(
        dtype=schema["dtype"],
        shape=tuple(schema["shape"]),
        names=tuple(entry["title"] for entry in entries),
        low=tuple(entry.get("minimum") for entry in entries),
        high=tuple(entry.get("maximum") for entry in entries),
        gymnasium=schema.get("gymnasium"),
    )


def _detail(text: str) -> str:
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        return text[:200]
