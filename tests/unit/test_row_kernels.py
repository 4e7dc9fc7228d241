"""Row kernels: rows are computed together only if every number of them gives the bits that each gives by itself."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from runtimes.harness.model_server.row_kernels import draw_observations, kernel_of
from runtimes.harness.simulators.base import Interface, Space

WIDTH = 64
WEIGHTS = np.random.default_rng(7).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8
#: A function from the observations and the states of rows to their actions and next states.
Step = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
#: Seconds within which a comparison of small models ends on a busy machine.
PATIENCE = 120.0


def space(width: int, dtype: str = "float32", low: float = -1.0, high: float = 1.0) -> Space:
    names = tuple(f"x{at}" for at in range(width))
    lows, highs = (low,) * width, (high,) * width
    return Space(dtype=dtype, shape=(width,), names=names, units=("",) * width, low=lows, high=highs)


class Model:
    """A model of one row, which counts the calls of all rows in ``calls``."""

    def __init__(self, step: Step, calls: list[int], joins: bool) -> None:
        self.step, self.calls, self.joins = step, calls, joins
        self.reset(0)

    def reset(self, seed: int) -> None:
        self.state = np.zeros((1, WIDTH), np.float32)

    def act(self, observations: np.ndarray) -> bytes:
        return self.act_together([self], observations)

    def act_together(self, rows: "Sequence[Model]", observations: np.ndarray) -> bytes:
        self.calls.append(len(rows))
        actions, states = self.step(observations, np.concatenate([row.state for row in rows]))
        for row, state in zip(rows, states, strict=True):
            row.state = state[None]
        return actions.tobytes()


def models(step: Step, rows: int = 24, joins: bool = True) -> list[Any]:
    calls: list[int] = []
    return [Model(step, calls, joins) for _ in range(rows)]


def each(observations: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Return the products of rows, each in a call of its own, as all libraries of rows could."""
    return np.concatenate([row[None] @ WEIGHTS for row in observations + states])


def product(observations: np.ndarray, states: np.ndarray) -> np.ndarray:
    return (observations + states) @ WEIGHTS


def numbers(hidden: Callable[..., np.ndarray]) -> Step:
    return lambda observations, states: ((found := np.tanh(hidden(observations, states))), found)


def choices(hidden: Callable[..., np.ndarray]) -> Step:
    """The same policy, but for the index of its greatest number as the action."""

    def step(observations: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = np.tanh(hidden(observations, states))
        return found[:, :4].argmax(axis=1), found

    return step


NUMBERS = Interface(observation=space(WIDTH), action=space(WIDTH))
CHOICES = Interface(observation=space(WIDTH), action=space(1, "int64", 0, 3))


@pytest.mark.parametrize(("kind", "interface"), [(numbers, NUMBERS), (choices, CHOICES)], ids=["numbers", "choices"])
def test_rows_that_are_computed_equally_are_computed_together(kind: Any, interface: Interface) -> None:
    assert kernel_of(models(kind(each)), interface, PATIENCE) == "rows"


@pytest.mark.parametrize(("kind", "interface"), [(numbers, NUMBERS), (choices, CHOICES)], ids=["numbers", "choices"])
def test_a_product_that_rounds_differently_in_batches_is_computed_row_by_row(kind: Any, interface: Interface) -> None:
    """Few choices of few scenarios show it, those where two are almost equal, which no drawn observation is."""
    assert kernel_of(models(kind(product)), interface, PATIENCE) == "one"


def changed(of: Callable[[int], bool]) -> Step:
    """A policy whose last bit is another in calls of some numbers of rows."""

    def step(observations: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = each(observations, states)
        found[-1:, -1] = np.nextafter(found[-1:, -1], np.float32(of(len(observations))) * 9)
        return found, found

    return step


@pytest.mark.parametrize("count", range(2, 25))
def test_every_number_of_rows_is_compared(count: int) -> None:
    assert kernel_of(models(changed(lambda rows: rows == count)), NUMBERS, PATIENCE) == "one"


def test_a_state_that_is_mixed_up_is_noticed() -> None:
    def step(observations: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return states, observations[::-1]

    assert kernel_of(models(step), NUMBERS, PATIENCE) == "one"


def test_rows_that_are_mixed_only_for_large_observations_are_noticed() -> None:
    def step(observations: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return observations / max(np.float32(50), np.abs(observations).max()), states

    unbounded = space(WIDTH, low=-np.inf, high=np.inf)
    assert kernel_of(models(step), Interface(observation=unbounded, action=space(WIDTH)), PATIENCE) == "one"


def test_a_slow_model_is_not_asked_for_long() -> None:
    def step(observations: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        time.sleep(0.02 * len(observations))
        return observations, states

    slow = models(step, rows=64)
    assert kernel_of(slow, NUMBERS, patience=0.2) == "one"
    assert sum(slow[0].calls) <= 12


def test_large_observations_are_not_multiplied() -> None:
    large = models(numbers(each))
    assert kernel_of(large, Interface(observation=space(1 << 17), action=space(WIDTH)), PATIENCE) == "one"
    assert not large[0].calls


def test_a_model_that_fails_for_an_observation_is_computed_row_by_row() -> None:
    def step(observations: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if np.abs(observations).max() > 0.99:
            raise IndexError("no such place")
        return observations, states

    assert kernel_of(models(step), NUMBERS, PATIENCE) == "one"


@pytest.mark.parametrize(("rows", "joins"), [(1, True), (24, False)])
def test_models_that_cannot_be_joined_are_asked_nothing(rows: int, joins: bool) -> None:
    asked = models(numbers(each), rows, joins)
    assert kernel_of(asked, NUMBERS, PATIENCE) == "one"
    assert not asked[0].calls


@pytest.mark.parametrize("rows", [2, 3, 64, 100])
def test_a_comparison_takes_some_hundred_calls(rows: int) -> None:
    asked = models(numbers(each), rows)
    assert kernel_of(asked, NUMBERS, PATIENCE) == "rows"
    calls = asked[0].calls
    assert len(calls) < 700 and set(calls) == set(range(1, rows + 1))


@pytest.mark.parametrize(
    ("dtype", "low", "high", "least", "most"),
    [
        ("float32", -2.0, 5.0, -2.0, 5.0),
        ("float64", -np.inf, np.inf, -9e3, 9e3),
        ("float32", 0.0, np.inf, 0.0, 9e3),
        ("float32", -3e38, 3e38, -9e3, 9e3),
        ("uint8", 0.0, 255.0, 0.0, 255.0),
        ("bool", 0.0, 1.0, 0.0, 1.0),
        ("int16", 0.0, np.inf, 0.0, 9e3),
    ],
)
def test_observations_are_drawn_within_their_bounds(
    dtype: str, low: float, high: float, least: float, most: float
) -> None:
    found = draw_observations(space(4, dtype, low, high), 500)
    assert found.shape == (500, 4) and found.dtype == dtype
    assert least <= found.min() < found.max() <= most
    assert np.isfinite(found.astype(float)).all()
