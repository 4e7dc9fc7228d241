"""Allow-lists of executors: nothing is allowed by default, patterns are literal but for wildcards."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.schemas.submissions import GangSchema, PlacementSchema
from common.errors import NotAllowed
from core.domain.scheduling.allowed_options import (
    OPTIONS,
    Form,
    NamedValue,
    matches,
    named_values,
    parsed_allowed,
)
from core.domain.scheduling.executor_config import ExecutorConfig
from core.domain.scheduling.launches import Gang, Placement
from core.domain.scheduling.permissions import permitting, refusals, require_allowed
from workers.executors.kubernetes.options import EQUIVALENTS, NETWORKS_ANNOTATION

#: Options of `placement` and `gang` that name nothing of a cluster: amounts, and what concerns the simulation itself.
#: An operator's TrainJob or MPIJob needs a runtime_ref or an image, which are allowed by name.
FREE = {
    "placement": {"executor", "cpu", "memory"},
    "gang": {
        *("size", "build", "command", "communication", "start"),
        *("slots", "slices", "restarts", "operator", "implementation"),
    },
}
#: A value of each option, and the names that its patterns are compared with.
EXAMPLES: Mapping[str, tuple[Any, list[str]]] = {
    "resources": ({"nvidia.com/gpu": "1"}, ["nvidia.com/gpu=1"]),
    "networks": (("fast", "kube-system/rdma"), ["fast", "kube-system/rdma"]),
    "claims": ({"mine": "one-gpu"}, ["one-gpu"]),
    "annotations": ({"sidecar.istio.io/inject": "true"}, ["sidecar.istio.io/inject=true"]),
    "node_selector": ({"pool": "gpu"}, ["pool=gpu"]),
    "exclusive": ("topology.kubernetes.io/zone", ["topology.kubernetes.io/zone"]),
    "queue": ("team-a", ["team-a"]),
    "priority": ("system-node-critical", ["system-node-critical"]),
    "image": ("registry.example/team/model:1", ["registry.example/team/model:1"]),
    "runtime_ref": ("torch-distributed", ["torch-distributed"]),
}


def config(name: str = "west", **changes: Any) -> ExecutorConfig:
    return ExecutorConfig(name=name, kind="fake", workers=2, **changes)


def sections(option: str, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the `placement` and the `gang` of a submission that has one option."""
    placement, gang = ({option: value} if OPTIONS[option].section == name else {} for name in ("placement", "gang"))
    return placement, gang


@pytest.mark.parametrize(
    ("section", "documents"), [("placement", (Placement, PlacementSchema)), ("gang", (Gang, GangSchema))]
)
def test_every_option_of_a_submission_is_in_the_table_or_known_to_name_nothing(section: str, documents: Any) -> None:
    values, schema = documents
    known = FREE[section] | {option.name for option in OPTIONS.values() if option.section == section}
    assert {field.name for field in fields(values)} == set(schema().fields) == known


def test_every_option_is_in_the_table_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "executors.md").read_text()
    rows = [line.split("|")[1].strip().strip("`") for line in page.splitlines() if line.startswith("| `allowed.")]
    assert rows == [f"allowed.{option}" for option in OPTIONS]


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_refused_by_default_and_accepted_when_its_names_are_allowed(option: str) -> None:
    value, names = EXAMPLES[option]
    placement, gang = sections(option, value)
    with pytest.raises(NotAllowed, match=rf"executors\.west\.allowed\.{option} \(empty\)") as error:
        require_allowed([config()], placement, gang)
    path, listed = OPTIONS[option].path, error.value.members["errors"]
    assert listed == [f"{path}: {name} is not in executors.west.allowed.{option} (empty)." for name in names]
    require_allowed([config(allowed={option: [name.partition("=")[0] for name in names]})], placement, gang)
    if OPTIONS[option].form is Form.ENTRIES:
        require_allowed([config(allowed={option: names})], placement, gang)
        with pytest.raises(NotAllowed):
            require_allowed([config(allowed={option: [f"{name}x" for name in names]})], placement, gang)


@pytest.mark.parametrize("option", OPTIONS)
def test_each_name_must_be_allowed_in_the_list_of_its_own_option(option: str) -> None:
    value, _ = EXAMPLES[option]
    others = {other: ["**"] for other in OPTIONS if other != option}
    with pytest.raises(NotAllowed):
        require_allowed([config(allowed=others)], *sections(option, value))
    require_allowed([config(allowed={option: ["**"]})], *sections(option, value))


def test_one_name_that_is_not_allowed_is_refused_among_others_that_are() -> None:
    west = config(allowed={"networks": ["fast"], "annotations": ["example.com/*"]})
    placement = {"networks": ["fast", "slow"], "annotations": {"example.com/team": "a", "iam.amazonaws.com/role": "r"}}
    with pytest.raises(NotAllowed) as error:
        require_allowed([west], placement, None)
    assert error.value.members["errors"] == [
        "placement.networks: slow is not in executors.west.allowed.networks (fast).",
        "placement.annotations: iam.amazonaws.com/role=r is not in executors.west.allowed.annotations (example.com/*).",
    ]


@pytest.mark.parametrize("annotation", EQUIVALENTS)
def test_an_annotation_with_the_effect_of_an_option_is_refused_whatever_pattern_allows_it(annotation: str) -> None:
    west = config(allowed={"annotations": ["**", annotation]}, equivalents=EQUIVALENTS)
    with pytest.raises(NotAllowed, match=rf"use placement\.{EQUIVALENTS[annotation]} instead"):
        require_allowed([west], {"annotations": {annotation: "x"}}, None)


def test_the_annotations_of_equivalents_name_options() -> None:
    assert set(EQUIVALENTS.values()) <= set(OPTIONS) and NETWORKS_ANNOTATION in EQUIVALENTS


def test_empty_values_and_free_options_need_no_permission() -> None:
    placement = {"executor": "west", "cpu": 2, "memory": 1 << 30, "queue": "", "networks": [], "annotations": {}}
    gang = {"size": 2, "command": ["x"], "image": "", "runtime_ref": ""}
    assert list(named_values(placement, gang)) == []
    require_allowed([config()], placement, gang)


def test_options_that_a_kind_ignores_are_not_checked() -> None:
    require_allowed([config(ignored=frozenset(OPTIONS))], {"queue": "any"}, {"image": "any"})


def test_a_submission_may_run_on_the_executors_that_allow_all_that_it_names() -> None:
    east, west = config("east", allowed={"queue": ["a", "b"]}), config("west", allowed={"queue": ["a"]})
    assert [found.name for found in permitting([east, west], {"queue": "a"}, None)] == ["east", "west"]
    assert [found.name for found in permitting([east, west], {"queue": "b"}, None)] == ["east"]
    with pytest.raises(NotAllowed) as error:
        require_allowed([east, west], {"queue": "c"}, None)
    assert "executors.east.allowed.queue (a, b)" in str(error.value.detail)
    assert "executors.west.allowed.queue (a)" in str(error.value.detail)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("team-*", "team-a", True),
        ("team-*", "ateam-a", False),
        ("team-*", "team-a/kube-system", False),
        ("team-**", "team-a/kube-system", True),
        ("*", "sidecar.istio.io/inject", False),
        ("*.example", "xexample", False),
        ("team-[ab]", "team-a", False),
        ("team-?", "team-a", False),
        ("team-a", "team-a\n", False),
        ("registry.example/team/*", "registry.example/team/a:1", True),
        ("registry.example/team/*", "registry.example/team/a/b:1", False),
        ("registry.example/team/*", "registry.example.attacker.com/team/a", False),
    ],
)
def test_a_pattern_is_literal_but_for_its_wildcards(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, NamedValue(OPTIONS["queue"], name)) is expected


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        ("pool=gpu", "gpu", True),
        ("pool=gpu", "gpu2", False),
        ("pool=gpu-*", "gpu-a", True),
        ("pool=", "", True),
        ("pool=", "gpu", False),
        ("pool", "anything/else", True),
        ("pool=*", "a/b", False),
        ("pool=**", "a/b=c\nd", True),
        ("*=gpu", "gpu", True),
        ("pools=gpu", "gpu", False),
    ],
)
def test_a_pattern_with_an_equals_sign_is_about_the_value_too(pattern: str, value: str, expected: bool) -> None:
    assert matches(pattern, NamedValue(OPTIONS["node_selector"], "pool", value)) is expected


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "`allowed` is an object"),
        ({"queues": []}, "`allowed` has no queues; it has resources, networks"),
        ({"queue": "team-a"}, r"`allowed.queue` is a list of patterns"),
        ({"queue": [1]}, "`allowed.queue` has patterns of 1 to"),
        ({"queue": [" "]}, "`allowed.queue` has patterns of 1 to"),
        ({"queue": ["a***"]}, "are the wildcards"),
        ({"queue": ["a=b"]}, "names no values"),
    ],
)
def test_an_invalid_list_is_refused_with_the_option(document: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"executors\[0\].*" + message):
        parsed_allowed(document, "executors[0]")


NAMES = st.text("ab/.-:", min_size=1, max_size=6)
PLACEMENTS = st.fixed_dictionaries(
    {},
    optional={
        "networks": st.lists(NAMES, max_size=3),
        "queue": NAMES,
        "annotations": st.dictionaries(NAMES, NAMES, max_size=3),
        "claims": st.dictionaries(NAMES, NAMES, max_size=3),
    },
)


@given(PLACEMENTS, st.dictionaries(st.sampled_from(["networks", "queue", "annotations", "claims"]), st.lists(NAMES)))
def test_all_that_an_executor_permits_is_listed_there_literally(
    placement: dict[str, Any], allowed: dict[str, list[str]]
) -> None:
    """Without wildcards, a submission is permitted if and only if its names are a subset of the lists."""
    west = config(allowed=allowed)
    named: dict[str, set[str]] = {
        "networks": set(placement.get("networks", [])),
        "queue": {placement["queue"]} if "queue" in placement else set(),
        "annotations": set(placement.get("annotations", {})),
        "claims": set(placement.get("claims", {}).values()),
    }
    expected = all(names <= set(allowed.get(option, [])) for option, names in named.items())
    assert bool(permitting([west], placement, None)) is expected
    assert (not list(refusals(west, named_values(placement, None)))) is expected
