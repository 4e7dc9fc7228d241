"""Bundles: the inputs of a launch, packed for runners that share no folder with the platform."""

import calendar
import json
import time
from pathlib import Path

import pytest

from common.ids import digest_of
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.states import State
from core.domain.submissions.submission import Submission
from core.services.datasets.bundles import Bundles
from core.services.platform import Platform
from core.store import simulations
from datasets.versions.archives import tar
from tests.conftest import Clock

OCTOBER, DECEMBER, FEBRUARY = (
    calendar.timegm(time.strptime(day, "%Y-%m-%d")) for day in ("2026-10-31", "2026-12-01", "2027-02-01")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "dataset"
    directory.mkdir()
    (directory / "dataset.json").write_text("{}")
    return directory


def bundle_keys(platform: Platform) -> list[str]:
    return list(platform.store.list("plays/"))


def test_bundles_are_deleted_after_two_months(platform: Platform, folder: Path) -> None:
    clock = Clock()
    bundles = Bundles(platform.store, platform.database, clock)
    for clock.now in (OCTOBER, DECEMBER, FEBRUARY):
        bundle = bundles.of("street", folder)
        assert bundle == bundles.of("street", folder)
        assert bundle["key"] in bundle_keys(platform) and bundle["size"] == platform.store.size(bundle["key"])
    assert [key.split("/")[1] for key in bundle_keys(platform)] == ["2026-10", "2026-12", "2027-02"]
    clock.now = DECEMBER
    assert bundles.remove_orphans() == 1
    assert [key.split("/")[1] for key in bundle_keys(platform)] == ["2026-12", "2027-02"], (
        "a platform whose clock is ahead deletes no recent bundle"
    )
    clock.now = FEBRUARY
    assert bundles.remove_orphans() == 1
    assert [key.split("/")[1] for key in bundle_keys(platform)] == ["2027-02"]


def test_a_bundle_is_kept_while_a_simulation_may_request_it(platform: Platform, folder: Path, model: str) -> None:
    clock = Clock()
    clock.now = OCTOBER
    bundles = Bundles(platform.store, platform.database, clock)
    packed = bundles.of("street", folder)
    simulation, _ = platform.submissions.simulations.submit(
        LOCAL_CALLER, Submission(dataset="noop", runtime="python", model=model)
    )
    bundle = json.dumps({"play": packed, "model_size": 1})
    platform.database.write(lambda c: simulations.describe(c, simulation.id, bundle=bundle))
    clock.now = FEBRUARY
    assert bundles.remove_orphans() == 0 and bundle_keys(platform) == [packed["key"]]
    platform.database.write(
        lambda c: simulations.move(c, simulation.id, State.QUEUED, State.CANCELLED, 0.0, summary="{}")
    )
    assert bundles.remove_orphans() == 1 and bundle_keys(platform) == []


def test_a_folder_of_any_size_is_packed_while_it_is_stored_and_once_a_month(platform: Platform, folder: Path) -> None:
    long_name = f"{'deep/' * 30}{'n' * 120} ü.py"
    (folder / long_name).parent.mkdir(parents=True)
    (folder / long_name).write_bytes(b"x" * 1000)
    (folder / "empty").write_bytes(b"")
    clock = Clock()
    clock.now = OCTOBER
    bundle = Bundles(platform.store, platform.database, clock).of_tree("environment", folder)
    content = b"".join(platform.store.get(bundle["key"]))
    assert (digest_of(content), len(content)) == (bundle["digest"], bundle["size"])
    unpacked = {file.path: b"".join(file.chunks) for file in tar.files(iter([content]))}
    assert unpacked == {"dataset.json": b"{}", "empty": b"", long_name: b"x" * 1000}
    (folder / "empty").write_bytes(b"changed")
    another_process = Bundles(platform.store, platform.database, clock)
    assert another_process.of_tree("environment", folder) == bundle, "it is packed once"
    clock.now = DECEMBER
    assert another_process.of_tree("environment", folder)["digest"] != bundle["digest"]
    clock.now = FEBRUARY
    assert another_process.remove_orphans() == 4, "the two bundles with their descriptions"
