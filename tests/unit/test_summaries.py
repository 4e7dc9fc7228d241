"""Summaries: what the pass over the results does to its process ends with the pass."""

import gc

import pytest

from core.services.simulations.summaries import without_collections


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_cyclic_garbage_is_collected_after_a_pass_as_before_it(enabled: bool, fails: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        try:
            with without_collections():
                assert not gc.isenabled()
                if fails:
                    raise OSError
        except OSError:
            pass
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
