"""Fixed design: pairs and power of a paired t-test, beside statsmodels."""

import pytest

from core.domain.fixed_design import fixed_power, pairs_needed, saving


@pytest.mark.parametrize("effect", [0.1, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("power", [0.8, 0.95])
def test_the_pairs_needed_are_those_of_statsmodels(effect: float, power: float) -> None:
    from statsmodels.stats.power import TTestPower  # seconds to import: not for every process that collects tests

    exact = TTestPower().solve_power(effect_size=effect, alpha=0.05, power=power, alternative="two-sided")
    needed = pairs_needed(-20.0 * effect, 20.0, power=power)
    assert needed is not None and exact - 1 < needed < exact + 2


@pytest.mark.parametrize(("effect", "pairs"), [(0.1, 288), (0.25, 100), (0.5, 48), (0.05, 2000)])
def test_the_power_is_that_of_statsmodels(effect: float, pairs: int) -> None:
    from statsmodels.stats.power import TTestPower

    exact = TTestPower().power(effect, pairs, 0.05, alternative="two-sided")
    assert fixed_power(pairs, effect * 7, 7.0) == pytest.approx(exact, abs=0.01)


def test_the_textbook_example_of_a_medium_effect_needs_34_pairs() -> None:
    assert pairs_needed(0.5, 1.0) == 34  # as G*Power computes for dz = 0.5


def test_no_difference_needs_pairs_without_end_and_no_deviation_needs_two() -> None:
    assert pairs_needed(0.0, 1.0) is None and pairs_needed(1.0, 0.0) == 2
    assert fixed_power(1, 1.0, 1.0) == 0.0 and fixed_power(9, 1.0, 0.0) == 1.0


def test_the_saving_is_the_share_that_was_not_played() -> None:
    saved = saving(played=72, pairs=288, mean=8.0, std=20.0)
    assert saved.share == 0.75 and saved.needed == pairs_needed(8.0, 20.0) and saved.fixed_power > 0.99
