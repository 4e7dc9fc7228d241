"""Flips: scenarios that broke or were fixed, what counts as a failure of several repetitions, words and pages."""

import json

import msgspec
import pytest
import scipy

from core.domain.comparisons.flips import SHOWN, FlipTally, fisher, flips_of
from core.domain.comparisons.pair_verdicts import Pair


def pair(index: int, failed: tuple[bool, bool], repeat: int = 0, **members: object) -> Pair:
    outcomes = tuple("collision" if side else "arrived" for side in failed)
    values = {"tasks": (index, index + 100), "ends": (12.5, 30.0), "outcomes": outcomes, "name": f"s{index}"} | members
    return Pair(index=index, repeat=repeat, statuses=("ok", "ok"), failed=failed, **values)  # type: ignore[arg-type]


def test_a_scenario_that_only_the_first_model_fails_broke_and_the_other_way_round_was_fixed() -> None:
    pairs = [pair(0, (True, False)), pair(1, (False, True)), pair(2, (True, True)), pair(3, (False, False))]
    document = FlipTally().extend(pairs, ("mine", "other")).document()
    assert document["counts"] == {"broke": 1, "fixed": 1}
    assert document["broke"] == [
        {
            "index": 0, "name": "s0", "repeat": 0, "params": {}, "outcome": "collision", "to_outcome": "arrived",
            "simulation": "mine", "task": 0, "to_simulation": "other", "to_task": 100, "at": 12.5,
            "failures": 1, "to_failures": 0, "played": 1, "p": None,
            "replay": "/compare/replay?left=mine.0&right=other.100&at=12.5",
        }
    ]  # fmt: skip
    assert document["fixed"][0]["at"] == 30.0 and document["p"] == 1.0
    assert document["sentence"] == (
        "1 scenario broke and 1 was fixed. Each was played once, so that noise of the models is among them (McNemar's"
        " p 1)."
    )


def test_with_repetitions_a_scenario_broke_only_if_it_fails_more_often_than_chance_explains() -> None:
    often = [pair(0, (repeat < 5, False), repeat) for repeat in range(5)]
    twice = [pair(1, (repeat < 2, False), repeat) for repeat in range(5)]
    [flip] = flips_of([*often, *twice])
    assert (flip.pair.index, flip.failures, flip.played) == (0, (5, 0), 5) and flip.p == pytest.approx(1 / 252)
    assert "5 %" in FlipTally().extend([*often, *twice], ("a", "b")).document()["sentence"]


def test_two_repetitions_are_said_to_be_too_few_to_show_anything() -> None:
    always = [pair(0, (True, False), repeat) for repeat in range(2)]
    assert FlipTally().extend(always, ("a", "b")).document()["sentence"] == (
        "0 scenarios broke and 0 were fixed: with 2 repetitions chance explains every difference; play more, or one."
    )
    more = [*always, pair(0, (True, False), 2)]
    assert FlipTally().extend(more, ("a", "b")).document()["counts"] == {"broke": 1, "fixed": 0}


@pytest.mark.parametrize(("more", "fewer", "played"), [(5, 0, 5), (3, 1, 4), (9, 2, 10), (1, 0, 2)])
def test_the_exact_test_is_that_of_fisher(more: int, fewer: int, played: int) -> None:
    table = [[more, played - more], [fewer, played - fewer]]
    assert fisher(more, fewer, played) == pytest.approx(scipy.stats.fisher_exact(table, alternative="greater").pvalue)


def test_combinations_of_a_sweep_flip_by_themselves() -> None:
    pairs = [pair(0, (True, False), params={"rain": True}), pair(0, (False, False), params={"rain": False})]
    [flip] = flips_of(pairs)
    assert flip.pair.params == {"rain": True}
    tally = FlipTally().extend(pairs, ("a", "b"))
    document = msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(tally))), FlipTally).document()
    assert document["p"] is None, "combinations of a scenario are not independent"
    assert document["sentence"] == (
        "1 combination of scenario and parameters broke and 0 were fixed. Each was played once, so that noise of the"
        " models is among them."
    )


def test_a_tally_that_was_stored_continues_and_counts_all_though_it_shows_the_first() -> None:
    tally = FlipTally()
    for batch in range(4):
        tally = tally.extend([pair(20 * batch + at, (True, False)) for at in range(20)], ("a", "b"))
        tally = msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(tally))), FlipTally)
    document = tally.document()
    assert document["counts"] == {"broke": 80, "fixed": 0} and len(document["broke"]) == SHOWN
