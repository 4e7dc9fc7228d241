"""Confidence sequence of the mean difference: coverage at all pairs together, exact continuation, symmetry."""

import json
import math

import msgspec
import numpy as np
import pytest
import scipy  # its submodules are imported on first use, not by every process that collects tests
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from core.domain.comparisons.confidence_sequence import BLOCK, ConfidenceSequence, Plan
from core.domain.comparisons.one_sided_bets import OneSidedBets

Floats = NDArray[np.float64]

#: Values that meet: whole, tenths, and anything between.
shares = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.integers(-10, 10).map(lambda n: n / 10), st.floats(-1, 1))
difference_lists = st.lists(shares, min_size=1, max_size=40)


def played(differences: Floats | list[float], **plan: float | int | None) -> ConfidenceSequence:
    return ConfidenceSequence(plan=Plan(bound=1.0, **plan)).extend(differences)  # type: ignore[arg-type]


@given(difference_lists, st.lists(st.integers(1, 9)), st.booleans())
def test_batches_of_any_sizes_give_the_very_numbers_of_single_pairs(
    differences: list[float], sizes: list[int], in_list: bool
) -> None:
    pairs = len(differences) + 3 if in_list else None
    whole = played(differences, pairs=pairs, resolution=4)
    batched = singly = ConfidenceSequence(plan=whole.plan)
    rest = list(differences)
    for size in [*sizes, len(differences)]:
        batched, rest = batched.extend(rest[:size]), rest[size:]
    for difference in differences:
        singly = singly.extend([difference])
    assert whole == batched == singly


def test_the_blocks_of_a_large_batch_give_the_very_numbers_of_small_batches() -> None:
    differences = np.random.default_rng(1).normal(0.02, 0.2, 2 * BLOCK + 17).clip(-1, 1)
    whole = played(differences)
    parts = ConfidenceSequence(plan=whole.plan)
    for part in np.array_split(differences, 13):
        parts = parts.extend(part)
    assert whole == parts


@given(difference_lists, difference_lists, st.booleans())
def test_a_state_that_was_stored_as_json_continues_with_the_very_same_numbers(
    before: list[float], after: list[float], in_list: bool
) -> None:
    state = played(before, pairs=len(before) + len(after) if in_list else None, resolution=3)
    restored = msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(state), allow_nan=False)), ConfidenceSequence)
    assert restored == state and restored.extend(after) == state.extend(after)


def test_a_state_of_other_bets_is_refused() -> None:
    document = msgspec.to_builtins(played([0.5])) | {"fractions": [0.5]}
    with pytest.raises(ValueError, match="replay the differences"):
        msgspec.convert(document, ConfidenceSequence)


@given(difference_lists, st.booleans())
def test_swapping_the_models_mirrors_everything(differences: list[float], in_list: bool) -> None:
    pairs = len(differences) + 2 if in_list else None
    ours = played(differences, pairs=pairs, resolution=5)
    theirs = played([-difference for difference in differences], pairs=pairs, resolution=5)
    assert theirs.sign == -ours.sign and theirs.std == ours.std
    assert theirs.interval == (-ours.interval[1], -ours.interval[0])


@pytest.mark.parametrize("differences", [[math.nan], [1.1], [-math.inf]])
def test_a_difference_outside_of_the_bound_is_refused(differences: list[float]) -> None:
    with pytest.raises(ValueError, match="between -1 and 1"):
        played(differences)


def test_more_pairs_than_the_list_has_are_refused() -> None:
    with pytest.raises(ValueError, match="2 pairs; 3"):
        played([0.0] * 3, pairs=2)


@pytest.mark.parametrize(("name", "value"), [("bound", 0.0), ("error_rate", 1.0), ("pairs", 0), ("resolution", -1)])
def test_a_plan_that_makes_no_sense_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError):
        Plan(**{"bound": 1.0, name: value})  # type: ignore[arg-type]


def test_mean_and_deviation_are_those_of_numpy() -> None:
    differences = np.random.default_rng(2).uniform(-80, 100, 500)
    state = ConfidenceSequence(plan=Plan(bound=100.0)).extend(differences)
    assert (state.mean, state.std) == pytest.approx((differences.mean(), differences.std(ddof=1)), rel=1e-12)


def kept(errors: float, repetitions: int, rate: float) -> bool:
    """Return whether so many errors are plausible at this rate: not beyond its quantile of 1 - 1e-6."""
    return bool(errors <= scipy.stats.binom.ppf(1 - 1e-6, repetitions, rate))


@pytest.mark.parametrize("in_list", [False, True], ids=["population", "list"])
def test_the_interval_contains_the_mean_at_all_times_at_once(in_list: bool) -> None:
    rng, repetitions, missed = np.random.default_rng(9), 200, 0
    for _ in range(repetitions):
        values = rng.choice([-1.0, 0.0, 1.0], 200, p=[0.1, 0.5, 0.4])
        state = played(values[:150], pairs=200 if in_list else None, resolution=20)
        mean = values.mean() if in_list else 0.3
        missed += not state.low - 1e-12 <= mean <= state.high + 1e-12  # intersected over time: one look sees all
    assert kept(missed, repetitions, 0.05)


def test_the_interval_contains_zero_until_bets_show_a_side_and_not_afterwards() -> None:
    for seed in range(10):
        state = ConfidenceSequence(plan=Plan(bound=1.0, resolution=10))
        better = worse = OneSidedBets(null=0.0, threshold=state.plan.log_threshold)
        for difference in np.random.default_rng(seed).normal(0.1, 0.3, (120, 1)).clip(-1, 1):
            state = state.extend(difference)
            better, worse = better.extend(difference), worse.extend(-difference)
            low, high = state.interval
            assert (low < 0 < high) == (better.shown_at is None and worse.shown_at is None)


def test_the_interval_of_a_complete_list_is_its_mean_even_against_what_was_shown_before() -> None:
    worst_first = [1.0] * 20 + [-1.0] * 30
    assert played(worst_first[:20], pairs=50).interval[0] > 0
    assert played(worst_first, pairs=50).interval == (-0.2, -0.2)
