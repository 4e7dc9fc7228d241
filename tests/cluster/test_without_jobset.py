"""A cluster without JobSet: launches are Jobs, with the same tests as JobSets.

JobSet is installed at the end, while launches run. Therefore these tests need a session of their own.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import Unsupported
from core.domain.scheduling.launches import Gang, Phase
from tests.cluster.cluster import Cluster
from tests.cluster.platform_release import PlatformRelease, image_folder, import_images, installed_platform
from tests.cluster.test_kubernetes_executor import (
    CONTRACT,
    OpenExecutor,
    launch_without_runner_api,
    remaining_objects,
    serve_runner_api,
    test_a_cancelled_launch_leaves_no_objects,
    test_a_change_wakes_the_dispatcher,
    test_a_container_beyond_its_memory_limit_is_named,
    test_a_missing_image_is_noted_and_becomes_hopeless,
    test_an_exhausted_quota_of_pods_is_noted_and_of_objects_refused_temporarily,
    test_orphans_of_another_dispatcher_are_found_and_cancelled,
    test_resizing_a_running_launch_restarts_no_pod,
    test_the_rights_of_the_table_suffice_and_a_missing_right_is_named,
)
from tests.cluster.test_kubernetes_executor import bench as bench  # pytest finds fixtures by their names in this module
from tests.cluster.test_kubernetes_executor import open_executor as open_executor
from tests.cluster.test_kubernetes_executor import runner_api as runner_api
from tests.cluster.test_platform import submit_gang
from tests.cluster.test_platform import (
    test_a_gang_is_submitted_in_one_request_and_its_replicas_find_each_other as run_gang,
)
from tests.cluster.test_platform_faults import LOAD
from tests.contracts.test_executor import launch_of
from tests.system.runner_api import LAUNCH, RunnerApi
from tests.waiting import until
from workers.executors.kubernetes.executor import KubernetesExecutor
from workers.executors.kubernetes.objects import JOB, ResourceKind

(
    test_a_launch_is_observed_until_it_has_ended,
    test_submission_is_idempotent,
    test_a_launch_that_was_never_submitted_is_not_observed,
    test_cancelling_removes_a_launch_and_is_idempotent,
) = CONTRACT
#: Tests that apply to Jobs too.
SHARED = (
    test_a_change_wakes_the_dispatcher,
    test_a_container_beyond_its_memory_limit_is_named,
    test_a_cancelled_launch_leaves_no_objects,
    test_a_missing_image_is_noted_and_becomes_hopeless,
    test_an_exhausted_quota_of_pods_is_noted_and_of_objects_refused_temporarily,
    test_the_rights_of_the_table_suffice_and_a_missing_right_is_named,
    test_orphans_of_another_dispatcher_are_found_and_cancelled,
    test_resizing_a_running_launch_restarts_no_pod,
)


@pytest.fixture(scope="session")
def platform_images(own_cluster: Cluster) -> Iterator[dict[str, str]]:
    """The images of the platform and of these tests' simulations."""
    with image_folder() as folder:
        yield import_images(own_cluster, folder, ("server", "noop", "python"))


@pytest.fixture(scope="session")
def images(platform_images: dict[str, str]) -> dict[str, str]:
    """Images of the launches."""
    return {"runner": platform_images["server"]}


@pytest.fixture
def owner(own_cluster: Cluster) -> ResourceKind:
    """Kind of the launches' owner on this cluster."""
    assert not own_cluster.serves("jobset.x-k8s.io"), "these tests need a session in which JobSet was never installed"
    return JOB


@pytest.fixture
def long_runner_api(own_cluster: Cluster, tmp_path: Path) -> Iterator[RunnerApi]:
    """A simulation that outlasts the test."""
    api = serve_runner_api(own_cluster, tmp_path, sleep_ms=20)
    yield api
    api.close()


@pytest.fixture(scope="module")
def platform(
    own_cluster: Cluster, platform_images: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlatformRelease]:
    """The chart, installed as a trial."""
    with installed_platform(own_cluster, tmp_path_factory.mktemp("platform"), platform_images) as release:
        yield release


def test_a_simulation_runs_to_its_end_and_leaves_no_objects(owner: ResourceKind, platform: PlatformRelease) -> None:
    ended = platform.wait_for_end(platform.submit(**LOAD))
    assert ended["state"] == "succeeded", (ended["reason"], platform.messages(ended["id"]))
    results = platform.results(ended["id"])
    assert [result["task"] for result in results] == list(range(400)) and {result["status"] for result in results} == {
        "ok"
    }
    platform.until(lambda: not platform.remaining_objects(), "all of its objects are deleted")


def test_a_gang_is_refused_with_a_reason_without_jobset(owner: ResourceKind, platform: PlatformRelease) -> None:
    ended = platform.wait_for_end(submit_gang(platform))
    assert ended["state"] == "failed" and "does not serve JobSets, which this gang needs" in ended["reason"]
    assert not platform.remaining_objects()


def test_jobset_may_be_installed_and_removed_while_launches_run(
    own_cluster: Cluster,
    open_executor: OpenExecutor,
    long_runner_api: RunnerApi,
    namespace: str,
    platform: PlatformRelease,
) -> None:
    executor = open_executor()

    def phase() -> Phase:
        return executor.observe([LAUNCH])[LAUNCH].phase

    def jobsets() -> list[str]:
        return own_cluster.kubectl("get", "jobsets", "-n", namespace, "-o", "name").split()

    def running() -> int:
        pods = json.loads(own_cluster.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
        return len([pod for pod in pods if pod["status"]["phase"] == "Running"])

    id = platform.submit(**LOAD | {"params": {"sleep_ms": 200}})
    platform.until(lambda: platform.get(f"/v1/simulations/{id}")["tasks"]["done"] > 0, "a task is done")
    executor.submit(launch_of(long_runner_api.url))
    until(lambda: phase() is Phase.RUNNING)
    gang = replace(launch_without_runner_api(id="s1x1x1"), gang=Gang(size=1, communication="none", command=("true",)))
    with pytest.raises(Unsupported, match="does not serve JobSets"):
        executor.submit(gang)

    own_cluster.jobset()
    assert phase() is Phase.RUNNING
    executor.submit(gang)  # a gang makes the executor repeat the discovery
    executor.submit(launch_without_runner_api(id="s1x1x2"))
    assert jobsets() == ["jobset.jobset.x-k8s.io/wt-s1x1x1", "jobset.jobset.x-k8s.io/wt-s1x1x2"]
    for client in (executor, open_executor()):
        assert client.observe([LAUNCH, "s1x1x1", "s1x1x2"]).keys() == {LAUNCH, "s1x1x1", "s1x1x2"}
        assert client.orphans([LAUNCH]) == ["s1x1x1", "s1x1x2"]
    executor.cancel("s1x1x1")
    executor.cancel("s1x1x2")
    executor.resize(LAUNCH, 3)
    until(lambda: running() == 3)
    long_runner_api.cancel()
    until(lambda: phase() is Phase.ENDED)
    open_executor().cancel(LAUNCH)
    own_cluster.until(lambda: not remaining_objects(own_cluster, namespace), "all of its objects are deleted")

    assert platform.wait_for_end(id)["state"] == "succeeded"
    assert [result["task"] for result in platform.results(id)] == list(range(400))
    run_gang(platform)

    new_executor = open_executor()
    assert new_executor.orphans([]) == [], "the executor has discovered JobSet"
    own_cluster.kubectl("delete", "crd", "jobsets.jobset.x-k8s.io")
    with pytest.raises(OSError, match="does not serve jobsets any more"):
        new_executor.submit(launch_without_runner_api())
    until(lambda: is_accepted(new_executor))
    assert "job.batch/wt-s1x1x0" in remaining_objects(own_cluster, namespace)
    new_executor.cancel(LAUNCH)
    own_cluster.until(lambda: not remaining_objects(own_cluster, namespace), "all of its objects are deleted")


def is_accepted(executor: KubernetesExecutor) -> bool:
    try:
        executor.submit(launch_without_runner_api())
    except OSError:  # the API server lists JobSets for a moment longer
        return False
    return True
