"""Bundles: what an evaluator sees of a dataset, packed and handed to runners that share no folder with the server."""

import calendar
import time
from pathlib import Path

import pytest

from core.domain.records import Submission
from core.domain.states import State
from core.services.datasets.bundles import Bundles
from core.services.platform import Platform
from core.store import simulations
from tests.conftest import Clock

OCTOBER, DECEMBER, FEBRUARY = (
    calendar.timegm(time.strptime(day, "%Y-%m-%d")) for day in ("2026-10-31", "2026-12-01", "2027-02-01")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "played"
    made.mkdir()
    (made / "dataset.json").write_text("{}")
    return made


def kept(platform: Platform) -> list[str]:
    return list(platform.store.list("plays/"))


def test_a_bundle_of_two_months_ago_goes_and_younger_ones_stay(platform: Platform, folder: Path) -> None:
    clock = Clock()
    bundles = Bundles(platform.store, platform.database, clock)
    for clock.now in (OCTOBER, DECEMBER, FEBRUARY):
        made = bundles.of("street", folder)
        assert made == bundles.of("street", folder)
        assert made["key"] in kept(platform) and made["size"] == platform.store.size(made["key"])
    assert [key.split("/")[1] for key in kept(platform)] == ["2026-10", "2026-12", "2027-02"]
    clock.now = DECEMBER
    assert bundles.remove_orphans() == 1
    assert [key.split("/")[1] for key in kept(platform)] == ["2026-12", "2027-02"], "whose clock is ahead loses nothing"
    clock.now = FEBRUARY
    assert bundles.remove_orphans() == 1
    assert [key.split("/")[1] for key in kept(platform)] == ["2027-02"]


def test_a_bundle_stays_for_as_long_as_a_simulation_may_ask_for_it(
    platform: Platform, folder: Path, model: str
) -> None:
    clock = Clock()
    clock.now = OCTOBER
    bundles = Bundles(platform.store, platform.database, clock)
    packed = bundles.of("street", folder)
    made, _ = platform.simulations.submit(Submission(dataset="noop", runtime="python", model=model))
    platform.database.write(lambda c: simulations.set_bundle(c, made.id, {"play": packed, "model_size": 1}))
    clock.now = FEBRUARY
    assert bundles.remove_orphans() == 0 and kept(platform) == [packed["key"]]
    platform.database.write(lambda c: simulations.move(c, made.id, State.QUEUED, State.CANCELLED, 0.0))
    assert bundles.remove_orphans() == 1 and kept(platform) == []
