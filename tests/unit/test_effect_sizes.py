"""Effect sizes and their intervals, beside scipy, statsmodels, published tables, and formulas written out."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from core.domain.results.effect_sizes import (
    Effect,
    cramers_v,
    epsilon_squared,
    epsilon_squared_effect,
    mid_ranks,
    rank_biserial,
    rate_difference,
    spearman,
)
from core.domain.results.intervals import Z
from core.domain.results.scenario_intervals import UnitValues

results = st.lists(st.tuples(st.integers(-3, 3).map(float), st.booleans()), min_size=4, max_size=40).filter(
    lambda rows: 0 < sum(failed for _, failed in rows) < len(rows)
)


def sorted_results(rows: list[tuple[float, bool]]) -> tuple[np.ndarray, np.ndarray]:
    values, failed = zip(*sorted(rows), strict=True)
    return np.array(values), np.array(failed)


def of_tasks(values: np.ndarray, failed: np.ndarray) -> Effect:
    """Return the effect of scenarios with one task each."""
    return rank_biserial(values, failed.astype(float), (~failed).astype(float))


def rates(hits: int, trials: int) -> UnitValues:
    return UnitValues(np.repeat([1.0, 0.0], [hits, trials - hits]), np.ones(trials))


@given(results)
def test_the_rank_biserial_correlation_is_that_of_the_mann_whitney_statistic(rows: list[tuple[float, bool]]) -> None:
    values, failed = sorted_results(rows)
    statistic = scipy.stats.mannwhitneyu(values[failed], values[~failed], method="asymptotic").statistic
    expected = 2 * statistic / (failed.sum() * (~failed).sum()) - 1
    effect = of_tasks(values, failed)
    assert effect.value == pytest.approx(expected, abs=1e-12)
    assert -1 <= effect.low <= effect.value + 1e-9 and effect.value - 1e-9 <= effect.high <= 1


@given(results)
def test_its_interval_has_de_longs_variance_of_all_pairs(rows: list[tuple[float, bool]]) -> None:
    values, failed = sorted_results(rows)
    wins = np.sign(values[failed][:, None] - values[~failed]) / 2 + 0.5
    if min(wins.shape) < 2:
        return
    variance = wins.mean(axis=1).var(ddof=1) / wins.shape[0] + wins.mean(axis=0).var(ddof=1) / wins.shape[1]
    area = wins.mean()
    if not (variance > 1e-12 and 1e-9 < area < 1 - 1e-9):
        return
    logit = scipy.special.logit(area) + np.array([-1, 1]) * Z * math.sqrt(variance) / (area * (1 - area))
    effect = of_tasks(values, failed)
    assert (effect.low, effect.high) == pytest.approx(tuple(2 * scipy.special.expit(logit) - 1), abs=1e-9)


def test_where_numbers_separate_failures_completely_the_interval_is_newcombes() -> None:
    effect = of_tasks(np.arange(20.0), np.arange(20) >= 12)
    assert effect.value == effect.high == pytest.approx(1.0)
    area = (effect.low + 1) / 2
    spread = 1 + 9 * ((1 - area) / (2 - area) + area / (1 + area))
    assert 1 - area == pytest.approx(Z * math.sqrt(area * (1 - area) * spread / (8 * 12)), rel=1e-9)


def test_mirrored_numbers_have_the_mirrored_effect() -> None:
    values = np.random.default_rng(1).normal(size=60)
    failed = np.random.default_rng(2).random(60) < 0.3 + 0.2 * np.sign(values)
    effect, mirrored = (of_tasks(np.sort(sign * values), failed[np.argsort(sign * values)]) for sign in (1, -1))
    assert (effect.value, effect.low, effect.high) == pytest.approx((-mirrored.value, -mirrored.high, -mirrored.low))


def test_repetitions_do_not_make_the_interval_of_a_scenarios_parameter_narrower() -> None:
    generator = np.random.default_rng(8)
    wrong = of_tasks_wrong = 0
    for _ in range(200):
        speed = np.sort(generator.normal(size=40))
        failures = generator.binomial(10, generator.beta(0.5, 1.5, 40)).astype(float)
        effect = rank_biserial(speed, failures, 10 - failures)
        wrong += not effect.low <= 0 <= effect.high
        tasks = np.concatenate([np.arange(10) < count for count in failures])
        effect = of_tasks(np.repeat(speed, 10), tasks)
        of_tasks_wrong += not effect.low <= 0 <= effect.high
    assert wrong <= 0.09 * 200 and of_tasks_wrong > 0.3 * 200


#: Newcombe, Statistics in Medicine 17 (1998), table II, method 10.
PUBLISHED = [
    (56, 70, 48, 80, 0.0524, 0.3339),
    (9, 10, 3, 10, 0.1705, 0.8090),
    (6, 7, 2, 7, 0.0582, 0.8062),
    (5, 56, 0, 29, -0.0381, 0.1926),
    (0, 10, 0, 20, -0.1611, 0.2775),
    (0, 10, 0, 10, -0.2775, 0.2775),
    (10, 10, 0, 20, 0.6791, 1.0000),
    (10, 10, 0, 10, 0.6075, 1.0000),
]


@pytest.mark.parametrize(("hits", "trials", "other_hits", "other_trials", "low", "high"), PUBLISHED)
def test_the_interval_of_a_difference_of_rates_is_the_published(
    hits: int, trials: int, other_hits: int, other_trials: int, low: float, high: float
) -> None:
    effect = rate_difference(rates(hits, trials), rates(other_hits, other_trials))
    assert (effect.low, effect.high) == pytest.approx((low, high), abs=6e-5)


@given(st.integers(1, 300), st.integers(1, 300), st.data())
def test_the_interval_of_a_difference_of_rates_is_that_of_statsmodels(
    trials: int, others: int, data: st.DataObject
) -> None:
    from statsmodels.stats.proportion import confint_proportions_2indep  # seconds to import

    hits = data.draw(st.integers(0, trials))
    other_hits = data.draw(st.integers(0, others))
    expected = confint_proportions_2indep(hits, trials, other_hits, others, method="newcomb", compare="diff")
    effect = rate_difference(rates(hits, trials), rates(other_hits, others))
    assert (effect.low, effect.high) == pytest.approx(expected, abs=1e-9)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=2, max_size=8))
def test_cramers_v_is_the_corrected_one_of_scipys_chi_squared(table: list[tuple[int, int]]) -> None:
    counts = np.array([row for row in table if sum(row)]).reshape(-1, 2)
    v = cramers_v(np.array([row[0] for row in table]), np.array([sum(row) for row in table]))
    if len(counts) < 2 or not counts.sum(axis=0).all():
        assert v == 0.0
        return
    n, k = counts.sum(), len(counts)
    phi2 = scipy.stats.chi2_contingency(counts, correction=False).statistic / n
    if n < 4:
        return
    corrected = max(0.0, phi2 - (k - 1) / (n - 1))
    least = min(k - (k - 1) ** 2 / (n - 1), 2 - 1 / (n - 1)) - 1
    assert v == pytest.approx(min(1.0, math.sqrt(corrected / least)) if least > 0 else v, abs=1e-9)


def test_levels_without_effect_have_an_association_of_about_0_however_many_they_are() -> None:
    rng = np.random.default_rng(3)
    values = [cramers_v(rng.binomial(10, 0.3, 50), np.full(50, 10)) for _ in range(50)]
    assert np.median(values) < 0.06  # without the correction about 0.31


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=5, max_size=60))
def test_spearmans_correlation_is_scipys(rows: list[tuple[int, int]]) -> None:
    first, second = np.array(rows, np.float64).T
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return
    effect = spearman(mid_ranks(first, np.argsort(first)), mid_ranks(second, np.argsort(second)))
    assert effect.value == pytest.approx(scipy.stats.spearmanr(first, second).statistic, abs=1e-12)


def test_the_interval_of_a_correlation_is_bonetts_and_wrights() -> None:
    ranks = np.arange(50.0)
    other = ranks.copy()
    np.random.default_rng(4).shuffle(other[10:40])
    effect = spearman(ranks, other)
    deviation = math.sqrt((1 + effect.value**2 / 2) / 47)
    assert math.atanh(effect.high) - math.atanh(effect.low) == pytest.approx(2 * Z * deviation)


def test_the_interval_of_a_correlation_covers_it() -> None:
    rng, rho, covered = np.random.default_rng(5), 0.5, 0
    true = 6 / math.pi * math.asin(rho / 2)  # Spearman's of a bivariate normal distribution
    for _ in range(300):
        first, noise = rng.normal(size=(2, 100))
        second = rho * first + math.sqrt(1 - rho * rho) * noise
        effect = spearman(mid_ranks(first, np.argsort(first)), mid_ranks(second, np.argsort(second)))
        covered += effect.low <= true <= effect.high
    assert 0.91 < covered / 300 < 0.985


def test_epsilon_squared_follows_from_scipys_analysis_of_variance() -> None:
    rng = np.random.default_rng(6)
    codes = rng.integers(0, 4, 200)
    values = rng.normal(size=200) + 0.5 * codes
    f = scipy.stats.f_oneway(*(values[codes == code] for code in range(4))).statistic
    eta_squared = 3 * f / (3 * f + 196)
    assert epsilon_squared(codes, values, 4) == pytest.approx(1 - (1 - eta_squared) * 199 / 196, rel=1e-12)


@pytest.mark.parametrize("slope", [0.3, 1.0])
def test_the_interval_of_epsilon_squared_covers_it(slope: float) -> None:
    rng, covered = np.random.default_rng(7), 0
    between = slope * slope * np.var(np.arange(4))
    true = between / (between + 1)
    for _ in range(200):
        codes = rng.integers(0, 4, 150)
        effect = epsilon_squared_effect(codes, rng.normal(size=150) + slope * codes, 4)
        covered += effect.low <= true <= effect.high
    assert 0.88 < covered / 200 < 0.99


def test_a_metric_that_is_constant_has_no_effect() -> None:
    effect = epsilon_squared_effect(np.array([0, 1, 0, 1, 1]), np.full(5, 3.0), 2)
    assert (effect.value, effect.low, effect.high) == (0.0, 0.0, 0.0)


def test_equal_results_give_equal_intervals() -> None:
    codes, values = np.arange(90) % 3, np.random.default_rng(8).normal(size=90)
    assert epsilon_squared_effect(codes, values, 3) == epsilon_squared_effect(codes, values, 3)
