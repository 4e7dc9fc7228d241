"""Launches in queues of a real Kueue: they wait with a reason, are admitted, are preempted, and continue."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.errors import Unsupported
from core.domain.scheduling.launches import Launch, LaunchStatus, Phase, Placement
from datasets.catalogue import datasets
from datasets.versions import scenario_folder
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import Account
from tests.cluster.operators import QUEUES, flavor
from tests.cluster.test_gangs import MEMORY, SUM
from tests.cluster.test_kubernetes_executor import OpenExecutor, kubeconfig_of
from tests.cluster.test_kubernetes_executor import images as images  # fixtures, found by their names
from tests.cluster.test_kubernetes_executor import open_executor as open_executor
from tests.cluster.test_kubernetes_executor import owner as owner
from tests.contracts.test_executor import MODEL, launch_of
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from tests.unit.launch_samples import gang
from tests.waiting import until
from workers.executors.kubernetes import manifests
from workers.executors.kubernetes.executor import KubernetesExecutor
from workers.executors.kubernetes.manifests import ServedApis
from workers.executors.kubernetes.rbac import RIGHTS, rules

DOCUMENTS = Path(__file__).parents[2] / "docs"
#: Name of the tests' LocalQueues, and id of the second launch.
QUEUE, SECOND = "simulations", "s2x1x0"
#: Kinds of a launch's objects, with Kueue's.
ALL = "jobsets,jobs,pods,secrets,services,networkpolicies,workloads.kueue.x-k8s.io"
#: Seconds from admission to the end of a launch on a busy machine.
PATIENCE = 150.0


class Queues:
    """Queues of a namespace that share a quota of pods."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self.namespace = cluster, namespace
        cluster.apply(flavor(namespace))

    def set_quota(self, pods: int, *, name: str = QUEUE, **spec: Any) -> None:
        """Create a queue with a quota of pods, or change the quota."""
        quota = {"cpu": 100, "memory": "1000Gi", "pods": pods}
        resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()]
        flavors = [{"name": self.namespace, "resources": resources}]
        group = {"coveredResources": list(quota), "flavors": flavors}
        cluster_queue = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
        local_queue = {"name": name, "namespace": self.namespace}
        self._cluster.apply(
            {"apiVersion": QUEUES, "kind": "ClusterQueue", "metadata": {"name": self.namespace}, "spec": cluster_queue},
            {
                "apiVersion": QUEUES,
                "kind": "LocalQueue",
                "metadata": local_queue,
                "spec": {"clusterQueue": self.namespace},
            },
        )

    def remaining_objects(self) -> list[str]:
        """Return the objects of launches."""
        return self._cluster.kubectl("get", ALL, "-n", self.namespace, "-o", "name").split()

    def pods(self, launch: str) -> list[Any]:
        """Return the pods of a launch."""
        selector = ("-n", self.namespace, "-l", f"windtunnel/launch={launch}", "-o", "json")
        pods: list[Any] = json.loads(self._cluster.kubectl("get", "pods", *selector))["items"]
        return pods

    def close(self) -> None:
        """Delete the queues, and the launches in them."""
        self._cluster.kubectl("delete", "-n", self.namespace, "jobsets,jobs,localqueues", "--all")
        for kind in ("clusterqueue", "resourceflavor"):
            self._cluster.kubectl("delete", kind, self.namespace, "--ignore-not-found")


@pytest.fixture
def queues(own_cluster: Cluster, namespace: str) -> Iterator[Queues]:
    own_cluster.kueue()
    namespace_queues = Queues(own_cluster, namespace)
    yield namespace_queues
    namespace_queues.close()


@pytest.fixture
def start_simulation(own_cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., RunnerApi]]:
    """Serve simulations of this many tasks of 10 ms, each with its launch."""
    apis: list[RunnerApi] = []

    def start(launch: str, total: int, *, model: bytes = MODEL, **play: Any) -> RunnerApi:
        noop = datasets()["noop"]
        defaults = {
            "definition": dict(noop.definition),
            "deadline": 5.0,
            "isolation": "launch",
            "params": {"sleep_ms": 10},
        }
        folder = tmp_path / launch
        folder.mkdir()
        apis.append(
            RunnerApi(
                folder,
                total=total,
                play=defaults | play,
                workers=1,
                model=model,
                packed=scenario_folder.pack(noop.folder),
                host=own_cluster.host_address,
                launched=False,
            )
        )
        apis[-1].launch(id=launch)
        return apis[-1]

    yield start
    for api in apis:
        api.close()


def queued_launch(runner_api: RunnerApi, id: str, queue: str = QUEUE, **changes: Any) -> Launch:
    """Return a launch of one pod that names a queue."""
    return launch_of(runner_api.url, id=id, workers=1, placement=Placement(queue=queue, **changes))


def wait_for_status(executor: KubernetesExecutor, id: str, condition: Callable[[LaunchStatus], bool]) -> LaunchStatus:
    """Observe the launch until its status meets a condition; return the status."""
    statuses: list[LaunchStatus] = []

    def holds() -> bool:
        statuses[:] = executor.observe([id]).values()
        return bool(statuses) and condition(statuses[0])

    try:
        until(holds, PATIENCE)
    except AssertionError:
        raise AssertionError(f"the last observed status: {statuses}") from None
    return statuses[0]


def is_suspended_with(text: str) -> Callable[[LaunchStatus], bool]:
    """Return a condition: the launch is suspended with a note that contains a text."""
    return lambda status: status.phase is Phase.SUSPENDED and any(text in note.message for note in status.notes)


def is_running(status: LaunchStatus) -> bool:
    return status.phase is Phase.RUNNING


def has_ended(runner_api: RunnerApi) -> Callable[[LaunchStatus], bool]:
    """Return a condition that does a pass of a dispatcher, and holds once the launch has ended."""

    def settle_and_check(status: LaunchStatus) -> bool:
        runner_api.settle()
        return status.phase is Phase.ENDED

    return settle_and_check


def assert_all_results_ok(runner_api: RunnerApi, total: int) -> None:
    """Check that each task has exactly one result, and that it is `ok`."""
    assert [result["status"] for result in runner_api.results()] == ["ok"] * total


def submit(executor: KubernetesExecutor, cluster: Cluster, launch: Launch, *, jobset: bool) -> None:
    """Submit a launch; without JobSet as an Indexed Job."""
    if jobset:
        executor.submit(launch)
    else:
        cluster.apply(
            *reversed(manifests.launch_objects(launch, executor.options, ServedApis(jobset=False, kueue=True)))
        )


def test_the_queues_of_the_documentation_are_valid(own_cluster: Cluster, queues: Queues) -> None:
    text = (DOCUMENTS / "gangs.md").read_text()
    documents = [
        document for part in text.split("```yaml\n")[1:] for document in yaml.safe_load_all(part.split("```")[0])
    ]
    for document in documents:
        if document["metadata"].get("namespace"):
            document["metadata"]["namespace"] = queues.namespace
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    output = own_cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=manifest)
    assert output.count("created (server dry run)") == 3


@pytest.mark.parametrize("jobset", [True, False], ids=["a JobSet", "a Job"])
def test_a_launch_without_quota_is_suspended_and_runs_once_another_has_ended(
    own_cluster: Cluster,
    open_executor: OpenExecutor,
    queues: Queues,
    start_simulation: Callable[..., RunnerApi],
    jobset: bool,
) -> None:
    queues.set_quota(pods=1)
    executor, first, second = open_executor(), start_simulation(LAUNCH, 100_000), start_simulation(SECOND, 200)
    submit(executor, own_cluster, queued_launch(first, LAUNCH), jobset=jobset)
    wait_for_status(executor, LAUNCH, is_running)
    submit(executor, own_cluster, queued_launch(second, SECOND), jobset=jobset)
    status = wait_for_status(executor, SECOND, is_suspended_with("quota for pods"))
    assert not status.hopeless and not queues.pods(SECOND)
    first.cancel()
    wait_for_status(executor, LAUNCH, has_ended(first))
    executor.cancel(LAUNCH)
    assert wait_for_status(executor, SECOND, has_ended(second)).exit == 0
    assert_all_results_ok(second, 200)
    executor.cancel(SECOND)
    own_cluster.until(lambda: not queues.remaining_objects(), "the objects of both are deleted")


def test_a_launch_queued_behind_another_is_not_reported_as_suspended(
    open_executor: OpenExecutor, queues: Queues, start_simulation: Callable[..., RunnerApi]
) -> None:
    queues.set_quota(pods=0, queueingStrategy="StrictFIFO")
    executor, runner_api = open_executor(), start_simulation(LAUNCH, 10)
    for id in (LAUNCH, SECOND):
        executor.submit(queued_launch(runner_api, id))
    messages: set[str] = set()

    def quota_is_noted() -> bool:
        statuses = executor.observe([LAUNCH, SECOND])
        messages.update(note.message for status in statuses.values() for note in status.notes)
        return any("quota for pods" in message for message in messages)

    until(quota_is_noted, PATIENCE)
    wait_for_status(executor, SECOND, is_suspended_with("until its turn comes"))
    assert not [message for message in messages if "once a person resumes it" in message], messages
    for id in (LAUNCH, SECOND):
        executor.cancel(id)


def test_a_missing_queue_is_named_with_the_rights_of_the_table(
    own_cluster: Cluster,
    open_executor: OpenExecutor,
    queues: Queues,
    start_simulation: Callable[..., RunnerApi],
    account: Any,
    tmp_path: Path,
) -> None:
    service_account: Account = account(f"rights{queues.namespace[-7:]}", "platform")
    role = {"kind": "ClusterRole", "metadata": {"name": queues.namespace}, "rules": rules(RIGHTS)}
    own_cluster.apply({"apiVersion": "rbac.authorization.k8s.io/v1", **role})
    service_account.bind(queues.namespace)
    executor = open_executor(kubeconfig=str(kubeconfig_of(own_cluster, service_account, tmp_path)))
    own_cluster.until(lambda: may_observe(executor), "the role is effective")
    runner_api = start_simulation(LAUNCH, 100)
    executor.submit(queued_launch(runner_api, LAUNCH, "nowhere"))
    status = wait_for_status(executor, LAUNCH, is_suspended_with("LocalQueue nowhere doesn't exist"))
    assert not status.hopeless, "the queue may still be created"
    assert executor.orphans([]) == [LAUNCH] and executor.orphans([LAUNCH]) == []
    executor.cancel(LAUNCH)
    own_cluster.until(lambda: not queues.remaining_objects(), "all of its objects are deleted")
    assert executor.orphans([]) == []


def may_observe(executor: KubernetesExecutor) -> bool:
    try:
        return executor.observe(["unknown"]) == {}
    except PermissionError:  # the API server applies a role after a moment
        return False


def test_a_gang_is_admitted_whole_or_not_at_all(
    own_cluster: Cluster, open_executor: OpenExecutor, queues: Queues, start_simulation: Callable[..., RunnerApi]
) -> None:
    queues.set_quota(pods=2)
    executor, runner_api = open_executor(), start_simulation(LAUNCH, 2, model=SUM.encode(), definition={}, params={})
    executor.submit(gang_launch(runner_api))
    status = wait_for_status(executor, LAUNCH, is_suspended_with("quota for pods"))
    assert not queues.pods(LAUNCH), status
    queues.set_quota(pods=3)
    assert wait_for_status(executor, LAUNCH, has_ended(runner_api)).exit == 0
    assert [result["metrics"] for result in runner_api.results()] == [{"sum": 1, "peers": 2}] * 2
    executor.cancel(LAUNCH)
    own_cluster.until(lambda: not queues.remaining_objects(), "all of its objects are deleted")


def gang_launch(runner_api: RunnerApi, **changes: Any) -> Launch:
    """Return a gang of two replicas and their leader."""
    placement = Placement(cpu=0.01, memory=MEMORY, queue=QUEUE)
    launch = gang(2, "torch", placement, command=("python", "model.py"), **changes)
    return replace(launch, id=LAUNCH, url=runner_api.url, token=TOKEN)


@pytest.mark.parametrize("jobset", [True, False], ids=["a JobSet", "a Job"])
def test_a_preempted_launch_releases_its_leases_and_continues_later(
    own_cluster: Cluster,
    open_executor: OpenExecutor,
    queues: Queues,
    start_simulation: Callable[..., RunnerApi],
    jobset: bool,
) -> None:
    queues.set_quota(pods=1, preemption={"withinClusterQueue": "LowerPriority"})
    urgent = {"kind": "PriorityClass", "metadata": {"name": queues.namespace}, "value": 1000}
    own_cluster.apply({"apiVersion": "scheduling.k8s.io/v1", **urgent})
    executor, first, second = open_executor(), start_simulation(LAUNCH, 3000), start_simulation(SECOND, 200)
    submit(executor, own_cluster, queued_launch(first, LAUNCH), jobset=jobset)
    until(lambda: "report" in first.requests, PATIENCE)
    submit(executor, own_cluster, queued_launch(second, SECOND, priority=queues.namespace), jobset=jobset)
    wait_for_status(executor, LAUNCH, is_suspended_with("evicted the launch (Preempted"))
    until(lambda: not first.count_leases(), PATIENCE)
    assert wait_for_status(executor, SECOND, has_ended(second)).exit == 0
    executor.cancel(SECOND)
    assert wait_for_status(executor, LAUNCH, has_ended(first)).exit == 0
    assert_all_results_ok(first, 3000)
    assert_all_results_ok(second, 200)
    executor.cancel(LAUNCH)
    own_cluster.kubectl("delete", "priorityclass", queues.namespace)
    own_cluster.until(lambda: not queues.remaining_objects(), "the objects of both are deleted")


def test_a_gang_whose_queue_is_drained_waits_and_restarts(
    own_cluster: Cluster, open_executor: OpenExecutor, queues: Queues, start_simulation: Callable[..., RunnerApi]
) -> None:
    queues.set_quota(pods=3)
    executor, runner_api = (
        open_executor(),
        start_simulation(LAUNCH, 100_000, model=SUM.encode(), definition={}, params={}),
    )
    executor.submit(gang_launch(runner_api))
    until(lambda: "report" in runner_api.requests, PATIENCE)
    queues.set_quota(pods=3, stopPolicy="HoldAndDrain")
    wait_for_status(executor, LAUNCH, is_suspended_with("stopped"))
    until(lambda: not runner_api.count_leases(), PATIENCE)
    own_cluster.until(lambda: not queues.pods(LAUNCH), "its pods are deleted")
    before = len(runner_api.results())
    queues.set_quota(pods=3, stopPolicy="None")
    until(lambda: len(runner_api.results()) > before, PATIENCE)
    runner_api.cancel()
    wait_for_status(executor, LAUNCH, has_ended(runner_api))
    assert {json.dumps(result["metrics"]) for result in runner_api.results()} == {json.dumps({"sum": 1, "peers": 2})}
    executor.cancel(LAUNCH)
    own_cluster.until(lambda: not queues.remaining_objects(), "all of its objects are deleted")


@pytest.mark.parametrize("jobset", [True, False], ids=["a JobSet", "a Job"])
def test_an_admitted_launch_keeps_its_number_of_workers(
    own_cluster: Cluster,
    open_executor: OpenExecutor,
    queues: Queues,
    start_simulation: Callable[..., RunnerApi],
    jobset: bool,
) -> None:
    queues.set_quota(pods=1)
    executor, runner_api = open_executor(), start_simulation(LAUNCH, 100_000)
    submit(executor, own_cluster, queued_launch(runner_api, LAUNCH), jobset=jobset)
    wait_for_status(executor, LAUNCH, is_running)
    [before] = [pod["metadata"]["uid"] for pod in queues.pods(LAUNCH)]
    with pytest.raises(Unsupported, match="Kueue"):
        executor.resize(LAUNCH, 3)
    assert wait_for_status(executor, LAUNCH, is_running)
    assert [pod["metadata"]["uid"] for pod in queues.pods(LAUNCH)] == [before]
    executor.cancel(LAUNCH)


def test_warm_pods_wait_in_a_namespaces_default_queue_and_are_handed_out_only_while_they_run(
    open_executor: OpenExecutor, queues: Queues, start_simulation: Callable[..., RunnerApi]
) -> None:
    queues.set_quota(pods=1, name="default")
    runner_api = start_simulation(LAUNCH, 10)
    warm = {"project": "default", "runtime": "python", "dataset": "noop"}
    executor, launch = open_executor(warm=[warm], runner_api_url=runner_api.url), launch_of(runner_api.url, workers=1)
    until(lambda: executor.maintain_warm_pool({}), PATIENCE)
    queues.set_quota(pods=1, name="default", stopPolicy="HoldAndDrain")
    until(lambda: not executor.maintain_warm_pool({}), PATIENCE)
    assert executor.take_warm_launch(launch) is None and executor.orphans([]) == []
    queues.set_quota(pods=1, name="default", stopPolicy="None")
    until(lambda: executor.maintain_warm_pool({}), PATIENCE)
    assert executor.take_warm_launch(replace(launch, workers=2)) is None, "the queue admitted a single worker"
    assert executor.take_warm_launch(launch) is not None
    assert open_executor(runner_api_url=runner_api.url).maintain_warm_pool({}) is True, (
        "no warm launch is configured any more"
    )
