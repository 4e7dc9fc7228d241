"""ONNX models that common libraries write (tests/contracts/onnx_models), run by a model server in its sandbox."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtimes import catalogue
from runtimes.harness.model_server import model_faults
from runtimes.harness.model_server.model_server_client import ModelServerClient
from runtimes.harness.models import onnx
from runtimes.harness.runner.processes import WorkerSpec
from runtimes.harness.simulators.base import Space
from tests.archives import zipped
from tests.contracts import graphs
from tests.contracts.harness_processes import evaluator_pair, play_of, refusal_of
from tests.contracts.task_orders import results_in_every_order
from tests.contracts.test_model_server import (
    ModelServerKind,
    interface,
    kind_of,
    loaded,
    observations,
    open_file_of,
    running_model_server,
)
from tests.simulators.test_gymnasium import outcomes, site, spec_of

MODELS = Path(__file__).parents[1] / "contracts" / "onnx_models"


def model(name: str) -> bytes:
    return (MODELS / f"{name}.onnx").read_bytes()


@cache
def onnx_site() -> str:
    return site(catalogue.runtime("onnx").formats["onnx"].environment)


def onnx_spec(dataset: str) -> WorkerSpec:
    return spec_of(dataset, model_server_site=onnx_site(), format="onnx", isolation="launch")


def refusal(source: bytes, dataset: str = "cartpole", **play: Any) -> str:
    """Return the reason for which a model is refused."""
    return refusal_of(onnx_spec(dataset), source, play_of(dataset, **play))


@pytest.mark.parametrize("name", ["classifier", "regressor"])
def test_a_policy_of_scikit_learn_balances_the_pole(name: str) -> None:
    """Its action is the first of several outputs and an int64, or it is in double precision."""
    with evaluator_pair(onnx_spec("cartpole"), model(name), play_of("cartpole")) as pair:
        assert outcomes(pair.run(0, 5)) == ["balanced"] * 5


@pytest.mark.parametrize("batch", [1, 3])
def test_a_recurrent_policy_gives_equal_results_in_any_order_and_on_any_worker(batch: int) -> None:
    in_order, backwards, on_four_workers = results_in_every_order(
        onnx_spec("cartpole"), model("lstm"), dataset="cartpole", batch=batch
    )
    assert backwards == in_order
    assert on_four_workers == in_order
    assert all(b'"status":"ok"' in line for line in in_order)
    assert len(set(in_order)) == len(in_order)


WEIGHTS = (MODELS / "elsewhere.data").read_bytes()


def test_an_archive_has_a_graph_and_its_weights_in_another_file() -> None:
    spec, play = onnx_spec("cartpole"), play_of("cartpole")
    with evaluator_pair(spec, model("lstm"), play) as pair:
        whole = [result | {"timing": None} for result in pair.run(0, 6)]
    parts = {"elsewhere.data": WEIGHTS, "policy.onnx": model("weights_elsewhere")}
    chosen = {"elsewhere.data": WEIGHTS, "model.onnx": model("weights_elsewhere"), "other.onnx": b""}
    for files in (parts, chosen):
        with evaluator_pair(spec, zipped(files), play) as pair:
            assert [result | {"timing": None} for result in pair.run(0, 6)] == whole


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (
            {"policy/policy.onnx": b"x", "notes": b"x"},
            "the archive has no .onnx file at its top; pack the folder that it lies in",
        ),
        ({"a.onnx": b"x", "b.onnx": b"y"}, "2 graphs at its top (a.onnx, b.onnx); name the one to run `model.onnx`"),
        ({"policy.onnx": b""}, "the archive's `policy.onnx` is empty"),
        ({"policy.onnx": model("weights_elsewhere")}, "does not load the model: "),
        ({"policy.onnx": model("weights_elsewhere"), "elsewhere.data": WEIGHTS[:100]}, "does not load the model: "),
    ],
    ids=["folder", "two", "empty", "missing", "short"],
)
def test_an_archive_that_cannot_be_used_is_refused_with_the_reason(files: dict[str, bytes], reason: str) -> None:
    assert reason in refusal(zipped(files))


def test_weights_outside_of_the_archive_are_not_read() -> None:
    pointing = model("weights_elsewhere").replace(b"elsewhere.data", b"/dev//././zero")
    assert "does not load the model: " in refusal(zipped({"policy.onnx": pointing}))


def test_a_recurrent_policys_results_do_not_depend_on_its_neighbours_in_a_batch() -> None:
    alone, side_by_side = (
        next(results_in_every_order(onnx_spec("cartpole"), model("lstm"), dataset="cartpole", batch=batch))
        for batch in (1, 4)
    )
    assert side_by_side == alone


def test_a_recurrent_state_is_fed_back_until_the_reset(request: pytest.FixtureRequest) -> None:
    kind = replace(kind_of("onnx", request), model=lambda: model("gru"))
    with loaded(kind, batch=2) as (model_server, _):
        sequences = []
        for seed in (1, 2, 3):
            model_server.ready(seed)
            sequences.append([model_server.act(observations(2))[0].copy() for _ in range(4)])
            model_server.end(None)
    for sequence in sequences[1:]:
        assert np.array_equal(sequence, sequences[0])
    assert len({step.tobytes() for step in sequences[0]}) == 4, "the state is not fed back"


def test_a_state_begins_with_the_value_of_the_metadata(request: pytest.FixtureRequest) -> None:
    first_actions = []
    for initial in (b"0.5", b"0.0"):
        changed = model("gru").replace(b'"initial": 0.5', b'"initial": ' + initial)
        kind = replace(kind_of("onnx", request), model=lambda changed=changed: changed)
        with loaded(kind) as (model_server, _):
            model_server.ready(1)
            first_actions.append(model_server.act(observations())[0].copy())
    assert not np.array_equal(*first_actions)


@contextmanager
def loaded_for(name: str, kind: ModelServerKind, action: Space, batch: int = 1) -> Iterator[ModelServerClient]:
    """Load a model in a model server without a sandbox, for the action space."""
    with running_model_server(kind) as process, open_file_of(model(name)) as file:
        client = ModelServerClient(process.socket, replace(interface(), action=action), batch=batch, deadline=20.0)
        client.hello()
        client.load("onnx", {}, file)
        yield client
        client.close()


def test_the_models_description_lists_inputs_outputs_and_state(request: pytest.FixtureRequest) -> None:
    push = Space(dtype="int64", shape=(1,), names=("push",), units=("",), low=(0.0,), high=(1.0,))
    kind = kind_of("onnx", request)
    with running_model_server(kind) as process, open_file_of(model("lstm")) as file:
        client = ModelServerClient(process.socket, replace(interface(), action=push), batch=1, deadline=20.0)
        client.hello()
        info = client.load("onnx", {}, file)
        client.close()
    assert str(info.pop("library")).startswith("onnxruntime 1.")
    assert info == {
        "inputs": "state_in_0 float32[1,n,8], obs float32[n,4], state_in_1 float32[1,n,8]",
        "outputs": "action_dist_inputs float32[n,2], state_out_0 float32[1,n,8], state_out_1 float32[1,n,8],"
        " actions int64[n]",
        "observation": "obs",
        "action": "actions",
        "state": "state_in_0 from state_out_0, state_in_1 from state_out_1",
    }


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32"])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_the_index_of_the_best_action_is_taken_for_a_discrete_space(
    request: pytest.FixtureRequest, dtype: str, shape: tuple[int, ...]
) -> None:
    """`lstm` answers int64[n]."""
    action = Space(dtype=dtype, shape=shape, names=("push",), units=("",), low=(0.0,), high=(1.0,))
    with loaded_for("lstm", kind_of("onnx", request), action, batch=2) as client:
        client.ready(1)
        answers = [client.act(observations(2))[0].copy() for _ in range(6)]
    assert {(answer.dtype, answer.shape) for answer in answers} == {(np.dtype(dtype), (2, *shape))}
    assert {value for answer in answers for value in answer.reshape(-1).tolist()} == {0, 1}


def best_of(shape: str) -> bytes:
    """Return a graph that answers the index of the largest number observed, an int64 of this shape."""
    import onnx as library

    node, value = library.helper.make_node, library.helper.make_tensor_value_info
    flat = [node("Reshape", ["observation", "all"], ["flat"]), node("ArgMax", ["flat"], ["action"], axis=0, keepdims=0)]
    nodes = {
        "[]": flat,
        "[1]": [flat[0], node("ArgMax", ["flat"], ["action"], axis=0, keepdims=1)],
        "[n]": [node("ArgMax", ["observation"], ["action"], axis=1, keepdims=0)],
        "[n,1]": [node("ArgMax", ["observation"], ["action"], axis=1, keepdims=1)],
    }[shape]
    declared: list[Any] = [] if shape == "[]" else [part if part == "n" else 1 for part in shape[1:-1].split(",")]
    graph = library.helper.make_graph(
        nodes,
        "best",
        [value("observation", library.TensorProto.FLOAT, ["n", 4])],
        [value("action", library.TensorProto.INT64, declared)],
        [library.helper.make_tensor("all", library.TensorProto.INT64, [1], [-1])],
    )
    opsets = [library.helper.make_opsetid("", 21)]
    return bytes(library.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


@pytest.mark.parametrize("shape", ["[]", "[1]", "[n]", "[n,1]"])
def test_an_index_of_any_shape_is_taken_and_one_that_the_choice_does_not_have_is_clipped(shape: str) -> None:
    """The index of the largest of four numbers is 0 to 3; cartpole has two actions."""
    with evaluator_pair(onnx_spec("cartpole"), best_of(shape), play_of("cartpole")) as pair:
        results = pair.run(0, 12)
    assert {result["status"] for result in results} == {"ok"}
    assert max(result["metrics"]["length"] for result in results) > 1, "no index is taken"
    assert sum(result["metrics"]["clipped_actions"] for result in results) > 0


@pytest.mark.parametrize(("dtype", "value"), [("uint8", 300), ("uint8", -1), ("int16", 40_000), ("float32", 2**25)])
def test_an_integer_that_the_space_does_not_have_is_invalid_and_named(
    request: pytest.FixtureRequest, dtype: str, value: int
) -> None:
    action = replace(interface().action, dtype=dtype)
    seen = np.array([[1, 2, value, 4]], np.float32)
    with loaded_for("whole_numbers", kind_of("onnx", request), action) as client:
        client.ready(1)
        with pytest.raises(model_faults.WrongAnswer, match=rf"answered {value} \(int64\), .* the space's {dtype}"):
            client.act(seen)
        client.end(None)
        client.ready(2)
        assert client.act(np.array([[1, 2, 3, 4]], np.float32))[0].tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("scores", "if these are the scores of the 2 actions, export the index of the best one (add ArgMax"),
        ("unpaired", "input state_in_1 float32[1,n,8] is neither the observation (obs) nor a state"),
        ("written_by_default", "its IR version is 14; at most 13 is supported. Write it with"),
        ("weights_elsewhere", "its weights are in another file. Send a zip with both"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_what_to_export(name: str, reason: str) -> None:
    assert reason in refusal(model(name))


def test_the_documented_limits_are_those_of_the_environments_onnxruntime() -> None:
    """A newer model is refused with the limits; the newest runs. A new lock changes the numbers in onnx.py."""
    newest = graphs.onnx(ir_version=onnx.NEWEST_IR, opset=onnx.NEWEST_OPSET, domains={"ai.onnx.ml": 5})
    with evaluator_pair(onnx_spec("noop"), newest, play_of()) as pair:
        assert [result["status"] for result in pair.run(0, 1)] == ["ok"]
    newer_ir = refusal(graphs.onnx(ir_version=onnx.NEWEST_IR + 1), "noop")
    assert f"its IR version is {onnx.NEWEST_IR + 1}; at most {onnx.NEWEST_IR} is supported" in newer_ir
    newer_opset = refusal(graphs.onnx(opset=onnx.NEWEST_OPSET + 1), "noop")
    assert f"at most {onnx.NEWEST_OPSET} is supported. Export it with opset_version={onnx.NEWEST_OPSET}" in newer_opset
    newer_domain = refusal(graphs.onnx(domains={"ai.onnx.ml": 99}), "noop")
    assert 'its opset of ai.onnx.ml is 99; at most 5 is supported. Export it with target_opset={"": ' in newer_domain
    oldest = graphs.onnx(opset=onnx.OLDEST_OPSET)
    with evaluator_pair(onnx_spec("noop"), oldest, play_of()) as pair:
        assert [result["status"] for result in pair.run(0, 1)] == ["ok"]
