"""The command line that the submit page shows is read by `windtunnel run` as the same submission."""

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web.command_line import run_line
from windtunnel.commands.gang_options import submission_of
from windtunnel.commands.run import command
from windtunnel.submissions import document

NAME = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
SCALAR = st.integers(-5, 5) | st.booleans() | st.text(max_size=5) | st.floats(-2, 2) | st.none()
TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=6)
SCENARIOS = (
    st.tuples(st.integers(0, 50), st.integers(1, 50)).map(lambda pair: {"range": [pair[0], pair[0] + pair[1]]})
    | st.lists(st.integers(0, 99), min_size=2, max_size=4, unique=True).map(lambda tasks: {"tasks": tasks})
    | st.fixed_dictionaries({"sample": st.integers(1, 9)}, optional={"seed": st.integers(0, 9)})
)
BODY = st.fixed_dictionaries(
    {"model": NAME | st.just("name@2"), "dataset": NAME},
    optional={
        "runtime": NAME,
        "scenarios": SCENARIOS,
        "repeat": st.integers(1, 9),
        "seed": st.integers(0, 9),
        "workers": st.integers(1, 9),
        "worlds": st.integers(1, 64) | st.just("auto"),
        "timeout": st.floats(1, 9),
        "max_failures": st.integers(0, 9),
        "record": st.sampled_from(["none", "failures", "all"]),
        "connection": NAME,
        "log_to_run": st.just(True),
        "params": st.dictionaries(NAME.map("set_{}".format), SCALAR, min_size=1, max_size=3),
        "sweep": st.dictionaries(
            NAME, st.lists(SCALAR, min_size=1, max_size=3, unique_by=json.dumps), min_size=1, max_size=2
        ),
        "labels": st.dictionaries(NAME, TEXT, min_size=1, max_size=2),
        "placement": st.fixed_dictionaries({"executor": NAME}),
    },
)


def submitted(line: str) -> dict[str, Any]:
    """Return the document that the command line submits."""
    words = shlex.split(line.split("\n", 1)[1].replace("\\\n", " "))
    assert words[:2] == ["windtunnel", "run"]
    with command.make_context("run", words[2:]) as context:
        options = dict(context.params)
    model, dataset = options.pop("model"), options.pop("dataset")
    kept = {name: value for name, value in options.items() if name not in {"url", "context", "outputs", "as_json"}}
    dataset, arguments = submission_of(
        model, dataset, {name: kept[name] for name in kept if name not in {"quiet", "detach", "watch"}}
    )
    executor = arguments.pop("executor")
    arguments["placement"] = {"executor": executor} if executor else None
    return document(dataset, scenarios_=arguments.pop("scenarios"), model=model, **arguments)


def normal(body: dict[str, Any]) -> dict[str, Any]:
    """Return a document with a range where a list of tasks counts up, which the command line cannot tell from it."""
    return document(body["dataset"], **{name: value for name, value in body.items() if name != "dataset"})


@given(BODY)
def test_the_command_line_submits_the_same_document(body: dict[str, Any]) -> None:
    line = run_line("http://localhost:5000/", body)
    assert line is not None and line.startswith("export WINDTUNNEL_URL=http://localhost:5000\n")
    expected = normal(body)
    found = submitted(line)
    if (
        expected.get("scenarios", {}).get("range")
        and expected["scenarios"]["range"][1] - expected["scenarios"]["range"][0] == 1
    ):
        expected["scenarios"] = {"tasks": [expected["scenarios"]["range"][0]]}
    assert found == expected


@pytest.mark.parametrize(
    "body",
    [
        {"dataset": "cartpole", "runtime": "python"},
        {"dataset": "cartpole", "model": "a", "gang": {"replicas": 2}},
        {"dataset": "cartpole", "upload": "01m7"},
        {"dataset": "cartpole", "model": "a", "placement": {"cluster": "x"}},
        {"dataset": "cartpole", "model": "a", "scenarios": {"tasks": [1, 1]}},
        {"dataset": "cartpole", "model": "a", "sweep": {"gain": [0.5, 0.5]}},
        {"dataset": "cartpole", "model": "a", "sweep": {"gain": [0.5, 1]}, "params": {"gain": 2}},
    ],
)
def test_what_the_command_line_cannot_say_has_no_line(body: dict[str, Any]) -> None:
    assert run_line("http://localhost:5000/", body) is None
