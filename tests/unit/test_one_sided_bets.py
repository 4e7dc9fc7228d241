"""Evidence by bets: error rate at any stopping time, exact continuation, certainty at the end of a list."""

import json
import math

import msgspec
import numpy as np
import pytest
import scipy  # its submodules are imported on first use, not by every process that collects tests
from hypothesis import given
from hypothesis import strategies as st

from core.domain.comparisons.one_sided_bets import FRACTIONS, Floats, OneSidedBets

#: Values that meet: whole, tenths, and anything between.
shares = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.integers(-10, 10).map(lambda n: n / 10), st.floats(-1, 1))
difference_lists = st.lists(shares, min_size=1, max_size=40)


def begun(pairs: int | None = None, error_rate: float = 0.05) -> OneSidedBets:
    return OneSidedBets(null=0.0, threshold=math.log(2 / error_rate), pairs=pairs)


def played(differences: Floats | list[float], pairs: int | None = None) -> tuple[OneSidedBets, OneSidedBets]:
    """Return the evidence for better and for worse."""
    values = np.array(differences)
    return begun(pairs).extend(values), begun(pairs).extend(-values)


@given(difference_lists, st.lists(st.integers(1, 9)), st.booleans())
def test_batches_of_any_sizes_give_the_very_numbers_of_single_pairs(
    differences: list[float], sizes: list[int], in_list: bool
) -> None:
    pairs = len(differences) + 3 if in_list else None
    whole = begun(pairs).extend(np.array(differences))
    batched = singly = begun(pairs)
    rest = list(differences)
    for size in [*sizes, len(differences)]:
        batched, rest = batched.extend(np.array(rest[:size])), rest[size:]
    for difference in differences:
        singly = singly.extend(np.array([difference]))
    assert whole == batched == singly


@given(difference_lists, difference_lists, st.booleans())
def test_evidence_that_was_stored_as_json_continues_with_the_very_same_numbers(
    before: list[float], after: list[float], in_list: bool
) -> None:
    state = begun(len(before) + len(after) if in_list else None).extend(np.array(before))
    restored = msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(state), allow_nan=False)), OneSidedBets)
    assert restored == state and restored.extend(np.array(after)) == state.extend(np.array(after))


@given(difference_lists)
def test_what_a_prefix_of_a_list_makes_certain_is_the_sign_at_the_end(differences: list[float]) -> None:
    certain = 0
    better = worse = begun(len(differences), error_rate=1e-300)  # so small an error rate leaves only certainty
    for difference in differences:
        better, worse = better.extend(np.array([difference])), worse.extend(np.array([-difference]))
        certain = certain or (better.shown_at is not None) - (worse.shown_at is not None)
        assert (better.log_evidence == math.inf) == (better.shown_at is not None)
    exact = math.fsum(differences)
    if abs(exact) > 1e-9:
        assert certain == (1 if exact > 0 else -1)


def test_what_was_shown_stays_shown_while_further_pairs_of_a_sample_are_played() -> None:
    state, _ = played([1.0] * 40)
    assert state.shown_at is not None and state.shown_at < 10
    assert state.extend(np.full(400, -1.0)).shown_at == state.shown_at


def test_models_that_are_equal_on_a_complete_list_are_not_told_apart() -> None:
    for side in played([0.1, 0.2, -0.3], pairs=3):  # whose sum is 5.6e-17 in floats
        assert side.shown_at is None


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
        sides = played(2 * values[:at] - 1, pairs)
        assert [side.log_evidence for side in sides] == pytest.approx([better, worse], rel=1e-12)


def test_the_capital_of_binary_differences_is_the_product_of_wins_and_losses() -> None:
    wins, losses = 30, 12
    sides = played([1.0] * wins + [-1.0] * losses + [0.0] * 9)
    better = np.mean([(1 + f) ** wins * (1 - f) ** losses for f in FRACTIONS])
    worse = np.mean([(1 - f) ** wins * (1 + f) ** losses for f in FRACTIONS])
    assert [side.log_evidence for side in sides] == pytest.approx([math.log(better), math.log(worse)], rel=1e-12)


def decided(differences: Floats, pairs: int | None) -> Floats:
    """Return in how many repetitions better and worse were shown, at any pair before the end of a list."""
    counts = np.zeros(2)
    for row in differences:
        counts += [side.shown_at is not None for side in played(row, pairs)]
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


def test_an_order_with_the_worst_first_breaks_the_guarantee() -> None:
    _, worse = played([-1.0] * 30, pairs=60)
    assert worse.shown_at is not None and worse.extend(np.full(30, -1.0)).total == 0
