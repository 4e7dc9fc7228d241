"""Sequential test of paired differences: error rate at any stopping time, exact continuation, symmetry, certainty."""

import json
import math

import numpy as np
import pytest
import scipy  # its submodules are imported on first use, not by every process that collects tests
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from core.domain.sequential_test import BLOCK, FRACTIONS, Decision, Plan, SequentialTest

Floats = NDArray[np.float64]

#: Values that meet: whole, tenths, and anything between.
shares = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.integers(-10, 10).map(lambda n: n / 10), st.floats(-1, 1))
difference_lists = st.lists(shares, min_size=1, max_size=40)


def played(differences: Floats | list[float], **plan: float | int | None) -> SequentialTest:
    return SequentialTest(plan=Plan(bound=1.0, **plan)).extend(differences)  # type: ignore[arg-type]


@given(difference_lists, st.lists(st.integers(1, 9)), st.booleans())
def test_batches_of_any_sizes_give_the_very_numbers_of_single_pairs(
    differences: list[float], sizes: list[int], in_list: bool
) -> None:
    pairs = len(differences) + 3 if in_list else None
    whole = played(differences, pairs=pairs, resolution=4)
    batched = singly = SequentialTest(plan=whole.plan)
    rest = list(differences)
    for size in [*sizes, len(differences)]:
        batched, rest = batched.extend(rest[:size]), rest[size:]
    for difference in differences:
        singly = singly.extend([difference])
    assert whole == batched == singly


def test_the_blocks_of_a_large_batch_give_the_very_numbers_of_small_batches() -> None:
    differences = np.random.default_rng(1).normal(0.02, 0.2, 2 * BLOCK + 17).clip(-1, 1)
    whole = played(differences)
    parts = SequentialTest(plan=whole.plan)
    for part in np.array_split(differences, 13):
        parts = parts.extend(part)
    assert whole == parts


@given(difference_lists, difference_lists, st.booleans())
def test_a_state_that_was_stored_as_json_continues_with_the_very_same_numbers(
    before: list[float], after: list[float], in_list: bool
) -> None:
    state = played(before, pairs=len(before) + len(after) if in_list else None, resolution=3)
    restored = SequentialTest.from_json(json.loads(json.dumps(state.to_json(), allow_nan=False)))
    assert restored == state and restored.extend(after) == state.extend(after)


def test_a_state_of_other_bets_is_refused() -> None:
    document = played([0.5]).to_json() | {"fractions": [0.5]}
    with pytest.raises(ValueError, match="replay the differences"):
        SequentialTest.from_json(document)


@given(difference_lists, st.booleans())
def test_swapping_the_models_mirrors_everything(differences: list[float], in_list: bool) -> None:
    pairs = len(differences) + 2 if in_list else None
    ours = played(differences, pairs=pairs, resolution=5)
    theirs = played([-difference for difference in differences], pairs=pairs, resolution=5)
    mirrored = {Decision.BETTER: Decision.WORSE, Decision.WORSE: Decision.BETTER}
    assert theirs.decision == mirrored.get(ours.decision, Decision.UNDECIDED)
    assert theirs.log_evidence == ours.log_evidence[::-1] and theirs.p_values == ours.p_values[::-1]
    assert theirs.interval == (-ours.interval[1], -ours.interval[0])


@given(difference_lists)
def test_what_a_prefix_of_a_list_makes_certain_is_the_sign_at_the_end(differences: list[float]) -> None:
    state = SequentialTest(plan=Plan(bound=1.0, pairs=len(differences), resolution=0, error_rate=1e-300))
    certain = Decision.UNDECIDED
    for difference in differences:  # so small an error rate leaves only certainty
        state = state.extend([difference])
        if math.inf in state.log_evidence and certain is Decision.UNDECIDED:
            certain = state.decision
    if certain is not Decision.UNDECIDED:
        assert state.decision is certain and 0.0 in state.p_values
    exact = math.fsum(differences)
    if abs(exact) > 1e-9:
        assert state.decision is (Decision.BETTER if exact > 0 else Decision.WORSE)


def test_a_decision_stays_while_further_pairs_of_a_sample_are_played() -> None:
    state = played([1.0] * 40)
    assert state.decision is Decision.BETTER and state.decided_at is not None and state.decided_at < 10
    later = state.extend([-1.0] * 400)
    assert (later.decision, later.decided_at) == (state.decision, state.decided_at)


def test_the_end_of_a_list_is_right_even_against_an_earlier_decision() -> None:
    worst_first = np.array([1.0] * 20 + [-1.0] * 30)
    state = played(worst_first[:20], pairs=50)
    assert state.decision is Decision.BETTER
    assert state.extend(worst_first[20:]).decision is Decision.WORSE
    assert state.extend(worst_first[20:]).interval == (-0.2, -0.2)


def test_models_that_are_equal_on_a_complete_list_stay_undecided() -> None:
    assert played([0.1, 0.2, -0.3], pairs=3).decision is Decision.UNDECIDED  # whose sum is 5.6e-17 in floats


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


#: Logarithms of the capital against a mean of 1/2 after 1, 10 and 40 values min(1, 1/4 + 3/4 (37 i mod 101) / 100):
#: mean over trunc_scale in FRACTIONS of `betting_mart(x, 0.5, N=N, theta=1 or 0, lambdas 1e9)` of confseq at 70b1ef3.
CONFSEQ = {
    None: (
        [0.02135778995264343, 1.081855825695119, 5.558075409152054],
        [-0.021823918730034076, -0.8408989703799687, -1.792002687543533],
    ),
    60: (
        [0.02135778995264343, 1.2098116119863163, 12.750895812923899],
        [-0.021823918730034076, -0.8611052055478466, -2.085556568248793],
    ),
}


@pytest.mark.parametrize("pairs", CONFSEQ)
def test_the_capital_is_that_of_the_authors_package(pairs: int | None) -> None:
    values = np.minimum(1, 0.25 + 0.75 * (37 * np.arange(1, 41) % 101) / 100)
    for at, better, worse in zip((1, 10, 40), *CONFSEQ[pairs], strict=True):
        assert played(2 * values[:at] - 1, pairs=pairs).log_evidence == pytest.approx((better, worse), rel=1e-12)


def test_the_capital_of_binary_differences_is_the_product_of_wins_and_losses() -> None:
    wins, losses = 30, 12
    state = played([1.0] * wins + [-1.0] * losses + [0.0] * 9)
    better = np.mean([(1 + f) ** wins * (1 - f) ** losses for f in FRACTIONS])
    worse = np.mean([(1 - f) ** wins * (1 + f) ** losses for f in FRACTIONS])
    assert state.log_evidence == pytest.approx((math.log(better), math.log(worse)), rel=1e-12)


def test_mean_and_deviation_are_those_of_numpy() -> None:
    differences = np.random.default_rng(2).uniform(-80, 100, 500)
    state = SequentialTest(plan=Plan(bound=100.0)).extend(differences)
    assert (state.mean, state.std) == pytest.approx((differences.mean(), differences.std(ddof=1)), rel=1e-12)


def test_the_interval_contains_zero_until_the_decision_and_not_afterwards() -> None:
    for seed in range(10):
        state = SequentialTest(plan=Plan(bound=1.0, resolution=10))
        for difference in np.random.default_rng(seed).normal(0.1, 0.3, 120).clip(-1, 1):
            state = state.extend([difference])
            low, high = state.interval
            assert (low < 0 < high) == (state.decision is Decision.UNDECIDED)


def test_evidence_that_is_not_there_has_a_p_value_of_1() -> None:
    assert SequentialTest(plan=Plan(bound=1.0)).p_values == (1.0, 1.0)
    assert played([0.0] * 20).p_values == (1.0, 1.0)


def decided(differences: Floats, pairs: int | None) -> Floats:
    """Return how many repetitions decided for better and for worse, at any pair before the end of a list."""
    counts = np.zeros(2)
    for row in differences:
        state = played(row, pairs=pairs, resolution=0)
        counts += (state.decided is Decision.BETTER, state.decided is Decision.WORSE)
    return counts


def kept(errors: float, repetitions: int, rate: float) -> bool:
    """Return whether so many errors are plausible at this rate: not beyond its quantile of 1 - 1e-6."""
    return bool(errors <= scipy.stats.binom.ppf(1 - 1e-6, repetitions, rate))


#: Distributions with a mean of 0; binary: a task fails or not; skewed: rare large losses.
NULLS = {
    "binary": lambda rng, shape: rng.choice([-1.0, 0.0, 1.0], shape, p=[0.15, 0.7, 0.15]),
    "continuous": lambda rng, shape: rng.normal(0, 0.3, shape).clip(-1, 1),
    "skewed": lambda rng, shape: rng.choice([-1.0, 1 / 19], shape, p=[0.05, 0.95]),
}


@pytest.mark.parametrize("kind", NULLS)
@pytest.mark.parametrize("in_list", [False, True], ids=["population", "list"])
def test_the_error_rate_is_kept_although_every_pair_is_looked_at_and_the_first_decision_counts(
    kind: str, in_list: bool
) -> None:
    repetitions, pairs, rng = 600, 200, np.random.default_rng(7)
    differences = NULLS[kind](rng, (repetitions, pairs))
    if in_list:  # a list whose mean is exactly 0, in a random order; the last pairs make it known that it is 0
        differences = rng.permuted(np.concatenate((differences, -differences), axis=1), axis=1)[:, : 2 * pairs - 40]
    better, worse = decided(differences, 2 * pairs if in_list else None)
    assert kept(better, repetitions, 0.025) and kept(worse, repetitions, 0.025)


@pytest.mark.parametrize("kind", NULLS)
@pytest.mark.parametrize("in_list", [False, True], ids=["population", "list"])
def test_the_error_rate_is_kept_in_many_repetitions_and_long_lists(kind: str, in_list: bool) -> None:
    repetitions, pairs, rng = 4000, 1000, np.random.default_rng(8)
    differences = NULLS[kind](rng, (repetitions, pairs))
    if in_list:
        differences = rng.permuted(np.concatenate((differences, -differences), axis=1), axis=1)[:, : 2 * pairs - 40]
    better, worse = decided(differences, 2 * pairs if in_list else None)
    assert kept(better, repetitions, 0.025) and kept(worse, repetitions, 0.025)


@pytest.mark.parametrize("in_list", [False, True], ids=["population", "list"])
def test_the_interval_contains_the_mean_at_all_times_at_once(in_list: bool) -> None:
    rng, repetitions, missed = np.random.default_rng(9), 200, 0
    for _ in range(repetitions):
        values = rng.choice([-1.0, 0.0, 1.0], 200, p=[0.1, 0.5, 0.4])
        state = played(values[:150], pairs=200 if in_list else None, resolution=20)
        mean = values.mean() if in_list else 0.3
        missed += not state.low - 1e-12 <= mean <= state.high + 1e-12  # intersected over time: one look sees all
    assert kept(missed, repetitions, 0.05)


def test_an_order_with_the_worst_first_breaks_the_guarantee() -> None:
    state = played([-1.0] * 30, pairs=60, resolution=0)
    assert state.decision is Decision.WORSE and state.extend([1.0] * 30).decision is Decision.UNDECIDED
