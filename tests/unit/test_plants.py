"""Plants without a simulator: descriptions of FMUs, what datasets may say of them, refusals that name the next step."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadScenario
from datasets.catalogue import datasets
from datasets.versions import fmu_description, plant_definition, plant_files, scenario_fields, scenario_folder
from datasets.versions.archives import files_of
from datasets.versions.archives.decompression import ByteSource
from datasets.versions.plants import AGGREGATIONS, Plant
from datasets.versions.scenarios import parse_description, validated
from datasets.versions.xml_scan import BadXml
from runtimes.harness.simulators.plant import signals
from runtimes.harness.simulators.plant.signals import Combination, Scores
from tests.archives import zipped
from tests.plants import COSIMULATION, PLANT, description

#: The start of a shared library for x86-64; nothing runs it here.
ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00" + bytes(44)
LIBRARY = {"2": "binaries/linux64/room.so", "3": "binaries/x86_64-linux/room.so"}


def source(content: bytes) -> ByteSource:
    return ByteSource(len(content), lambda start, stop: iter([content[start:stop]]))


def fmu(fmi: str = "2", files: Mapping[str, bytes] | None = None, **changes: str) -> ByteSource:
    own = {"modelDescription.xml": description(fmi, **changes), LIBRARY[fmi]: ELF}
    return source(zipped({**own, **(files or {})}))


def defined(plant: Mapping[str, Any], fmi: str = "2", **changes: str) -> dict[str, Any]:
    return plant_definition.definition(msgspec.convert(plant, Plant), plant_files.describe(fmu(fmi, **changes)))


@pytest.mark.parametrize("fmi", ["2", "3"])
def test_names_units_and_ranges_are_those_of_the_fmu_unless_the_dataset_says_otherwise(fmi: str) -> None:
    observation = ["T", {"name": "power", "unit": "kW", "low": 0, "high": 5}, "alarm"]
    interface = defined({**PLANT, "observation": observation}, fmi)["interface"]
    assert interface["observation"] == {
        "dtype": "float64",
        "shape": [3],
        "names": ["T", "power", "alarm"],
        "units": ["degC", "kW", ""],
        "low": [-50.0, 0.0, 0.0],
        "high": [200.0, 5.0, 1.0],
    }
    assert interface["action"]["low"] == [0.0, 0, 0] and interface["action"]["high"] == [1.0, 2, 1]


@pytest.mark.parametrize("fmi", ["2", "3"])
def test_all_outputs_are_observed_and_all_inputs_are_set_unless_some_are_named(fmi: str) -> None:
    plant = {"file": "room.fmu", "steps": 10}
    own = defined(plant, fmi)
    assert own["interface"]["observation"]["names"] == ["T", "trend[1]", "trend[2]", "count", "alarm"]
    assert own["interface"]["action"]["names"] == ["heating", "mode", "window", "outside"]
    assert own["dt"] == 60.0 and own["score"] is None and "failure" not in own
    assert [metric["name"] for metric in own["metrics"]] == ["length", "clipped_actions", "outcome"]


def test_parameters_are_those_of_simulations_too_and_outcomes_that_are_failures_are_named() -> None:
    own = defined(PLANT)
    assert own["params"]["insulation"] | {"description": ""} == {
        "type": "float",
        "default": None,
        "low": 0.1,
        "high": 10.0,
        "description": "",
    }
    assert own["params"].keys() == {"latency_steps", "insulation", "T", "outside"}
    assert own["failure"] == {"metric": "outcome", "in": ["overheated"]}
    assert own["score"]["metric"] == "return"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"observation": ["t"]}, "`observation`: the FMU has no variable 't'. Did you mean T?"),
        (
            {"observation": []},
            "`observation` lists no variable, and the FMU may have no outputs of numbers: export it with",
        ),
        ({"observation": ["label"]}, "'label' is of the type 'String', which has no numbers"),
        ({"observation": ["T", "T"]}, "`observation` lists 'T' twice"),
        ({"observation": ["heating"]}, "'heating' is set by the action; observe an output in its place"),
        ({"action": ["T"]}, "`action`: 'T' is neither an input of the FMU nor a tunable parameter"),
        ({"action": [{"name": "heating", "low": 2}]}, "the range of 'heating' is empty, 2 to 1"),
        ({"parameters": ["power"]}, "'power' cannot be set by scenarios: it has no start value that may be set"),
        ({"parameters": ["heating"]}, "'heating' cannot be set by scenarios: the action sets it"),
        ({"steps": 5}, "it has `steps`, their number, or `duration`, in seconds, and not both"),
        ({"duration": 90}, "a scenario has 1 to 1,000,000 whole steps; `steps` or `duration` / `step` is 1.5"),
        ({"duration": 1e308, "step": 0.5}, "`steps` or `duration` / `step` is 1.79769e+308"),
        ({"duration": None, "steps": 10**30}, "`steps` or `duration` / `step` is 1e+30"),
        ({"duration": None, "steps": 10**400}, "`steps` or `duration` / `step` is 1.79769e+308"),
        ({"step": 0}, "`step` is 1e-09 to 1e+09 seconds; not 0"),
        ({"step": -1}, "`step` is 1e-09 to 1e+09 seconds; not -1"),
        ({"step": 1e308}, "`step` is 1e-09 to 1e+09 seconds; not 1e+308"),
        ({"substeps": 0}, "`substeps` is 1 to 10,000"),
        (
            {"patience": 1e9},
            "`patience` and `deadline`, the seconds that a step of the plant and an action of the model may take",
        ),
        ({"signals": {"T": {}}}, "`signals`: 'T' is not a name"),
        ({"signals": {"mode": {}}}, "`signals`: the FMU has a variable mode"),
        ({"signals": {"a": {"linear": {"b": 1}}, "b": {}}}, "`signals.a`: the FMU has no variable 'b'"),
        ({"reward": "warmth"}, "`reward`: the FMU has no variable 'warmth'"),
        ({"metrics": [{"name": "length", "of": "T"}]}, "length is there already"),
        ({"metrics": [{"name": "x", "of": "T", "by": "median"}]}, "`by` is one of last, min, max"),
        ({"metrics": [{"name": "x", "of": "T", "title": "a\u202eb"}]}, "`title` of x has up to 100 characters"),
        ({"observation": [{"name": "T", "unit": "\x1b[2J"}]}, "`unit` of 'T' has up to 60 characters with glyphs"),
        ({"score": "power"}, "`score` is the name of a metric (return, discomfort, energy), not 'power'"),
        ({"ends": [{"of": "T", "outcome": "hot"}]}, "has neither `above` nor `below`"),
        ({"ends": [{"of": "T", "above": 1, "outcome": "crashed"}]}, "'crashed' is not a name of an outcome"),
    ],
)
def test_what_a_dataset_says_of_its_plant_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadScenario) as refused:
        defined({**PLANT, **changes})
    assert reason in str(refused.value.detail)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kinds": '<ModelExchange modelIdentifier="room"/>'}, "it is for model exchange only; export it for co-sim"),
        ({"kinds": '<CoSimulation modelIdentifier="../room"/>'}, "'../room' is not an identifier of C"),
        ({"kinds": '<CoSimulation modelIdentifier="den"/>'}, "it has no library binaries/linux64/den.so, only for"),
        ({"files": {LIBRARY["2"]: b"MZ"}}, "is not a shared library for Linux on x86-64"),
        ({"files": {"modelDescription.xml": b"<fmiModelDescription fmiVersion='1.0'/>"}}, "it is of FMI '1.0'; export"),
        ({"files": {"modelDescription.xml": b"<fmu/>"}}, "its root is <'fmu'>"),
        ({"files": {"modelDescription.xml": b"<!DOCTYPE a [<!ENTITY b 'c'>]><a/>"}}, "it declares a document type"),
        ({"files": {"modelDescription.xml": b"<fmi"}}, "it is not XML"),
        ({"more": '<ScalarVariable name="T" valueReference="1"><Real/></ScalarVariable>'}, "two variables with the"),
        ({"more": '<ScalarVariable name="x" valueReference="y"><Real/></ScalarVariable>'}, "is not a number"),
        ({"experiment": '<DefaultExperiment stepSize="often"/>'}, "`stepSize` of 'DefaultExperiment' is not a number"),
    ],
)
def test_an_fmu_that_cannot_be_a_plant_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadXml) as refused:
        plant_files.describe(fmu(**changes))
    assert reason in str(refused.value)


def test_an_array_that_is_too_long_is_refused_before_it_is_allocated() -> None:
    long = '<Float64 name="x" valueReference="9"><Dimension start="99999999999"/></Float64>'
    with pytest.raises(BadXml, match="an array has 1 to 4,096 numbers"):
        plant_files.describe(fmu("3", more=long))


def test_only_what_simulations_need_of_an_fmu_is_unpacked(tmp_path: Path) -> None:
    archive, folder = tmp_path / "room.fmu", tmp_path / "plant"
    others = {"sources/room.c": b"", "binaries/win64/room.dll": b"MZ", "documentation/index.html": b""}
    needed = {"modelDescription.xml": b"<x/>", LIBRARY["2"]: ELF, "resources/table.csv": b"1"}
    archive.write_bytes(zipped({**others, **needed}))
    folder.mkdir()
    plant_files.unpack(archive, folder)
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == set(needed)


def test_the_files_of_a_plant_reach_a_runner_without_a_shared_folder(tmp_path: Path) -> None:
    long = f"resources/{'a' * 120}/{'b' * 120}/ä.csv"
    (tmp_path / "room.fmu").write_bytes(zipped({"modelDescription.xml": b"<x/>", LIBRARY["2"]: ELF, long: b"1"}))
    (tmp_path / "lines").write_bytes(b'{"parameters": {"T": 3}}\n')
    own = scenario_folder.OwnFiles(tmp_path / "lines", {}, tmp_path / "room.fmu", defined(PLANT)["plant"])
    folder = scenario_folder.create(tmp_path / "plays", "room", datasets()["fmu"], own)
    packed = {file.path: b"".join(file.chunks) for file in files_of(source(scenario_folder.pack(folder)))}
    assert packed[f"plant/{long}"] == b"1" and packed[f"plant/{LIBRARY['2']}"] == ELF
    assert json.loads(packed["scenarios.ndjson"]) == {"parameters": {"T": 3}, "index": 0}
    assert not any(path.stat().st_mode & 0o222 for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"parameters": {"insulation": 11}}, "`parameters.insulation`: it lies in 0.1..10"),
        ({"parameters": {"insulation": "thick"}}, "`parameters.insulation` is not of type float"),
        ({"parameters": {"insulation": True}}, "`parameters.insulation` is not of type float"),
        ({"parameters": {"heating": 1}}, "`parameters.heating` is not allowed; allowed are: T, insulation, outside"),
        ({"file": "/etc/passwd"}, "`file` is not allowed"),
    ],
)
def test_scenarios_set_what_the_plant_declares_within_its_range(members: dict[str, Any], reason: str) -> None:
    plant = defined(PLANT)["plant"]
    assert list(validated([b'{"parameters": {"insulation": 2, "T": -4.5}}'], "fmu", plant=plant))
    with pytest.raises(BadScenario) as refused:
        list(validated([json.dumps(members).encode()], "fmu", plant=plant))
    assert reason in str(refused.value.detail)


def test_scenarios_set_arrays_of_their_length_and_truth_values() -> None:
    more = '<Float64 name="gains" valueReference="9" causality="parameter" variability="fixed" start="1 2 3">'
    more += '<Dimension start="3"/></Float64>'
    more += '<Boolean name="night" valueReference="209" causality="parameter" variability="fixed" start="true"/>'
    own = defined({**PLANT, "parameters": ["gains", "night"]}, "3", more=more)
    assert own["params"].keys() == {"latency_steps", "night"}, "a parameter of a simulation is one value"
    (scenario,) = validated([b'{"parameters": {"gains": [1, 2.5, 3], "night": false}}'], "fmu", plant=own["plant"])
    assert scenario["parameters"]["gains"] == [1, 2.5, 3]
    for wrong in (b"[1, 2]", b"[1, 2, []]", b"3"):
        with pytest.raises(BadScenario, match=r"parameters\.gains"):
            list(validated([b'{"parameters": {"gains": %s}}' % wrong], "fmu", plant=own["plant"]))


def test_a_dataset_with_a_plant_extends_the_template_and_no_other_dataset_does() -> None:
    with pytest.raises(BadScenario, match="datasets that extend fmu have a `plant`"):
        parse_description(b'{"extends": "fmu", "scenarios": "x"}')
    with pytest.raises(BadScenario, match="datasets that extend fmu have a `plant`"):
        parse_description(b'{"extends": "noop", "scenarios": "x", "plant": {"file": "a.fmu"}}')
    with pytest.raises(BadScenario, match=r"unknown field `stepsize` - at `\$.plant`"):
        parse_description(b'{"extends": "fmu", "scenarios": "x", "plant": {"file": "a.fmu", "stepsize": 1}}')
    assert scenario_fields.of("fmu") == {}


def test_each_aggregation_has_words_and_a_function() -> None:
    assert AGGREGATIONS.keys() == signals.AGGREGATIONS.keys()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(1e-3, 1e3))
def test_metrics_of_a_signal_agree_with_each_other(values: list[float], step: float) -> None:
    scores = Scores({name: ("x", name) for name in signals.AGGREGATIONS}, step)
    for value in values:
        scores.add({"x": value})
    found = {name: value for name, value in scores.metrics().items() if value is not None}
    assert found.keys() == signals.AGGREGATIONS.keys()
    near = pytest.approx
    assert found["min"] <= found["mean"] + 1e-6 and found["mean"] <= found["max"] + 1e-6
    assert found["integral"] == near(found["mean"] * len(values) * step) == near(found["sum"] * step)
    assert found["integral_square"] == near(found["rms"] ** 2 * len(values) * step)
    assert found["max_abs"] == max(abs(found["min"]), abs(found["max"])) >= found["mean_abs"] - 1e-6
    assert found["last"] == values[-1]


def test_a_metric_without_a_step_or_beyond_all_numbers_is_none() -> None:
    scores = Scores({"power": ("x", "integral_square")}, 1.0)
    assert scores.metrics() == {"power": None}
    scores.add({"x": 1e300})
    assert scores.metrics() == {"power": None}


def test_a_combination_is_a_constant_with_weighted_signals_and_squares() -> None:
    combination = Combination.of({"constant": 1.0, "linear": {"a": 2.0}, "quadratic": {"b": -3.0}})
    assert combination.value({"a": 5.0, "b": 2.0}) == 1 + 10 - 12


@given(st.binary(max_size=300))
def test_any_bytes_as_a_description_are_read_or_refused(content: bytes) -> None:
    try:
        fmu_description.read([b"<fmiModelDescription fmiVersion='2.0'>" + COSIMULATION.encode() + content])
    except BadXml:
        return
