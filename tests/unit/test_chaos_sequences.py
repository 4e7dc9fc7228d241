"""Sequences of disturbances: a seed decides them, each simulation is aimed at, and one outage is long."""

import pytest

from tests.system.chaos import sequence
from tests.system.disturbances import DISTURBANCES
from tests.system.submissions import SUBMISSIONS

SEEDS = range(40)


@pytest.mark.parametrize("kind", DISTURBANCES)
def test_a_seed_gives_the_same_sequence_and_another_seed_another(kind: str) -> None:
    sequences = [sequence(seed, kind, 12.0) for seed in SEEDS]
    assert sequences == [sequence(seed, kind, 12.0) for seed in SEEDS]
    assert len(set(sequences)) == len(SEEDS)


@pytest.mark.parametrize("kind", DISTURBANCES)
def test_each_sequence_aims_at_every_simulation_and_has_one_outage_of_the_given_length(kind: str) -> None:
    for seed in SEEDS:
        planned = sequence(seed, kind, 180.0)
        assert [kill.simulation for kill in planned.kills] == list(SUBMISSIONS)
        assert [stroke.disturbance.may_last for stroke in planned.strokes if stroke.seconds == 180.0] == [True]
        assert len({stroke.name for stroke in planned.strokes}) == len(planned.strokes)


@pytest.mark.parametrize("kind", DISTURBANCES)
def test_some_sequence_has_each_disturbance(kind: str) -> None:
    names = {stroke.name for seed in SEEDS for stroke in sequence(seed, kind, 12.0).strokes}
    assert names == set(DISTURBANCES[kind])


def test_the_default_seeds_disturb_in_every_way() -> None:
    for kind, table in DISTURBANCES.items():
        assert {stroke.name for seed in range(8) for stroke in sequence(seed, kind, 12.0).strokes} == set(table)
