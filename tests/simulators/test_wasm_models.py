"""WebAssembly modules as models: written as text or in C, run by Wasmtime in the sandbox, faults named."""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from runtimes import catalogue
from runtimes.harness.models.wasi import OUTPUT
from tests.cached import tool
from tests.contracts.harness_processes import evaluator_pair, play_of, refusal_of, worker_spec
from tests.simulators.test_gymnasium import BASELINES, best_level, site, spec_of

PYTHON = b"""
class Model:
    def act(self, observation):
        return 2.0 * observation + 1.0
"""
#: The body of `windtunnel_act`: the action is twice the observation, and the number that $offset computes.
DOUBLE = """
    (loop $next
        (f64.store (local.get $a) (f64.add (f64.mul (f64.const 2) (f64.load (local.get $o))) (call $offset)))
        (local.set $o (i32.add (local.get $o) (i32.const 8)))
        (local.set $a (i32.add (local.get $a) (i32.const 8)))
        (br_if $next (local.tee $m (i32.sub (local.get $m) (i32.const 1)))))
    (i32.const 0)"""


def module(
    act: str = DOUBLE, offset: str = "(f64.const 1)", create: str = "(i32.const 8)", more: str = "", imports: str = ""
) -> bytes:
    """Return a module of noop, of which a test changes parts."""
    return translated(
        f"""(module {imports}
        (memory (export "memory") 2)
        (global $calls (mut f64) (f64.const 0))
        (func $offset (result f64) {offset})
        (func (export "windtunnel_create") (param $text i32) (result i32) {create})
        (func (export "windtunnel_reset") (param $model i32) (param $seed i64)
            (i64.store (local.get $model) (local.get $seed)))
        (func (export "windtunnel_act")
            (param $model i32) (param $o i32) (param $n i32) (param $a i32) (param $m i32) (result i32) {act})
        {more})"""
    )


def wasm_site() -> str:
    return site(catalogue.runtime("wasm").formats["wasm"].environment)


@cache
def translated(text: str) -> bytes:
    """Translate WebAssembly text with the Wasmtime of the format's environment."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import wasmtime\n"
    program += "sys.stdout.buffer.write(wasmtime.wat2wasm(sys.stdin.read()))"
    command = [sys.executable, "-S", "-c", program, wasm_site()]
    return subprocess.run(command, input=text.encode(), check=True, stdout=subprocess.PIPE).stdout


def spec() -> Any:
    return worker_spec(format="wasm", model_server_site=wasm_site(), sandbox=best_level())


def results_of(model: bytes, *parts: tuple[int, int], **changes: Any) -> dict[int, dict[str, Any]]:
    with evaluator_pair(spec(), model, play_of(**changes)) as pair:
        return {result["task"]: result | {"timing": None} for part in parts for result in pair.run(*part)}


def failures_of(model: bytes) -> tuple[set[str], str]:
    """Return the statuses of two tasks, and the error of the first."""
    with evaluator_pair(spec(), model, play_of()) as pair:
        results = pair.run(0, 2)
    return {result["status"] for result in results}, results[0]["error"]


def refusal(model: bytes) -> str:
    return refusal_of(spec(), model, play_of())


def test_a_module_has_the_results_of_the_same_policy_in_python() -> None:
    with evaluator_pair(worker_spec(sandbox=best_level()), PYTHON, play_of()) as pair:
        expected = {result["task"]: result | {"timing": None} for result in pair.run(0, 4)}
    assert results_of(module(), (0, 4)) == expected


COUNTS = "(global.set $calls (f64.add (global.get $calls) (f64.const 1))) (global.get $calls)"
#: Counts in its memory, and adds the low bits of the seed.
COUNTS_IN_MEMORY = """
    (f64.store (i32.const 64) (f64.add (f64.load (i32.const 64)) (f64.const 1)))
    (f64.add (f64.load (i32.const 64)) (f64.convert_i64_u (i64.and (i64.load (i32.const 8)) (i64.const 7))))"""
WASI = '(import "wasi_snapshot_preview1" "{}" (func ${} (param {}) (result i32)))'
RANDOM = WASI.format("random_get", "random", "i32 i32") + WASI.format("clock_time_get", "clock", "i32 i64 i32")
#: A random byte, and the microseconds of both clocks.
DRAWS = """
    (drop (call $random (i32.const 16) (i32.const 1)))
    (drop (call $clock (i32.const 0) (i64.const 0) (i32.const 24)))
    (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 32)))
    (f64.add (f64.convert_i32_u (i32.load8_u (i32.const 16)))
        (f64.convert_i64_u (i64.add (i64.load (i32.const 24)) (i64.load (i32.const 32)))))"""


@pytest.mark.parametrize(
    ("offset", "imports"), [(COUNTS, ""), (COUNTS_IN_MEMORY, ""), (DRAWS, RANDOM)], ids=["global", "memory", "wasi"]
)
@pytest.mark.parametrize("batch", [1, 3])
def test_nothing_is_left_of_a_scenario_in_any_order(offset: str, imports: str, batch: int) -> None:
    model = module(offset=offset, imports=imports)
    changes: dict[str, Any] = {"params": {"batch": batch}} if batch > 1 else {}
    results = results_of(model, (0, 6), **changes)
    assert {result["status"] for result in results.values()} == {"ok"}
    assert results == results_of(model, (3, 6), (0, 3), **changes)
    assert results[0] == results_of(model, (0, 6), (0, 1), **changes)[0], "again, after other scenarios"


def test_random_numbers_are_those_of_the_scenario() -> None:
    metrics = [str(result["metrics"]) for result in results_of(module(offset=DRAWS, imports=RANDOM), (0, 6)).values()]
    assert len(set(metrics)) > 1


FILES = WASI.format("path_open", "open", "i32 i32 i32 i32 i32 i64 i64 i32 i32")
FILES += WASI.format("sock_send", "send", "i32 i32 i32 i32 i32") + WASI.format("fd_prestat_get", "folder", "i32 i32")
OPEN = "(call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0) (i64.const -1) (i64.const -1)"
OPEN += " (i32.const 0) (i32.const 16))"
SEND = "(call $send (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 16))"


@pytest.mark.parametrize(
    ("act", "code"), [(OPEN, 52), (SEND, 52), ("(call $folder (i32.const 3) (i32.const 0))", 8)], ids=lambda value: ""
)
def test_there_are_no_files_and_no_network(act: str, code: int) -> None:
    statuses, error = failures_of(module(act=act, imports=FILES))
    assert statuses == {"failed"} and f"windtunnel_act returned {code}" in error


WRITE = WASI.format("fd_write", "write", "i32 i32 i32 i32")
EXIT = '(import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))'
FOREVER = "(loop $again (br $again)) (i32.const 0)"
DEEP = '(func $deep (export "deep") (result i32) (i32.add (call $deep) (i32.const 1)))'


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ({"act": "unreachable"}, "windtunnel_act trapped: it aborts or panics (unreachable); its memory has 0 MB"),
        ({"act": "(i32.load (i32.const -8))"}, "windtunnel_act trapped: it reads or writes beyond its memory"),
        ({"act": "(i32.div_u (i32.const 1) (i32.const 0))"}, "trapped: it divides an integer by zero"),
        ({"act": "(call $deep)", "more": DEEP}, "windtunnel_act trapped in deep: its stack is full (at most 1 MB)"),
        ({"act": FOREVER}, "windtunnel_act takes too long: it used its fuel of 400,000,000 instructions"),
        ({"act": "(i32.const 7)"}, "CallFailed: windtunnel_act returned 7"),
        (
            {
                "act": "(i32.const 7)",
                "more": '(data (i32.const 96) "no route\\00")'
                '(func (export "windtunnel_error") (param i32) (result i32) (i32.const 96))',
            },
            "windtunnel_act returned 7: no route",
        ),
        ({"act": "(call $exit (i32.const 3)) (i32.const 0)", "imports": EXIT}, "it exited with code 3"),
        ({"act": "(i32.add (memory.grow (i32.const 8192)) (i32.const 1))"}, ""),
    ],
    ids=["unreachable", "memory", "division", "stack", "fuel", "code", "text", "exit", "growth"],
)
def test_a_fault_of_a_function_is_the_result_of_its_task(parts: dict[str, str], error: str) -> None:
    statuses, text = failures_of(module(**parts))
    if not error:  # memory.grow answers -1 beyond the limit, and the action was not set
        assert statuses == {"invalid"} and "the action is not finite" in text
    else:
        assert statuses == {"failed"} and error in text


def test_a_memory_grows_to_the_limit_page_by_page() -> None:
    grow = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))"
    size = "(f64.convert_i32_u (memory.size))"  # in pages of 64 KB
    results = results_of(module(act=grow + DOUBLE, offset=size), (0, 2))
    assert {result["status"] for result in results.values()} == {"ok"}
    assert results == results_of(module(offset="(f64.const 8192)"), (0, 2))


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"create": "(i32.const 0)"}, "windtunnel_create returned NULL"),
        ({"create": "unreachable"}, "windtunnel_create trapped: it aborts or panics"),
        ({"create": f"{FOREVER}"}, "windtunnel_create takes too long: it used its fuel of 2,000,000,000"),
        ({"imports": '(import "env" "emscripten_log" (func))'}, "the module imports env.emscripten_log; only"),
        ({"more": '(func (export "malloc") (param i64) (result i64) (i64.const 0))'}, "malloc is (i64) -> i64; "),
        ({"more": '(func (export "malloc") (param i32) (result i32) (i32.const 0))'}, "malloc gave no room for"),
        ({"more": "(memory 16384)"}, "the module cannot be started"),
    ],
    ids=["null", "trap", "fuel", "import", "type", "allocation", "memory"],
)
def test_a_module_that_cannot_be_used_is_refused_with_the_reason(parts: dict[str, str], reason: str) -> None:
    assert reason in refusal(module(**parts))


def test_a_module_without_the_functions_or_damaged_is_refused_with_the_reason() -> None:
    assert "does not export windtunnel_create, windtunnel_reset, windtunnel_act" in refusal(translated("(module)"))
    program = '(module (func (export "_start")))'
    assert "the module is a program with `_start`; build a reactor" in refusal(translated(program))
    assert "does not compile the module: " in refusal(module()[:-20])
    assert "the file is not a WebAssembly module" in refusal(b"\0asm\x02\0\0\0")


def test_output_of_a_module_is_in_the_log_to_a_limit() -> None:
    write = "(i32.store (i32.const 40) (i32.const 96)) (i32.store (i32.const 44) (i32.const 65536))"
    write += "(drop (call $write (i32.const 2) (i32.const 40) (i32.const 1) (i32.const 48)))"
    text = '(data (i32.const 96) "seen by the author")'  # and 64 KB of zeros
    with evaluator_pair(spec(), module(act=write + DOUBLE, imports=WRITE, more=text), play_of()) as pair:
        assert [result["status"] for result in pair.run(0, 2)] == ["ok"] * 2
        output = pair.output_with("seen by the author", 2)
    assert output.count("\0") < 2 * OUTPUT


#: How the examples are built, by the name of the source.
BUILDS = {
    "C without a library": ["--target=wasm32", "-nostdlib", "-Wl,--no-entry", "examples/wasm/cartpole.c"],
    "C with WASI": ["--target=wasm32-wasi", "-mexec-model=reactor", "examples/native/cartpole.c"],
}


@pytest.mark.parametrize("name", BUILDS)
def test_an_example_in_c_has_the_results_of_the_baseline_in_python(name: str, tmp_path: Path) -> None:
    output = tmp_path / "policy.wasm"
    subprocess.run([tool("wasm"), "-O2", "-I", "runtimes/native", "-o", str(output), *BUILDS[name]], check=True)
    check_example(output.read_bytes())


def test_the_example_in_rust_has_the_results_of_the_baseline_in_python(tmp_path: Path) -> None:
    tool("wasm")
    package = shutil.copytree("examples/native/rust", tmp_path / "rust")  # cargo writes a Cargo.lock
    for target in ("wasm32-unknown-unknown", "wasm32-wasip1"):
        command = ["cargo", "build", "--release", "--offline", "--quiet", "--target", target]
        subprocess.run(command, cwd=package, check=True)
        check_example((package / f"target/{target}/release/policy.wasm").read_bytes())


def check_example(model: bytes) -> None:
    changes = {"format": "wasm", "isolation": "launch", "model_server_site": wasm_site()}
    with evaluator_pair(spec_of("cartpole", **changes), model, play_of("cartpole")) as pair:
        results = [result | {"timing": None} for result in pair.run(0, 6)]
    baseline = BASELINES["cartpole"].read_bytes()
    with evaluator_pair(spec_of("cartpole"), baseline, play_of("cartpole", isolation="scenario")) as pair:
        assert results == [result | {"timing": None} for result in pair.run(0, 6)]
