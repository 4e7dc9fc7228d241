"""Executor configuration: parsed completely, or refused with the name of the executor and the remedy."""

from typing import Any

import pytest

from core.domain.scheduling.executor_config import ExecutorConfig, parsed

WEST = {"name": "west", "kind": "kubernetes", "workers": 64, "max_workers": 8, "grace": 30, "options": {"context": "w"}}
ALLOWED = {"queue": ["team-*"]}


def test_executors_are_read_in_their_order() -> None:
    hpc_entry = {"name": "hpc-1", "kind": "slurm", "workers": 128}
    west, hpc = parsed({"executors": [WEST | {"allowed": ALLOWED}, hpc_entry]})
    assert west == ExecutorConfig(
        name="west",
        kind="kubernetes",
        workers=64,
        max_workers=8,
        grace=30.0,
        allowed={"queue": ("team-*",)},
        options={"context": "w"},
    )
    assert (hpc.name, hpc.grace, hpc.options, hpc.allowed) == ("hpc-1", 60.0, {}, {})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "one object"),
        ({"executors": []}, "at least one"),
        ({"executors": [WEST], "more": 1}, "one object"),
        ({"executors": [WEST, WEST]}, "named twice: west"),
        ({"executors": ["west"]}, r"executors\[0\] is an object"),
        ({"executors": [WEST | {"cores": 1}]}, "`cores` is called `workers` now"),
        ({"executors": [WEST | {"core": 1}]}, "unknown core; known are allowed, grace"),
        ({"executors": [WEST | {"name": "a b"}]}, "`name` is a word"),
        ({"executors": [WEST | {"kind": 7}]}, "`kind` is the name"),
        ({"executors": [WEST | {"workers": 0}]}, "`workers` is a whole number"),
        ({"executors": [WEST | {"workers": True}]}, "`workers` is a whole number"),
        ({"executors": [WEST | {"max_workers": -1}]}, "`max_workers`"),
        ({"executors": [WEST | {"grace": 0}]}, "`grace`"),
        ({"executors": [WEST | {"options": []}]}, "`options`"),
        (
            {"executors": [WEST | {"allowed": {"queues": []}}]},
            r"executors\[0\]: `allowed` has no queues; it has resources",
        ),
        ({"executors": [WEST | {"allowed": {"queue": "team-a"}}]}, r"`allowed.queue` is a list of patterns"),
    ],
)
def test_an_invalid_configuration_is_refused_with_the_reason(document: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parsed(document)


def test_the_number_of_workers_is_bounded_by_request_and_executor() -> None:
    west, _ = parsed({"executors": [WEST, {"name": "x", "kind": "local", "workers": 2}]})
    assert [west.workers_for(requested) for requested in (None, 3, 100)] == [8, 3, 8]
