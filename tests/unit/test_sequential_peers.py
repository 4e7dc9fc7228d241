"""Peers of the benchmark of the sequential test: their error rates and the numbers of the authors' package."""

import numpy as np
import pytest
import scipy

from benchmarks import sequential_peers as peers


@pytest.mark.parametrize("peer", [peers.bernstein, peers.plug_in_betting, peers.group_sequential, peers.fixed])
def test_a_peer_keeps_the_error_rate_that_it_is_measured_at(peer: object) -> None:
    assert callable(peer)
    signs, stops = peer(np.random.default_rng(1).normal(0, 0.2, (2000, 200)).clip(-1, 1))
    assert (signs != 0).sum() <= scipy.stats.binom.ppf(1 - 1e-6, 2000, 0.055)  # normal approximations exceed 5 %
    assert (stops[signs == 0] == 200).all()


def test_the_bernstein_interval_is_about_that_of_the_authors_package() -> None:
    """confseq at 70b1ef3, whose running mean in the penalty begins at 0 and not at 1/2."""
    values = np.minimum(1, 0.25 + 0.75 * (37 * np.arange(1, 41) % 101) / 100)
    low, high = peers.bernstein_bounds(values[None])
    assert low[0, 39] == pytest.approx(0.429575433932683, abs=4e-3)
    assert low[0, 39] < values.mean() < high[0, 39]


def test_a_peer_decides_for_the_better_model_and_mirrored_differences_for_the_other() -> None:
    differences = np.random.default_rng(2).normal(0.15, 0.2, (50, 200)).clip(-1, 1)
    for peer in (peers.bernstein, peers.plug_in_betting, peers.mixture_sprt, peers.group_sequential, peers.fixed):
        signs, stops = peer(differences)
        mirrored_signs, mirrored_stops = peer(-differences)
        assert (signs == 1).all() and (mirrored_signs == -1).all() and (stops == mirrored_stops).all()
