"""Deadlines of models in real pods: the container init tells how much of the time the model server could use."""

from pathlib import Path
from typing import Any

import httpx

from tests.cluster import cgroups
from tests.cluster.cluster import Cluster
from tests.cluster.platform_release import PlatformRelease
from workers.executors.kubernetes import names

SLEEPS = """
import time
class Model:
    def act(self, observation):
        time.sleep(1.3)
        return observation
"""
#: Needs 60 ms of processor time for each answer.
COMPUTES = """
import time
class Model:
    def act(self, observation):
        until = time.thread_time() + 0.06
        while time.thread_time() < until:
            pass
        return observation
"""
#: Seconds for an answer to `act` in the dataset, and a CPU limit at which 60 ms take twice as long.
DEADLINE = 1.0
QUOTA, PERIOD = 3_000, 100_000  # microseconds


def submit(platform: PlatformRelease, source: str, tasks: int) -> str:
    """Submit a simulation of a model with this source."""
    platform.until(lambda: platform.ready, "the API answers")
    form = {"dataset": "noop", "runtime": "python", "scenarios": f'{{"range": [0, {tasks}]}}', "workers": "1"}
    files = {"model": ("model.py", source.encode())}
    response = httpx.post(f"{platform.url}/v1/simulations", data=form, files=files, timeout=60.0)
    assert response.status_code == 201, response.text
    id: str = response.json()["id"]
    return id


def limit_cpu(container_id: str) -> None:
    """Limit the processor time of a container, as its CPU limit would."""
    group = group_of(container_id)
    if cgroups.unified():
        (group / "cpu.max").write_text(f"{QUOTA} {PERIOD}")
    else:
        (group / "cpu.cfs_quota_us").write_text(str(QUOTA))


def container_id(platform: PlatformRelease, id: str, container: str) -> str:
    """Return the id of a container of a simulation's pod; "" until the kubelet has reported it."""
    for pod in platform.pods(f"windtunnel/simulation={names.label(id)}"):
        for status in pod["status"].get("containerStatuses", ()):
            if status["name"] == container:
                return str(status.get("containerID", "").rpartition("/")[2])
    return ""


def group_of(container_id: str) -> Path:
    """Return the control group of a container in the hierarchy that limits processor time."""
    root = cgroups.ROOT if cgroups.unified() else cgroups.ROOT / "cpu"
    (group,) = [path for path in root.rglob(f"*{container_id}*") if path.is_dir()]
    return group


def test_a_model_in_a_pod_that_sleeps_past_its_deadline_is_timed_out(platform: PlatformRelease) -> None:
    id = submit(platform, SLEEPS, 2)
    ended = platform.wait_for_end(id)
    assert ended["state"] == "failed" and "1 s" in ended["reason"], (ended["reason"], platform.messages(id))
    assert [result["status"] for result in platform.results(id)] == ["timed_out", "timed_out"]


def test_a_model_in_a_pod_at_a_cpu_limit_misses_no_deadline(platform: PlatformRelease, own_cluster: Cluster) -> None:
    id = submit(platform, COMPUTES, 60)
    platform.until(lambda: platform.results(id), "there are results")
    platform.until(lambda: container_id(platform, id, "model-server"), "the kubelet reports the container")
    limit_cpu(container_id(platform, id, "model-server"))
    ended = platform.wait_for_end(id, 600.0)
    assert ended["state"] == "succeeded", (ended["reason"], platform.messages(id))
    results: list[dict[str, Any]] = platform.results(id)
    assert {result["status"] for result in results} == {"ok"}, results
    assert max(result["timing"]["inference"]["max"] for result in results) > DEADLINE, "the limit had no effect"
