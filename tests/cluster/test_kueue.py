"""Launches in queues of a real Kueue: they wait with a reason, are admitted, are preempted, and continue."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.domain.launches import Launch, LaunchStatus, Phase, Placement
from datasets.catalogue import datasets
from datasets.versions import scenario_folder
from errors import Unsupported
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import Account
from tests.cluster.operators import QUEUES, flavor
from tests.cluster.test_gangs import SUM
from tests.cluster.test_kubernetes_executor import Open, entitled
from tests.cluster.test_kubernetes_executor import images as images  # fixtures are found by their names in here
from tests.cluster.test_kubernetes_executor import opened as opened
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
#: Name of every LocalQueue here, and id of the second launch.
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

    def open(self, pods: int, *, name: str = QUEUE, **spec: Any) -> None:
        """Create a queue with a quota of pods, or change the quota."""
        quota = {"cpu": 100, "memory": "1000Gi", "pods": pods}
        resources = [{"name": of, "nominalQuota": much} for of, much in quota.items()]
        flavors = [{"name": self.namespace, "resources": resources}]
        group = {"coveredResources": list(quota), "flavors": flavors}
        whole = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
        local = {"name": name, "namespace": self.namespace}
        self._cluster.apply(
            {"apiVersion": QUEUES, "kind": "ClusterQueue", "metadata": {"name": self.namespace}, "spec": whole},
            {"apiVersion": QUEUES, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": self.namespace}},
        )

    def left(self) -> list[str]:
        """Return the objects of launches."""
        return self._cluster.kubectl("get", ALL, "-n", self.namespace, "-o", "name").split()

    def pods(self, launch: str) -> list[Any]:
        """Return the pods of a launch."""
        selector = ("-n", self.namespace, "-l", f"windtunnel/launch={launch}", "-o", "json")
        found: list[Any] = json.loads(self._cluster.kubectl("get", "pods", *selector))["items"]
        return found

    def close(self) -> None:
        """Delete the queues, and the launches that still wait in them."""
        self._cluster.kubectl("delete", "-n", self.namespace, "jobsets,jobs,localqueues", "--all")
        for kind in ("clusterqueue", "resourceflavor"):
            self._cluster.kubectl("delete", kind, self.namespace, "--ignore-not-found")


@pytest.fixture
def queues(own_cluster: Cluster, namespace: str) -> Iterator[Queues]:
    own_cluster.kueue()
    made = Queues(own_cluster, namespace)
    yield made
    made.close()


@pytest.fixture
def simulated(own_cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., RunnerApi]]:
    """Serve simulations of this many tasks of 10 ms, each with its launch."""
    made: list[RunnerApi] = []

    def offer(launch: str, total: int, *, model: bytes = MODEL, **play: Any) -> RunnerApi:
        noop = datasets()["noop"]
        told = {"definition": dict(noop.definition), "deadline": 5.0, "isolation": "launch", "params": {"sleep_ms": 10}}
        folder = tmp_path / launch
        folder.mkdir()
        made.append(
            RunnerApi(
                folder,
                total=total,
                play=told | play,
                workers=1,
                model=model,
                packed=scenario_folder.pack(noop.folder),
                host=own_cluster.host_address,
                launched=False,
            )
        )
        made[-1].launch(id=launch)
        return made[-1]

    yield offer
    for one in made:
        one.close()


def queued(runner_api: RunnerApi, id: str, queue: str = QUEUE, **changes: Any) -> Launch:
    """Return a launch of one pod that names a queue."""
    return launch_of(runner_api.url, id=id, workers=1, placement=Placement(queue=queue, **changes))


def seen(executor: KubernetesExecutor, id: str, so: Callable[[LaunchStatus], bool]) -> LaunchStatus:
    """Observe until a condition holds."""
    found: list[LaunchStatus] = []

    def look() -> bool:
        found[:] = executor.observe([id]).values()
        return bool(found) and so(found[0])

    try:
        until(look, PATIENCE)
    except AssertionError:
        raise AssertionError(f"what was seen last: {found}") from None
    return found[0]


def waits(words: str) -> Callable[[LaunchStatus], bool]:
    """Return whether a launch is suspended with a note that contains these words."""
    return lambda one: one.phase is Phase.SUSPENDED and any(words in note.words for note in one.notes)


def runs(one: LaunchStatus) -> bool:
    return one.phase is Phase.RUNNING


def over(runner_api: RunnerApi) -> Callable[[LaunchStatus], bool]:
    """Do one pass of a dispatcher; return whether the launch has ended."""

    def ended(one: LaunchStatus) -> bool:
        runner_api.settle()
        return one.phase is Phase.ENDED

    return ended


def whole(runner_api: RunnerApi, total: int) -> None:
    """Check that each task has exactly one result, and that it is `ok`."""
    assert [one["status"] for one in runner_api.results()] == ["ok"] * total


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
    shown = [one for part in text.split("```yaml\n")[1:] for one in yaml.safe_load_all(part.split("```")[0])]
    for one in shown:
        if one["metadata"].get("namespace"):
            one["metadata"]["namespace"] = queues.namespace
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": shown})
    said = own_cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", given=document)
    assert said.count("created (server dry run)") == 3


@pytest.mark.parametrize("jobset", [True, False], ids=["a JobSet", "a Job"])
def test_a_launch_without_quota_says_so_and_runs_once_another_has_ended(
    own_cluster: Cluster, opened: Open, queues: Queues, simulated: Callable[..., RunnerApi], jobset: bool
) -> None:
    queues.open(pods=1)
    executor, first, second = opened(), simulated(LAUNCH, 100_000), simulated(SECOND, 200)
    submit(executor, own_cluster, queued(first, LAUNCH), jobset=jobset)
    seen(executor, LAUNCH, runs)
    submit(executor, own_cluster, queued(second, SECOND), jobset=jobset)
    told = seen(executor, SECOND, waits("quota for pods"))
    assert not told.hopeless and not queues.pods(SECOND)
    first.cancel()
    seen(executor, LAUNCH, over(first))
    executor.cancel(LAUNCH)
    assert seen(executor, SECOND, over(second)).exit == 0
    whole(second, 200)
    executor.cancel(SECOND)
    own_cluster.until(lambda: not queues.left(), "nothing of both is left")


def test_a_launch_queued_behind_another_is_not_reported_as_suspended(
    opened: Open, queues: Queues, simulated: Callable[..., RunnerApi]
) -> None:
    queues.open(pods=0, queueingStrategy="StrictFIFO")
    executor, runner_api = opened(), simulated(LAUNCH, 10)
    for id in (LAUNCH, SECOND):
        executor.submit(queued(runner_api, id))
    told: set[str] = set()

    def both() -> bool:
        found = executor.observe([LAUNCH, SECOND])
        told.update(note.words for one in found.values() for note in one.notes)
        return any("quota for pods" in words for words in told)

    until(both, PATIENCE)
    seen(executor, SECOND, waits("until its turn comes"))
    assert not [words for words in told if "somebody" in words], told
    for id in (LAUNCH, SECOND):
        executor.cancel(id)


def test_a_missing_queue_is_named_with_the_rights_of_the_table(
    own_cluster: Cluster,
    opened: Open,
    queues: Queues,
    simulated: Callable[..., RunnerApi],
    account: Any,
    tmp_path: Path,
) -> None:
    ours: Account = account(f"rights{queues.namespace[-7:]}", "platform")
    role = {"kind": "ClusterRole", "metadata": {"name": queues.namespace}, "rules": rules(RIGHTS)}
    own_cluster.apply({"apiVersion": "rbac.authorization.k8s.io/v1", **role})
    ours.bind(queues.namespace)
    executor = opened(kubeconfig=str(entitled(own_cluster, ours, tmp_path)))
    own_cluster.until(lambda: allowed(executor), "the role is known")
    runner_api = simulated(LAUNCH, 100)
    executor.submit(queued(runner_api, LAUNCH, "nowhere"))
    told = seen(executor, LAUNCH, waits("LocalQueue nowhere doesn't exist"))
    assert not told.hopeless, "somebody may make it"
    assert executor.orphans([]) == [LAUNCH] and executor.orphans([LAUNCH]) == []
    executor.cancel(LAUNCH)
    own_cluster.until(lambda: not queues.left(), "nothing of it is left")
    assert executor.orphans([]) == []


def allowed(executor: KubernetesExecutor) -> bool:
    try:
        return executor.observe(["nobody"]) == {}
    except PermissionError:  # the API server applies a role after a moment
        return False


def test_a_gang_is_admitted_whole_or_not_at_all(
    own_cluster: Cluster, opened: Open, queues: Queues, simulated: Callable[..., RunnerApi]
) -> None:
    queues.open(pods=2)
    executor, runner_api = opened(), simulated(LAUNCH, 2, model=SUM.encode(), definition={}, params={})
    executor.submit(together(runner_api))
    told = seen(executor, LAUNCH, waits("quota for pods"))
    assert not queues.pods(LAUNCH), told
    queues.open(pods=3)
    assert seen(executor, LAUNCH, over(runner_api)).exit == 0
    assert [one["metrics"] for one in runner_api.results()] == [{"sum": 1, "peers": 2}] * 2
    executor.cancel(LAUNCH)
    own_cluster.until(lambda: not queues.left(), "nothing of it is left")


def together(runner_api: RunnerApi, **changes: Any) -> Launch:
    """Return a gang of two replicas and their leader."""
    placement = Placement(cpu=0.01, memory=128 << 20, queue=QUEUE)
    made = gang(2, "torch", placement, command=("python", "model.py"), **changes)
    return replace(made, id=LAUNCH, url=runner_api.url, token=TOKEN)


@pytest.mark.parametrize("jobset", [True, False], ids=["a JobSet", "a Job"])
def test_a_preempted_launch_releases_its_leases_and_continues_later(
    own_cluster: Cluster, opened: Open, queues: Queues, simulated: Callable[..., RunnerApi], jobset: bool
) -> None:
    queues.open(pods=1, preemption={"withinClusterQueue": "LowerPriority"})
    urgent = {"kind": "PriorityClass", "metadata": {"name": queues.namespace}, "value": 1000}
    own_cluster.apply({"apiVersion": "scheduling.k8s.io/v1", **urgent})
    executor, first, second = opened(), simulated(LAUNCH, 3000), simulated(SECOND, 200)
    submit(executor, own_cluster, queued(first, LAUNCH), jobset=jobset)
    until(lambda: "report" in first.asked, PATIENCE)
    submit(executor, own_cluster, queued(second, SECOND, priority=queues.namespace), jobset=jobset)
    seen(executor, LAUNCH, waits("evicted the launch (Preempted"))
    until(lambda: not first.held(), PATIENCE)
    assert seen(executor, SECOND, over(second)).exit == 0
    executor.cancel(SECOND)
    assert seen(executor, LAUNCH, over(first)).exit == 0
    whole(first, 3000)
    whole(second, 200)
    executor.cancel(LAUNCH)
    own_cluster.kubectl("delete", "priorityclass", queues.namespace)
    own_cluster.until(lambda: not queues.left(), "nothing of both is left")


def test_a_gang_whose_queue_is_drained_waits_and_restarts(
    own_cluster: Cluster, opened: Open, queues: Queues, simulated: Callable[..., RunnerApi]
) -> None:
    queues.open(pods=3)
    executor, runner_api = opened(), simulated(LAUNCH, 100_000, model=SUM.encode(), definition={}, params={})
    executor.submit(together(runner_api))
    until(lambda: "report" in runner_api.asked, PATIENCE)
    queues.open(pods=3, stopPolicy="HoldAndDrain")
    seen(executor, LAUNCH, waits("stopped"))
    until(lambda: not runner_api.held(), PATIENCE)
    own_cluster.until(lambda: not queues.pods(LAUNCH), "its pods are gone")
    before = len(runner_api.results())
    queues.open(pods=3, stopPolicy="None")
    until(lambda: len(runner_api.results()) > before, PATIENCE)
    runner_api.cancel()
    seen(executor, LAUNCH, over(runner_api))
    assert {json.dumps(one["metrics"]) for one in runner_api.results()} == {json.dumps({"sum": 1, "peers": 2})}
    executor.cancel(LAUNCH)
    own_cluster.until(lambda: not queues.left(), "nothing of it is left")


@pytest.mark.parametrize("jobset", [True, False], ids=["a JobSet", "a Job"])
def test_an_admitted_launch_keeps_its_number_of_workers(
    own_cluster: Cluster, opened: Open, queues: Queues, simulated: Callable[..., RunnerApi], jobset: bool
) -> None:
    queues.open(pods=1)
    executor, runner_api = opened(), simulated(LAUNCH, 100_000)
    submit(executor, own_cluster, queued(runner_api, LAUNCH), jobset=jobset)
    seen(executor, LAUNCH, runs)
    [before] = [pod["metadata"]["uid"] for pod in queues.pods(LAUNCH)]
    with pytest.raises(Unsupported, match="Kueue"):
        executor.resize(LAUNCH, 3)
    assert seen(executor, LAUNCH, runs)
    assert [pod["metadata"]["uid"] for pod in queues.pods(LAUNCH)] == [before]
    executor.cancel(LAUNCH)


def test_warm_pods_wait_in_a_namespaces_default_queue_and_are_handed_out_only_while_they_run(
    opened: Open, queues: Queues, simulated: Callable[..., RunnerApi]
) -> None:
    queues.open(pods=1, name="default")
    runner_api = simulated(LAUNCH, 10)
    warm = {"project": "default", "runtime": "python", "dataset": "noop"}
    executor, narrow = opened(warm=[warm], runner_api_url=runner_api.url), launch_of(runner_api.url, workers=1)
    until(lambda: executor.maintain_warm_pool({}), PATIENCE)
    queues.open(pods=1, name="default", stopPolicy="HoldAndDrain")
    until(lambda: not executor.maintain_warm_pool({}), PATIENCE)
    assert executor.take_warm_launch(narrow) is None and executor.orphans([]) == []
    queues.open(pods=1, name="default", stopPolicy="None")
    until(lambda: executor.maintain_warm_pool({}), PATIENCE)
    assert executor.take_warm_launch(replace(narrow, workers=2)) is None, "the queue let in one"
    assert executor.take_warm_launch(narrow) is not None
    assert opened(runner_api_url=runner_api.url).maintain_warm_pool({}) is True, "none is wanted any more"
