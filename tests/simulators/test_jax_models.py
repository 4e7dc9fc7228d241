"""Functions of JAX as models, each serialized by jax.export and run in the sandbox."""

import subprocess
import sys
from pathlib import Path

import pytest

from runtimes.formats import detect
from tests.simulators.test_estimator_models import refusal, run, site_of

#: Serializes `function` for arrays of these types; `b` is the size of the batch.
EXPORT = """
import sys
sys.path.insert(0, sys.argv[1])
import jax
import jax.numpy as jnp
from jax import export
jax.config.update("jax_enable_x64", True)
(b,) = export.symbolic_shape("b")
weights = jnp.array([0.02, 0.05, 1.0, 0.5], jnp.float32)
S = jax.ShapeDtypeStruct
observed = S((b, 4), jnp.float32)
options = {"platforms": ["cpu"]}
CODE
open(sys.argv[2], "wb").write(export.export(jax.jit(function), **options)(*arguments).serialize())
"""
POLICY = """
def function(observation):
    return (observation @ weights > 0).astype(jnp.int32)
arguments = [observed]
"""
#: Decides by a smoothed observation, so that the first steps of a scenario depend on what is left of the last.
RECURRENT = """
def function(observation, state):
    mean = 0.2 * state["mean"] + 0.8 * observation
    count = state["count"] + 1
    push = (mean @ weights > 0) ^ (count[:, 0] % 7 == 0)
    return push.astype(jnp.int32), {"mean": mean, "count": count}
arguments = [observed, {"mean": observed, "count": S((b, 1), jnp.int64)}]
"""
#: The same by names.
NAMED = """
def function(inputs):
    mean = 0.2 * inputs["mean_in"] + 0.8 * inputs["observation"]
    return {"value": mean[:, 0], "mean_out": mean, "action": (mean @ weights > 0).astype(jnp.int64)}
arguments = [{"observation": observed, "mean_in": observed}]
"""
#: Draws from a key that is part of the state, by either of JAX's generators, and uses its library of linear algebra.
DRAWING = """
def function(observation, state):
    key = jax.random.wrap_key_data(state["key"], impl=IMPL)
    key, part = jax.random.split(key)
    noise = jax.random.normal(part, (4,), jnp.float32)
    values, _ = jnp.linalg.eigh(jnp.eye(4, dtype=jnp.float32) + 0.01 * jnp.outer(noise, noise))
    push = (jax.lax.top_k(observation @ weights, 1)[0] + 0.001 * values[0] * noise[0] > 0)
    return jnp.broadcast_to(push, (1,)).astype(jnp.int32), {"key": jax.random.key_data(key)}
arguments = [S((1, 4), jnp.float32), {"key": S((WORDS,), jnp.uint32)}]
"""
FIXED = POLICY.replace("[observed]", "[S((1, 4), jnp.float64)]").replace("weights", "weights.astype(float)")
GOOD = {
    "policy": POLICY,
    "recurrent": RECURRENT,
    "named": NAMED,
    "float64 and a fixed batch": FIXED,
    "threefry": DRAWING.replace("IMPL", "'threefry2x32'").replace("WORDS", "2"),
    "rbg": DRAWING.replace("IMPL", "'rbg'").replace("WORDS", "4"),
}


def exported(code: str, folder: Path) -> bytes:
    """Serialize a function with the format's own environment."""
    path = folder / "saved"
    command = [sys.executable, "-S", "-c", EXPORT.replace("CODE", code), site_of("jax"), str(path)]
    subprocess.run(command, check=True)
    return path.read_bytes()


@pytest.mark.parametrize("name", GOOD)
def test_a_function_is_recognised_plays_and_has_equal_results_in_any_order(name: str, tmp_path: Path) -> None:
    model = exported(GOOD[name], tmp_path)
    assert detect(tmp_path / "saved") == "jax"
    results = run("jax", model, (0, 4))
    assert {result["status"] for result in results.values()} == {"ok"}
    assert min(result["metrics"]["length"] for result in results.values()) > 20, "it holds the pole for a while"
    assert results == run("jax", model, (2, 4), (0, 2))
    assert results[0] == run("jax", model, (0, 4), (0, 1))[0], "again, after other scenarios"


BAD: dict[str, tuple[str, str]] = {
    "platform": (
        POLICY + 'options = {"platforms": ["cuda"]}',
        "the model was exported for cuda; export it for process",
    ),
    "input": (
        POLICY.replace("[observed]", "[S((b, 3), jnp.float32)]").replace("weights", "weights[:3]"),
        "the model's input is float32[n,3]; the dataset observes float32[4]",
    ),
    "state": (
        "def function(observation, state):\n    return observation[:, 0]\narguments = [observed, observed]",
        "the model has 2 inputs and 1 outputs: a function (observation, state) -> (action, state)",
    ),
    "shape": (
        "def function(observation, state):\n    return state[:, 0], state[:, :2]\narguments = [observed, observed]",
        "the model's state arg1 is float32[n,4], and its output out1 is float32[n,2]; what is fed back has to have",
    ),
    "generator of the process": (
        "def function(observation):\n    drawn = jax.lax.rng_uniform(0.0, 1.0, (4,))\n"
        "    return (observation @ weights + drawn[0] > 0.5).astype(jnp.int32)\narguments = [observed]",
        "because of its operations stablehlo.rng: they keep a state",
    ),
    "memory of others": (
        "def function(observation):\n    found = jax.ffi.ffi_call('AllocateBuffer', S((4,), jnp.float32))()\n"
        "    return (observation @ weights + found[0] > 0).astype(jnp.int32)\narguments = [observed]",
        "because of its operations custom_call @AllocateBuffer: they keep a state",
    ),
    "code of the process": (
        "def function(observation):\n"
        "    called = jax.ffi.ffi_call('my_kernel', S(observation.shape, jnp.float32))(observation)\n"
        "    return (called @ weights > 0).astype(jnp.int32)\narguments = [observed]\n"
        "options['disabled_checks'] = [export.DisabledSafetyCheck.custom_call('my_kernel')]",
        "because of its operations custom_call @my_kernel: they keep a state",
    ),
    "output": (
        "def function(observation):\n    return observation[:, :2]\narguments = [observed]",
        "if these are the scores of the 2 actions, export the index of the best one",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_function_that_cannot_be_used_is_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    code, reason = BAD[name]
    assert reason in refusal("jax", exported(code, tmp_path))


def test_a_damaged_file_is_refused_with_the_version(tmp_path: Path) -> None:
    model = exported(POLICY, tmp_path)
    for damaged in (model[:600], b"x" * 2000):
        assert "does not load the model: " in refusal("jax", damaged)
