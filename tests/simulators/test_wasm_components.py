"""WebAssembly components as models: written as text, in Rust or in Python, run by Wasmtime in the sandbox."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cached import tool
from tests.contracts.harness_processes import evaluator_pair, play_of, worker_spec
from tests.simulators.test_gymnasium import best_level
from tests.simulators.test_wasm_models import (
    PYTHON,
    check_example,
    failures_of,
    refusal,
    results_of,
    spec,
    translated,
)

WIT, EXAMPLES = Path("runtimes/native/windtunnel-model.wit"), Path("examples/wasm")
#: The action is twice the observation, and the number that $offset computes. The list is at 16, and the case at 12: ok.
DOUBLE = """
    (i32.store (i32.const 12) (i32.const 0)) (i32.store (i32.const 16) (local.get $o))
    (i32.store (i32.const 20) (local.get $n))
    (loop $next
        (f64.store (local.get $o) (f64.add (f64.mul (f64.const 2) (f64.load (local.get $o))) (call $offset)))
        (local.set $o (i32.add (local.get $o) (i32.const 8)))
        (br_if $next (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    (i32.const 12)"""
#: A function that returns ok.
CREATED = "(i32.store (i32.const 12) (i32.const 0)) (i32.const 12)"
#: A function that returns the text at 96, of 8 bytes, as an error.
REFUSE = "(i32.store (i32.const 12) (i32.const 1)) (i32.store (i32.const 16) (i32.const 96))"
REFUSE += " (i32.store (i32.const 20) (i32.const 8)) (i32.const 12)"
ACT = '(param "observation" (list f64)) (result (result (list f64) (error string)))'


def component(
    act: str = DOUBLE,
    offset: str = "(f64.const 1)",
    create: str = CREATED,
    more: str = "",
    imports: str = "",
    lowered: str = "",
    interface: bool = False,
) -> bytes:
    """Return a component of noop, of which a test changes parts. ``lowered``: functions of the host for its module."""
    host = f'(with "host" (instance {lowered}))' if lowered else ""
    lifted = '(memory (core memory $m "memory")) (realloc (core func $m "realloc"))'
    exports = f"""
        (func $create (param "description" string) (result (result (error string)))
            (canon lift (core func $m "create") {lifted}))
        (func $reset (param "seed" u64) (canon lift (core func $m "reset")))
        (func $act {ACT} (canon lift (core func $m "act") {lifted}))"""
    names = ("create", "reset", "act")
    members = "".join(f'(export "{name}" (func ${name}))' for name in names)
    if interface:
        exports += f'(instance $policy {members}) (export "example:policy/policy@0.1.0" (instance $policy))'
    else:
        exports += members
    return translated(
        f"""(component {imports}
        (core module $module {more}
            (memory (export "memory") 2)
            (data (i32.const 96) "no route")
            (global $calls (mut f64) (f64.const 0))
            (global $seed (mut i64) (i64.const 0))
            (func $offset (result f64) {offset})
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
            (func (export "create") (param i32 i32) (result i32) {create})
            (func (export "reset") (param i64) (global.set $seed (local.get 0)))
            (func $act (export "act") (param $o i32) (param $n i32) (result i32) {act}))
        (core instance $m (instantiate $module {host}))
        {exports})"""
    )


@pytest.mark.parametrize("interface", [False, True])
def test_a_component_has_the_results_of_the_same_policy_in_python(interface: bool) -> None:
    with evaluator_pair(worker_spec(sandbox=best_level()), PYTHON, play_of()) as pair:
        expected = {result["task"]: result | {"timing": None} for result in pair.run(0, 4)}
    assert results_of(component(interface=interface), (0, 4)) == expected


COUNTS = "(global.set $calls (f64.add (global.get $calls) (f64.const 1)))"
COUNTS += "(f64.add (global.get $calls) (f64.convert_i64_u (i64.and (global.get $seed) (i64.const 7))))"
#: Two interfaces of WASI, in two of its versions.
RANDOM = """
    (import "wasi:random/random@0.2.0" (instance $random (export "get-random-u64" (func (result u64)))))
    (import "wasi:clocks/monotonic-clock@0.2.6" (instance $clock (export "now" (func (result u64)))))
    (core func $draw (canon lower (func $random "get-random-u64")))
    (core func $now (canon lower (func $clock "now")))"""
LOWERED = '(export "draw" (func $draw)) (export "now" (func $now))'
HOST = '(import "host" "draw" (func $draw (result i64))) (import "host" "now" (func $now (result i64)))'
#: A random number below 256, and the nanoseconds of the clock.
DRAWS = "(f64.convert_i64_u (i64.add (i64.and (call $draw) (i64.const 255)) (call $now)))"


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "parts",
    [{"offset": COUNTS}, {"offset": DRAWS, "imports": RANDOM, "lowered": LOWERED, "more": HOST}],
    ids=["global", "wasi"],
)
def test_nothing_is_left_of_a_scenario_in_any_order(parts: dict[str, str], batch: int) -> None:
    model = component(**parts)  # type: ignore[arg-type] # texts
    changes: dict[str, Any] = {"params": {"batch": batch}} if batch > 1 else {}
    results = results_of(model, (0, 6), **changes)
    assert {result["status"] for result in results.values()} == {"ok"}
    assert len({str(result["metrics"]) for result in results.values()}) > 1, "seeds and numbers are the scenario's"
    assert results == results_of(model, (3, 6), (0, 3), **changes)
    assert results[0] == results_of(model, (0, 6), (0, 1), **changes)[0], "again, after other scenarios"


FOREVER = "(loop $again (br $again)) (i32.const 0)"
DEEP = "(func $deep (result i32) (i32.add (call $deep) (i32.const 1)))"
EMPTY = "(i64.store (i32.const 12) (i64.const 0)) (i64.store (i32.const 16) (i64.const 0)) (i32.const 12)"
BEYOND = "(i32.store (i32.const 12) (i32.const 0)) (i32.store (i32.const 16) (i32.const -8))"
BEYOND += " (i32.store (i32.const 20) (i32.const 9)) (i32.const 12)"
EXIT = """
    (import "wasi:cli/exit@0.2.3" (instance $cli (export "exit" (func (param "status" (result))))))
    (core func $exit (canon lower (func $cli "exit")))"""


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ({"act": "unreachable"}, "act trapped: it aborts or panics (unreachable); its memory may have 512 MB"),
        ({"act": "(i32.div_u (i32.const 1) (i32.const 0))"}, "act trapped: it divides an integer by zero"),
        ({"act": "(call $deep)", "more": DEEP}, "act trapped in deep: its stack is full (at most 1 MB)"),
        ({"act": FOREVER}, "act takes too long: it used its fuel of 400,000,000 instructions"),
        ({"act": BEYOND}, "act trapped: list pointer/length out of bounds of memory"),
        ({"act": REFUSE}, "act failed: no route"),
        (
            {
                "act": "(call $exit (i32.const 1)) (i32.const 0)",
                "imports": EXIT,
                "lowered": '(export "exit" (func $exit))',
                "more": '(import "host" "exit" (func $exit (param i32)))',
            },
            "act ended the program: it exited with code 1",
        ),
    ],
    ids=["unreachable", "division", "stack", "fuel", "list", "text", "exit"],
)
def test_a_fault_of_a_function_is_the_result_of_its_task(parts: dict[str, str], error: str) -> None:
    statuses, text = failures_of(component(**parts))  # type: ignore[arg-type] # texts
    assert statuses == {"failed"} and error in text


def test_an_action_of_another_length_is_invalid() -> None:
    statuses, text = failures_of(component(act=EMPTY))
    assert statuses == {"invalid"} and "act returned 0 numbers; an action has" in text


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"create": REFUSE}, "create failed: no route"),
        ({"create": FOREVER}, "create takes too long: it used its fuel of 2,000,000,000"),
        ({"imports": '(import "example:net/sockets" (instance))'}, "the component imports example:net/sockets; only"),
        ({"imports": '(import "log" (func (param "text" string)))'}, "the component imports log; only interfaces"),
        ({"more": "(memory 16384)"}, "the start of the component trapped: memory minimum size"),
    ],
    ids=["text", "start", "interface", "function", "memory"],
)
def test_a_component_that_cannot_be_used_is_refused_with_the_reason(parts: dict[str, str], reason: str) -> None:
    assert reason in refusal(component(**parts))  # type: ignore[arg-type] # texts


def test_a_component_without_the_functions_or_damaged_is_refused_with_the_reason() -> None:
    reason = "the component does not export act of `windtunnel-model.wit`, but nothing"
    assert reason in refusal(translated("(component)"))
    narrow = """(component (core module $module (func (export "act") (param f32) (result f32) (local.get 0)))
        (core instance $m (instantiate $module))
        (func (export "act") (param "observation" f32) (result f32) (canon lift (core func $m "act"))))"""
    assert "the component's act is func(f32) -> f32; `windtunnel-model.wit` declares it as func(list<f64>)" in refusal(
        translated(narrow)
    )
    assert "does not compile the component: " in refusal(component()[:-20])


def test_the_example_in_rust_has_the_results_of_the_baseline_in_python(tmp_path: Path) -> None:
    tool("wasm")
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--target", "wasm32-wasip2"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(tmp_path)}
    subprocess.run(command, cwd=EXAMPLES / "component", check=True, env=environment)
    check_example((tmp_path / "wasm32-wasip2/release/policy.wasm").read_bytes())


def componentized(folder: Path, module: str = "policy") -> bytes:
    """Build a component of a Python module in a folder."""
    options = ["-d", str(WIT.absolute()), "-w", "model", "componentize", module, "-o", "policy.wasm"]
    subprocess.run([tool("componentize-py"), "--quiet", *options], cwd=folder, check=True)
    return (folder / "policy.wasm").read_bytes()


def test_the_example_in_python_has_the_results_of_the_baseline_in_python(tmp_path: Path) -> None:
    (tmp_path / "policy.py").write_bytes((EXAMPLES / "policy.py").read_bytes())
    check_example(componentized(tmp_path))


#: Looks at what is outside: an error if there is something. The action is of a clock and of a generator.
LOOKS = """
import os, random, socket, sys, time
import wit_world

class WitWorld(wit_world.WitWorld):
    def create(self, description):
        pass

    def reset(self, seed):
        print("seen by the author", flush=True)

    def act(self, observation):
        assert not os.environ and not sys.argv and sys.stdin.read() == "", "there are variables, arguments or input"
        for look in (
            lambda: open("/etc/passwd"),
            lambda: os.listdir("."),
            lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
            lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        ):
            try:
                look()
            except OSError:
                continue
            raise AssertionError("there are files or a network")
        begun = time.monotonic()
        time.sleep(3600)
        assert 3600 <= time.monotonic() - begun < 3601 and time.time() < 10**6
        number = int.from_bytes(os.urandom(2), "big") + time.monotonic()
        return [2.0 * value + number for value in observation]
"""


def test_a_component_sees_no_files_no_network_and_a_clock_and_numbers_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "policy.py").write_text(LOOKS)
    model = componentized(tmp_path)
    with evaluator_pair(spec(), model, play_of()) as pair:
        results = {result["task"]: result | {"timing": None} for result in pair.run(0, 4)}
        pair.output_with("seen by the author")
    assert {result["status"] for result in results.values()} == {"ok"}, results
    assert len({str(result["metrics"]) for result in results.values()}) == 4
    assert results == results_of(model, (2, 4), (0, 2))
