"""Worlds of each simulator: side by side, scenarios have the results and traces that each has by itself."""

import json
import os
import signal
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from datasets.catalogue import datasets
from runtimes.harness.runner.processes import WorkerSpec
from runtimes.harness.simulators.base import Interface
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of, worker_spec
from tests.contracts.test_evaluator import without_timing
from tests.simulators.test_gymnasium import best_level
from tests.simulators.test_onnx_models import model, onnx_site, onnx_spec

TASKS = 40


def graph_of(interface: Interface, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray[Any, Any]]) -> bytes:
    """Return a graph from "observation" to "action", with any number of rows."""
    described = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, *space.shape])
        for name, space in (("observation", interface.observation), ("action", interface.action))
    ]
    initializers = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "policy", described[:1], described[1:], initializers)
    written: bytes = helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    ).SerializeToString()
    return written


def policy(interface: Interface, width: int = 64) -> bytes:
    """Return a policy of two layers with drawn weights, whose actions lie within their bounds."""
    random, space = np.random.default_rng(0), interface.action
    low, high = np.maximum(space.low, -1.0), np.minimum(space.high, 8.0)
    weights = {
        "first": random.standard_normal((interface.observation.items, width)) / 4,
        "second": random.standard_normal((width, space.items)) / 4,
        "scale": (high - low) / 2,
        "middle": (high + low) / 2,
    }
    nodes = [
        helper.make_node("Flatten", ["observation"], ["flat"]),
        helper.make_node("MatMul", ["flat", "first"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "second"], ["c"]),
        helper.make_node("Tanh", ["c"], ["d"]),
        helper.make_node("Mul", ["d", "scale"], ["e"]),
        helper.make_node("Add", ["e", "middle"], ["action"]),
    ]
    return graph_of(interface, nodes, weights)


def run(spec: WorkerSpec, source: bytes, dataset: str, worlds: int | None, **changes: Any) -> tuple[Any, ...]:
    """Return the results without timing, the traces, the most worlds of a result, and the kernels."""
    play = play_of(dataset, worlds=worlds, record="all", select={"range": [0, TASKS]}, **changes)
    with evaluator_pair(spec, source, play) as pair:
        lines = pair.run_lines(0, TASKS)
    timings = [json.loads(line)["timing"] for line in lines.splitlines()]
    kernels = {timing["kernel"] for timing in timings if timing["worlds"] > 1}
    return without_timing(lines), pair.artifacts, max(timing["worlds"] for timing in timings), kernels


@pytest.mark.parametrize(
    "dataset",
    ["cartpole", "highway", "mujoco_hopper", "pettingzoo_multiwalker", "pettingzoo_simple_spread"],
)
def test_results_and_traces_of_a_simulator_do_not_depend_on_the_number_of_worlds(dataset: str) -> None:
    definition = datasets()[dataset].definition
    source = policy(Interface.of(definition["interface"]))
    alone, traces, most, _ = run(onnx_spec(dataset), source, dataset, 1)
    assert most == 1 and len(traces) == (TASKS if definition.get("record", True) else 0)
    for worlds in (7, 64):
        results, same, most, kernels = run(onnx_spec(dataset), source, dataset, worlds)
        assert results == alone and same == traces
        assert min(worlds, TASKS // 2) <= most <= worlds and kernels == {"rows"}
    trusted = replace(onnx_spec(dataset), trusted=True)
    for worlds in (1, 16):
        results, same, most, kernels = run(trusted, source, dataset, worlds, trusted=True)
        assert results == alone and same == traces
        assert (worlds == 1) == (most == 1) and kernels == (set() if worlds == 1 else {"rows"})


@pytest.mark.parametrize(("name", "dataset"), [("lstm", "cartpole"), ("classifier", "cartpole"), ("gru", "noop")])
def test_a_policys_results_do_not_depend_on_the_number_of_worlds(name: str, dataset: str) -> None:
    spec = onnx_spec(dataset) if dataset == "cartpole" else noop_spec()
    changes = {} if dataset == "cartpole" else {"definition": noop()["definition"]}
    alone, traces, _, _ = run(spec, model(name), dataset, 1, **changes)
    for worlds in (2, 7, 64, None):
        results, same, most, kernels = run(spec, model(name), dataset, worlds, **changes)
        assert results == alone and same == traces
        assert most > 1 or worlds is None, "of its own accord it depends on how much a comparison takes"
        assert kernels <= {"one", "rows"}, "which of them depends on the processor"


def noop(**changes: Any) -> dict[str, Any]:
    definition = dict(play_of()["definition"]) | {"steps": 12}
    return play_of(definition=definition, select={"range": [0, TASKS]}, **changes)


def noop_spec() -> WorkerSpec:
    return worker_spec(model_server_site=onnx_site(), format="onnx", sandbox=best_level())


def test_an_action_that_is_not_finite_in_one_world_of_many_is_the_fault_of_that_one_alone() -> None:
    interface = Interface.of(noop()["definition"]["interface"])
    # The root of a negative number, in the few scenarios whose observation is that large.
    nodes = [
        helper.make_node("Sub", ["limit", "observation"], ["rest"]),
        helper.make_node("Sqrt", ["rest"], ["action"]),
    ]
    source = graph_of(interface, nodes, {"limit": np.full(4, 0.98)})
    runs = []
    for worlds in (1, 16):
        with evaluator_pair(noop_spec(), source, noop(worlds=worlds)) as pair:
            runs.append(pair.run(0, TASKS))
    without = [[result | {"timing": None} for result in results] for results in runs]
    assert without[0] == without[1]
    invalid = [result for result in runs[1] if result["status"] == "invalid"]
    assert 0 < len(invalid) < TASKS / 4 and max(result["timing"]["worlds"] for result in invalid) > 1
    assert all("the action is not finite" in result["error"] for result in invalid)


def test_a_model_server_that_is_killed_with_many_worlds_changes_no_result() -> None:
    interface = Interface.of(datasets()["cartpole"].definition["interface"])
    play = play_of("cartpole", worlds=16, select={"range": [0, 2000]})

    victims: list[int] = []

    def kill(pair: EvaluatorPair) -> None:
        if (server := len(pair.model_servers)) < 3 and server not in victims:
            victims.append(server)
            os.kill(pair.model_servers[-1].process.pid, signal.SIGKILL)

    with evaluator_pair(onnx_spec("cartpole"), policy(interface), play) as pair:
        killed = pair.run_lines(0, 2000, flush=0.1, reported=lambda batch: kill(pair))
        assert victims == [1, 2] and len(pair.needs) == 2
    with evaluator_pair(onnx_spec("cartpole"), policy(interface), play) as pair:
        undisturbed = pair.run_lines(0, 2000)
    assert without_timing(killed) == without_timing(undisturbed)


def test_the_evaluator_waits_less_than_once_and_a_half_for_all_actions_of_its_worlds() -> None:
    """Its voluntary switches (proc_pid_status(5)) at each step of a world: an exchange is one switch."""
    worlds = 16
    with evaluator_pair(noop_spec(), model_of_noop(), noop(worlds=worlds)) as pair:
        pair.run(0, TASKS)
        before = voluntary_switches(pair.evaluator.process.pid)
        results = pair.run(0, TASKS)
        switches = voluntary_switches(pair.evaluator.process.pid) - before
    assert max(result["timing"]["worlds"] for result in results) == worlds
    assert switches / (TASKS * 12) < 1.5 / (worlds / 2), "worlds double from one, and drain: half of them on average"


def model_of_noop() -> bytes:
    return policy(Interface.of(noop()["definition"]["interface"]))


def voluntary_switches(process: int) -> int:
    with open(f"/proc/{process}/status") as status:
        return int(next(line.split()[1] for line in status if line.startswith("voluntary_ctxt_switches")))
