"""Reruns: which simulations run a task again, with what changes, and both replays side by side."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from web.api_client import api, path_of
from web.states import STATES
from web.task_request import LABEL, values_of

_ORIGIN = re.compile(r"([0-9a-z]{26})\.(\d{1,9})")


#: Reruns of a task that its page lists.
RERUNS = 10


@dataclass(frozen=True, slots=True)
class Origin:
    """The task that a simulation runs again."""

    simulation: str
    task: int


def origin_of(simulation: Mapping[str, Any]) -> Origin | None:
    """Return the task that a simulation runs again, by its label; None for another simulation."""
    match = _ORIGIN.fullmatch(simulation["labels"].get(LABEL, ""))
    return Origin(match[1], int(match[2])) if match else None


def rerun_of(simulation: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a simulation runs again, and what it has changed; None for one that runs no task again.

    ``found``: the former simulation, unless it has been deleted. ``side_by_side``: the address of both replays, once
    there are both.
    """
    if (origin := origin_of(simulation)) is None:
        return None
    found = api().find(path_of("simulations", origin.simulation))
    result = result_of(origin.simulation, origin.task) if found is not None else None
    if found is None or result is None:
        return {"found": None}
    was, now = values_of(found, result), simulation["provenance"]["play"]["params"]
    return {
        "found": found,
        "task": origin.task,
        "changed": [
            (name, was.get(name), now.get(name))
            for name in sorted(was.keys() | now.keys())
            if was.get(name) != now.get(name)
        ],
        "side_by_side": side_by_side(origin, simulation),
    }


def reruns_of(id: str, task: int) -> list[dict[str, Any]]:
    """Return the newest simulations that run a task again, each with the address of both replays side by side."""
    newest = api().get("/v1/simulations", label=[f"{LABEL}={id}.{task}"], include=["spec"], limit=RERUNS)["items"]
    return [{"simulation": rerun, "side_by_side": side_by_side(Origin(id, task), rerun)} for rerun in newest]


def side_by_side(origin: Origin, rerun: Mapping[str, Any]) -> str | None:
    """Return the address of the replays of a task and of its rerun; None until the rerun has all its results.

    The last task of a rerun has the scenario and the repetition of its origin; those before are earlier repetitions.
    """
    tasks = rerun["tasks"]
    if not STATES[rerun["state"]].ended or tasks["done"] < tasks["total"]:
        return None
    return f"/compare/replay?left={origin.simulation}.{origin.task}&right={rerun['id']}.{tasks['total'] - 1}"


def result_of(id: str, task: int) -> Mapping[str, Any] | None:
    """Return the result of a task, or None if it has none yet."""
    lines = results(id, {"from": task, "limit": 1})
    return lines[0] if lines and lines[0]["task"] == task else None


def results(id: str, parameters: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return results as the API selects them."""
    answer = api().send("GET", path_of("simulations", id, "results"), parameters=parameters)
    return [json.loads(line) for line in answer.text.splitlines() if line.strip()]
