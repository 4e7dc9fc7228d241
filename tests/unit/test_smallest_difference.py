"""Smallest difference that would have been shown: its power, simulated, and its limits."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from core.domain.comparisons.one_sided_bets import OneSidedBets
from core.domain.comparisons.smallest_difference import smallest_difference

Floats = NDArray[np.float64]


#: Logarithm of the e-value at an error rate of 5 %.
THRESHOLD = math.log(40)


def smallest_of(std: float, count: int, pairs: int | None = None, threshold: float = THRESHOLD) -> float | None:
    return smallest_difference(count, std, log_threshold=threshold, pairs=pairs)


def binary(rng: np.random.Generator, mean: float, std: float, shape: tuple[int, int]) -> Floats:
    unequal = std * std + mean * mean
    values = rng.random(shape)
    return np.where(values < (unequal + mean) / 2, 1.0, np.where(values < unequal, -1.0, 0.0))


def normal(rng: np.random.Generator, mean: float, std: float, shape: tuple[int, int]) -> Floats:
    return rng.normal(mean, std, shape).clip(-1, 1)


@pytest.mark.parametrize(
    ("distribution", "std", "count", "pairs"),
    [
        (normal, 0.2, 288, None),
        (normal, 0.05, 288, None),
        (normal, 0.3, 48, None),
        (binary, math.sqrt(0.3), 288, None),
        (binary, math.sqrt(0.5), 48, None),
        (binary, math.sqrt(0.05), 500, None),
        (normal, 0.2, 144, 288),
        (binary, math.sqrt(0.3), 144, 288),
        (binary, math.sqrt(0.3), 30, 48),
    ],
)
def test_the_smallest_difference_is_shown_with_80_to_95_percent_power(
    distribution: object, std: float, count: int, pairs: int | None
) -> None:
    smallest = smallest_of(std, count, pairs)
    assert smallest is not None and callable(distribution)
    repetitions, rng = 500, np.random.default_rng(3)
    differences = distribution(rng, smallest, std, (repetitions, pairs or count))
    bets = OneSidedBets(null=0.0, threshold=math.log(2 / 0.05), pairs=pairs)
    shown = [bets.extend(row[:count]).log_evidence >= bets.threshold for row in differences]
    assert 0.77 <= np.mean(shown) <= 0.96  # a deviation is 0.02


def test_more_pairs_show_smaller_differences_and_a_higher_threshold_only_larger() -> None:
    few, many = smallest_of(0.2, 50), smallest_of(0.2, 500)
    stricter = smallest_of(0.2, 500, threshold=8.0)
    assert few is not None and many is not None and stricter is not None
    assert many < stricter < few


def test_pairs_of_a_list_show_more_than_the_same_pairs_of_a_population() -> None:
    of_population, of_list = smallest_of(0.2, 200), smallest_of(0.2, 200, pairs=288)
    assert of_population is not None and of_list is not None and of_list < of_population


def test_a_few_pairs_show_no_difference_at_all_and_a_complete_list_any() -> None:
    assert smallest_of(0.2, 1) is None and smallest_of(0.5, 5) is None
    assert smallest_of(0.05, 2, pairs=2) == 0.0
