"""The executor contract on a real cluster, with real runners in its pods, and failures of clusters."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.errors import ClusterFull, LaunchRefused, NotGranted
from core.domain.scheduling.launches import Launch, LaunchStatus, Phase, Placement
from datasets.catalogue import datasets
from datasets.versions import scenario_folder
from runtimes.images import image_names
from tests.cached import image
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import Account
from tests.contracts.test_executor import (
    MODEL,
    Bench,
    launch_of,
    test_a_launch_is_observed_until_it_has_ended,
    test_a_launch_that_was_never_submitted_is_not_observed,
    test_cancelling_removes_a_launch_and_is_idempotent,
    test_submission_is_idempotent,
)
from tests.system.runner_api import LAUNCH, RunnerApi
from tests.waiting import until
from workers.executors import kubernetes
from workers.executors.base import LocalPaths
from workers.executors.kubernetes.executor import KubernetesExecutor
from workers.executors.kubernetes.objects import JOBSET, ResourceKind
from workers.executors.kubernetes.rbac import NAMESPACES, RIGHTS, rules

#: The contract of all executors: the same test functions.
CONTRACT = (
    test_a_launch_is_observed_until_it_has_ended,
    test_submission_is_idempotent,
    test_a_launch_that_was_never_submitted_is_not_observed,
    test_cancelling_removes_a_launch_and_is_idempotent,
)
ROOT = Path(__file__).parents[2]
TASKS = 100_000
SMALL = {"cpu": "10m", "memory": "256Mi"}
OpenExecutor = Callable[..., KubernetesExecutor]


@pytest.fixture(scope="module")
def images(own_cluster: Cluster) -> dict[str, str]:
    """Images of the launches, built from the present code."""
    required = {image_names.image_of(name) for name in ("python", "noop")}
    images = {name: image(name) for name in ("server", "python", "noop")}
    assert required <= {built.reference for built in images.values()}, "the sources changed while the images were built"
    for built in images.values():
        own_cluster.import_image(built.archive)
    return {"runner": images["server"].reference}


@pytest.fixture
def owner(own_cluster: Cluster) -> ResourceKind:
    """Kind of the launches' owner on this cluster."""
    own_cluster.jobset()
    return JOBSET


@pytest.fixture
def open_executor(
    own_cluster: Cluster, owner: ResourceKind, images: dict[str, str], namespace: str, tmp_path: Path
) -> Iterator[OpenExecutor]:
    """Open executors whose pods run in the test's namespace."""
    executors: list[KubernetesExecutor] = []
    paths = LocalPaths(home=tmp_path, run_dir=tmp_path, environments=tmp_path, runner_api_url="")

    def make(**options: Any) -> KubernetesExecutor:
        defaults = {
            "kubeconfig": str(own_cluster.kubeconfig),
            "namespace": namespace,
            "installation": namespace,
            "images": images,
            "pull_policy": "Never",
            **{part: SMALL for part in ("runner", "evaluator", "model_server")},
        }
        executors.append(kubernetes.open("west", kubernetes.KIND.parse(defaults | options), paths))
        return executors[-1]

    yield make
    for executor in executors:
        executor.close()


def serve_runner_api(cluster: Cluster, folder: Path, *, launched: bool = True, sleep_ms: int = 1) -> RunnerApi:
    """Serve a runner API with a hundred thousand tasks of this many milliseconds, reachable from pods."""
    play = {"definition": dict(datasets()["noop"].definition), "deadline": 5.0, "isolation": "launch"}
    play |= {"params": {"sleep_ms": sleep_ms}}
    dataset_archive = scenario_folder.pack(datasets()["noop"].folder)
    address = cluster.host_address
    return RunnerApi(
        folder, total=TASKS, play=play, model=MODEL, packed=dataset_archive, host=address, launched=launched
    )


@pytest.fixture
def runner_api(own_cluster: Cluster, tmp_path: Path) -> Iterator[RunnerApi]:
    """A simulation and its launch."""
    api = serve_runner_api(own_cluster, tmp_path)
    yield api
    api.close()


@pytest.fixture
def bench(open_executor: OpenExecutor, runner_api: RunnerApi) -> Bench:
    return Bench(open_executor(), launch_of(runner_api.url), runner_api.cancel)


def launch_without_runner_api(**changes: Any) -> Launch:
    """Return a launch whose runner API does not exist, for failures before its first request."""
    return launch_of("http://192.0.2.1:1", **changes)


def unschedulable_launch() -> Launch:
    """Return a launch whose pods cannot be scheduled, for tests that do not depend on pods.

    Pods that are deleted while they start need their whole grace period: a container's first process ignores signals
    without a handler.
    """
    return launch_without_runner_api(placement=Placement(resources={"example.com/gpu": "1"}))


def wait_for_status(executor: KubernetesExecutor, condition: Callable[[LaunchStatus], bool]) -> LaunchStatus:
    """Observe the launch until its status meets a condition; return the status."""
    statuses: list[LaunchStatus] = []

    def holds() -> bool:
        statuses[:] = executor.observe([LAUNCH]).values()
        return bool(statuses) and condition(statuses[0])

    until(holds, 120)
    return statuses[0]


def remaining_objects(cluster: Cluster, namespace: str) -> str:
    return "\n".join(cluster.launch_objects(namespace))


def test_a_cancelled_launch_leaves_no_objects(
    own_cluster: Cluster, bench: Bench, owner: ResourceKind, namespace: str
) -> None:
    bench.executor.submit(bench.launch)
    until(lambda: bench.phase() is Phase.RUNNING)
    kinds = {line.split(".")[0].split("/")[0] for line in remaining_objects(own_cluster, namespace).splitlines()}
    assert {owner.name.lower(), "job", "pod", "secret", "networkpolicy"} <= kinds
    bench.executor.cancel(LAUNCH)
    own_cluster.until(lambda: not remaining_objects(own_cluster, namespace), "all of its objects are deleted")
    bench.executor.submit(bench.launch)
    assert not remaining_objects(own_cluster, namespace), "a cancelled launch is not created again"


def test_orphans_of_another_dispatcher_are_found_and_cancelled(
    own_cluster: Cluster, open_executor: OpenExecutor, owner: ResourceKind, namespace: str
) -> None:
    open_executor().submit(unschedulable_launch())
    own_cluster.kubectl("delete", owner.plural, "-n", namespace, "--all")  # only the owner
    successor = open_executor()
    assert successor.orphans([]) == [LAUNCH] and successor.orphans([LAUNCH]) == []
    successor.cancel(LAUNCH)
    assert successor.orphans([]) == []
    own_cluster.until(lambda: not remaining_objects(own_cluster, namespace), "all of its objects are deleted")


def test_resizing_a_running_launch_restarts_no_pod(own_cluster: Cluster, bench: Bench, namespace: str) -> None:
    def pods() -> dict[str, str]:
        items = json.loads(own_cluster.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
        return {pod["metadata"]["uid"]: pod["status"]["phase"] for pod in items}

    bench.executor.submit(bench.launch)
    until(lambda: bench.phase() is Phase.RUNNING)
    before = pods()
    bench.executor.resize(LAUNCH, 3)
    until(lambda: len([phase for phase in pods().values() if phase == "Running"]) == 3)
    assert before.keys() <= pods().keys()
    bench.executor.resize(LAUNCH, 1)
    until(lambda: len([phase for phase in pods().values() if phase == "Running"]) == 1)
    bench.finish()
    until(lambda: bench.phase() is Phase.ENDED)
    bench.executor.cancel(LAUNCH)


def test_a_missing_image_is_noted_and_becomes_hopeless(open_executor: OpenExecutor) -> None:
    executor = open_executor(images={"runner": "windtunnel.local/none:1"}, patience=3)
    executor.submit(launch_without_runner_api())
    status = wait_for_status(executor, lambda status: status.hopeless)
    assert status.phase is Phase.STARTING and "has no image windtunnel.local/none:1 for the runner" in str(
        status.reason
    )
    executor.cancel(LAUNCH)


def test_unschedulable_resources_are_noted_and_not_hopeless(open_executor: OpenExecutor) -> None:
    executor = open_executor(patience=1)
    executor.submit(unschedulable_launch())
    status = wait_for_status(executor, lambda status: bool(status.notes))
    assert "not enough example.com/gpu" in status.notes[0].message and not status.hopeless
    executor.cancel(LAUNCH)


def test_a_container_beyond_its_memory_limit_is_named(open_executor: OpenExecutor) -> None:
    executor = open_executor(model_server={"cpu": "10m", "memory": "6Mi"})
    executor.submit(launch_without_runner_api())
    status = wait_for_status(
        executor, lambda status: any(note.key == "OOMKilled:model-server" for note in status.notes)
    )
    assert any("more than its 6Mi of memory" in note.message for note in status.notes)
    executor.cancel(LAUNCH)


def test_an_exhausted_quota_of_pods_is_noted_and_of_objects_refused_temporarily(
    own_cluster: Cluster, open_executor: OpenExecutor, owner: ResourceKind, namespace: str
) -> None:
    def limit(name: str, hard_limit: str) -> None:
        own_cluster.kubectl("create", "quota", name, f"--hard={hard_limit}", "-n", namespace)
        path = f"/api/v1/namespaces/{namespace}/resourcequotas/{name}"
        own_cluster.until(lambda: "used" in own_cluster.get(path).get("status", {}), "the quota is counted")

    limit("pods", "pods=1")
    executor = open_executor()
    executor.submit(launch_without_runner_api())
    status = wait_for_status(executor, lambda status: any(note.key == "quota" for note in status.notes))
    assert not status.hopeless
    executor.cancel(LAUNCH)
    limit("owners", f"count/{owner.plural}.{owner.api.partition('/')[0]}=0")
    with pytest.raises(ClusterFull, match="quota"):
        open_executor().submit(launch_without_runner_api())
    own_cluster.until(lambda: not remaining_objects(own_cluster, namespace), "all of its objects are deleted")


def test_a_missing_namespace_is_named_or_created(
    own_cluster: Cluster, open_executor: OpenExecutor, namespace: str
) -> None:
    pattern = f"x{namespace[-20:].strip('-')}-{{project}}"
    project_namespace = pattern.format(project="p1")
    with pytest.raises(NotGranted, match=f"kubectl create namespace {project_namespace}"):
        open_executor(namespace=pattern).submit(launch_without_runner_api(project="p1"))
    executor = open_executor(namespace=pattern, create_namespaces=True)
    executor.submit(launch_without_runner_api(project="p1"))
    assert executor.observe([LAUNCH])[LAUNCH].phase is Phase.STARTING
    labels = own_cluster.get(f"/api/v1/namespaces/{project_namespace}")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    own_cluster.kubectl("delete", "namespace", project_namespace, "--wait=false")
    with pytest.raises(ClusterFull, match="is being deleted"):
        executor.submit(launch_without_runner_api(id="s1x1x1", project="p1"))
    # The namespace's deletion waits for its pods, and these wait for followers that cannot be created; only
    # cancelling the launch ends that.
    until(lambda: has_ended(executor.observe([LAUNCH]).get(LAUNCH)), 150)
    executor.cancel(LAUNCH)
    until(lambda: is_accepted(executor, launch_without_runner_api(id="s1x1x1", project="p1")), 120)
    executor.cancel("s1x1x1")
    own_cluster.kubectl("delete", "namespace", project_namespace, "--wait=false")


def has_ended(status: LaunchStatus | None) -> bool:
    return status is None or status.phase is Phase.ENDED


def is_accepted(executor: KubernetesExecutor, launch: Launch) -> bool:
    try:
        executor.submit(launch)
    except ClusterFull:
        return False
    return True


def test_a_failing_webhook_is_retried_and_a_refusal_is_quoted(
    own_cluster: Cluster, open_executor: OpenExecutor, owner: ResourceKind, namespace: str
) -> None:
    own_cluster.apply(failing_webhook(namespace, owner))
    try:
        own_cluster.until(
            lambda: "failed calling webhook" in str(submission_error(open_executor)), "the webhook is called"
        )
        own_cluster.kubectl("delete", "validatingwebhookconfiguration", namespace)
        own_cluster.apply(*refusing_policy(namespace, owner))
        own_cluster.until(lambda: isinstance(submission_error(open_executor), LaunchRefused), "the policy is evaluated")
        assert "no simulations on Sundays" in str(submission_error(open_executor))
    finally:
        own_cluster.kubectl("delete", "--ignore-not-found", "validatingwebhookconfiguration", namespace)
        own_cluster.kubectl("delete", "--ignore-not-found", "validatingadmissionpolicybinding", namespace)
    executor = open_executor()
    for orphan in executor.orphans([]):
        executor.cancel(orphan)
    own_cluster.until(lambda: not remaining_objects(own_cluster, namespace), "all of its objects are deleted")


def submission_error(open_executor: OpenExecutor) -> BaseException | None:
    try:
        open_executor().submit(unschedulable_launch())
    except (OSError, LaunchRefused) as error:
        return error
    return None


def failing_webhook(namespace: str, owner: ResourceKind) -> dict[str, Any]:
    """A webhook without a server."""
    webhook = {
        "name": "absent.example.com",
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
        "clientConfig": {"url": "https://127.0.0.1:9/x"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [creation_rules(owner)],
    }
    api = "admissionregistration.k8s.io/v1"
    metadata = {"name": namespace}
    return {"apiVersion": api, "kind": "ValidatingWebhookConfiguration", "metadata": metadata, "webhooks": [webhook]}


def refusing_policy(namespace: str, owner: ResourceKind) -> list[dict[str, Any]]:
    """An admission policy that refuses the launches."""
    api, metadata = "admissionregistration.k8s.io/v1", {"name": namespace}
    validation = {"expression": "false", "message": "no simulations on Sundays"}
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [creation_rules(owner)]},
        "validations": [validation],
    }
    resources = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding = {"policyName": namespace, "validationActions": ["Deny"], "matchResources": resources}
    return [
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": policy},
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": binding},
    ]


def creation_rules(owner: ResourceKind) -> dict[str, list[str]]:
    groups, operations = [owner.api.partition("/")[0]], ["CREATE"]
    return {"apiGroups": groups, "apiVersions": ["*"], "operations": operations, "resources": [owner.plural]}


def kubeconfig_of(cluster: Cluster, account: Account, folder: Path) -> Path:
    """Return a kubeconfig with exactly the rights of an account."""
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": account.token()}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_rights_of_the_table_suffice_and_a_missing_right_is_named(
    own_cluster: Cluster, open_executor: OpenExecutor, owner: ResourceKind, account: Any, namespace: str, tmp_path: Path
) -> None:
    service_account: Account = account("windtunnel-rights", namespace)
    path = kubeconfig_of(own_cluster, service_account, tmp_path)
    with pytest.raises(NotGranted, match="may not create networkpolicies"):
        open_executor(kubeconfig=str(path)).submit(launch_without_runner_api())
    with pytest.raises(PermissionError, match=f"may not list {owner.plural}"):
        open_executor(kubeconfig=str(path)).observe([LAUNCH])
    role = {"kind": "ClusterRole", "metadata": {"name": namespace}, "rules": rules((*RIGHTS, NAMESPACES))}
    own_cluster.apply({"apiVersion": "rbac.authorization.k8s.io/v1", **role})
    service_account.bind(namespace)
    project = f"{namespace[-12:].strip('-')}-{{project}}"
    executor = open_executor(kubeconfig=str(path), namespace=project, create_namespaces=True)

    def works() -> bool:
        try:
            return executor.orphans([]) == []
        except PermissionError:  # the API server applies a role after a moment
            return False

    own_cluster.until(works, "the role is effective")
    launch = launch_without_runner_api(project="p")
    executor.submit(launch)
    executor.submit(launch)
    wait_for_status(executor, lambda status: status.phase is Phase.RUNNING)
    executor.resize(LAUNCH, 1)
    executor.cancel(LAUNCH)
    assert executor.orphans([]) == []
    own_cluster.kubectl("delete", "namespace", project.format(project="p"), "--wait=false")


def test_an_outage_of_the_api_server_leaves_statuses_unknown_and_launches_unchanged(
    own_cluster: Cluster, bench: Bench
) -> None:
    bench.executor.submit(bench.launch)
    until(lambda: bench.phase() is Phase.RUNNING)
    control_plane = own_cluster.control_plane
    control_plane.stop("kube-apiserver", graceful=False)
    try:
        for request in (bench.phase, lambda: bench.executor.orphans([])):
            until(lambda request=request: raises_os_error(request))  # a slow list is reused for some seconds
        with pytest.raises(OSError):
            bench.executor.submit(replace(bench.launch, id="s1x1x1"))
    finally:
        control_plane.resume("kube-apiserver")
        control_plane.wait()

    def answers() -> bool:
        try:
            return bench.executor.observe([LAUNCH, "s1x1x1"]).keys() == {LAUNCH}
        except OSError:  # the API server answers, but its watch cache is not filled yet
            return False

    until(answers)
    bench.finish()
    until(lambda: bench.phase() is Phase.ENDED, 120)
    bench.executor.cancel(LAUNCH)


def raises_os_error(request: Callable[[], object]) -> bool:
    try:
        request()
    except OSError:
        return True
    return False


def test_a_change_wakes_the_dispatcher(open_executor: OpenExecutor) -> None:
    executor, woken, stop = open_executor(), threading.Event(), threading.Event()
    watcher = threading.Thread(target=executor.watch, args=(woken.set, stop), daemon=True)
    watcher.start()
    executor.submit(unschedulable_launch())
    assert woken.wait(60)
    stop.set()
    executor.cancel(LAUNCH)
    watcher.join(60)
    assert not watcher.is_alive()
