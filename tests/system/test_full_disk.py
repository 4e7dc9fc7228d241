"""Full disk below a whole platform: it says so, accepts nothing new, and loses nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_disks import SmallDisk, small_disk
from tests.system.platform_process import MODELS, PlatformProcess, has_one_result_per_task
from tests.waiting import until


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", "256m") as disk:
        yield disk


def test_a_simulation_on_a_full_disk_says_so_and_goes_on_when_there_is_space(
    prepared_environments: None, disk: SmallDisk
) -> None:
    platform = PlatformProcess(disk.folder / "home").start()
    try:
        load = {"model": MODELS / "echo.py", "dataset": "noop", "params": {"work_us": 1000}, "workers": 1}
        undisturbed = platform.run(**load, scenarios={"range": [0, 3000]})
        id = platform.submit(**load, scenarios={"range": [0, 3000]})["id"]
        until(lambda: platform.get(id)["tasks"]["done"] > 0, message="no task is done")
        disk.fill(spare=2 << 20)  # below what the object store leaves to the database
        until(
            lambda: "is full" in str(platform.get(id)["reason"]),
            message=lambda: f"the full disk is not named: {platform.get(id)} {platform.output()[-2000:]}",
        )
        assert platform.get(id)["state"] == "running"
        assert "is full" in platform.http.get("/readyz").json()["checks"]["disk"]
        refused = platform.post(**load, scenarios={"range": [0, 1]})
        assert refused.status_code == 507, refused.text
        disk.empty()
        ended = platform.wait_for_end(id)
        assert ended["state"] == "succeeded" and ended["reason"] is None
        assert has_one_result_per_task(platform.results(id), 3000)
        assert platform.summary(id)["results_digest"] == platform.summary(undisturbed["id"])["results_digest"]
        events = platform.http.get(f"/v1/simulations/{id}/events").text
        assert events.count("event: storage") == 2
    finally:
        platform.stop()
