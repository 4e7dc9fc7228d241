"""Order of play: seeded, uniform, equal on every machine; batches grow."""

import math
from collections import Counter
from itertools import pairwise, permutations

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from core.domain.comparisons.play_order import LARGEST, batch_sizes, play_order

NAMES = [f"scenario-{number}" for number in range(288)]


def test_the_order_of_a_seed_never_changes() -> None:
    # recorded: a comparison that was begun before an upgrade is continued after it
    assert play_order(7, NAMES)[:8] == [164, 117, 81, 112, 127, 30, 89, 267]


@given(st.integers(-(2**63), 2**63), st.lists(st.text(max_size=5), unique=True))
def test_every_scenario_is_played_once(seed: int, scenarios: list[str]) -> None:
    assert sorted(play_order(seed, scenarios)) == list(range(len(scenarios)))


@given(st.integers(0, 99), st.permutations(NAMES[:12]))
def test_the_order_does_not_depend_on_how_the_dataset_lists_its_scenarios(seed: int, listed: list[str]) -> None:
    assert [listed[at] for at in play_order(seed, listed)] == [NAMES[at] for at in play_order(seed, NAMES[:12])]


def test_each_permutation_is_equally_likely() -> None:
    orders = Counter(tuple(play_order(seed, NAMES[:4])) for seed in range(6000))
    counts = [orders[order] for order in permutations(range(4))]
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_prefixes_have_the_shares_of_the_groups_within_the_deviation_of_random_draws() -> None:
    pairs, share = len(NAMES), 1 / 6
    for seed in range(20):
        members = [at % 6 == 0 for at in play_order(seed, NAMES)]
        for played in (32, 64, 128, 256):
            deviation = math.sqrt(share * (1 - share) / played * (pairs - played) / (pairs - 1))
            assert abs(sum(members[:played]) / played - share) < 4.5 * deviation


def test_scenarios_with_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        play_order(1, ["a", "b", "a"])


@given(st.integers(0, 200_000))
def test_batches_add_up_and_grow_to_their_limit(pairs: int) -> None:
    sizes = list(batch_sizes(pairs))
    assert sum(sizes) == pairs and all(1 <= size <= LARGEST for size in sizes)
    assert all(before <= after for before, after in pairwise(sizes[:-1]))


def test_few_looks_are_needed() -> None:
    assert len(list(batch_sizes(288))) == 10 and len(list(batch_sizes(2000))) == 18
