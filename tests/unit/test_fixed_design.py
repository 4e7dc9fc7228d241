"""Fixed design: pairs of a paired t-test, beside statsmodels, and the saving beside it."""

import pytest

from core.domain.comparisons.fixed_design import pairs_needed, saving


@pytest.mark.parametrize("effect", [0.1, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("power", [0.8, 0.95])
def test_the_pairs_needed_are_those_of_statsmodels(effect: float, power: float) -> None:
    from statsmodels.stats.power import TTestPower  # seconds to import: not for every process that collects tests

    exact = TTestPower().solve_power(effect_size=effect, alpha=0.05, power=power, alternative="two-sided")
    needed = pairs_needed(-20.0 * effect, 20.0, power=power)
    assert exact - 1 < needed < exact + 2


def test_the_textbook_example_of_a_medium_effect_needs_34_pairs() -> None:
    assert pairs_needed(0.5, 1.0) == 34  # as G*Power computes for dz = 0.5


def test_no_deviation_needs_two_pairs() -> None:
    assert pairs_needed(1.0, 0.0) == 2


def test_the_saving_is_the_share_that_was_not_played_beside_the_pairs_for_the_interval() -> None:
    saved = saving(played=72, pairs=288, interval=(4.0, 12.0), mean=8.0, std=20.0)
    assert saved.share == 0.75 and saved.needed == (pairs_needed(12.0, 20.0), pairs_needed(4.0, 20.0))
    assert saved.sentence.startswith("72 of 288 scenarios were played; 216 (75 %) were saved. A fixed design for a")


def test_no_number_of_pairs_would_do_for_an_interval_that_has_0() -> None:
    saved = saving(played=288, pairs=288, interval=(-1.0, 3.0), mean=1.0, std=20.0)
    assert saved.needed is None and saved.sentence == "288 of 288 scenarios were played; none were saved."


def test_signs_that_are_all_equal_need_what_a_sign_test_needs() -> None:
    all_won = saving(played=8, pairs=8, interval=(0.226, 1.0), mean=1.0, std=0.0, signs=True)
    assert all_won.needed is not None and all_won.needed[0] == 6, "2 / 2**6 is below 5 %, and 2 / 2**5 is not"
    assert all_won.needed[1] == pairs_needed(0.226, (1 - 0.226**2) ** 0.5) > 100
    half_tied = saving(played=8, pairs=8, interval=(0.2, 0.6), mean=0.5, std=0.5, signs=True)
    assert half_tied.needed == (pairs_needed(0.6, 0.24**0.5), pairs_needed(0.2, 0.46**0.5))


def test_differences_that_are_all_equal_tell_no_deviation() -> None:
    assert saving(played=8, pairs=8, interval=(1.0, 3.0), mean=2.0, std=0.0).needed is None
