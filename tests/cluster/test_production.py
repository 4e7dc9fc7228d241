"""Production installation of the chart: external stores, one Secret, a token, and a Job that migrates the schema first.

Envoy is disabled, because there is no image of it. All other values are the defaults.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster import stores
from tests.cluster.cluster import Cluster
from tests.cluster.platform_release import FINAL, RELEASE, UPGRADE, PlatformRelease, without_timing

NAMESPACE, STORES = "production", "production-stores"
SECRET, TOKEN, PASSWORD = "windtunnel-secrets", "operator-token-of-tests", "stores-password"
HOSTS = {name: f"{name}.{STORES}.svc" for name in ("postgresql", "valkey", "minio")}
SECRET_VALUES = {
    "WINDTUNNEL_TOKEN": TOKEN,
    "WINDTUNNEL_DATABASE_URL": f"postgresql+psycopg://windtunnel:{PASSWORD}@{HOSTS['postgresql']}/windtunnel",
    "WINDTUNNEL_REDIS_URL": f"redis://:{PASSWORD}@{HOSTS['valkey']}:6379/0",
    "WINDTUNNEL_OBJECT_STORE_URL": f"s3://windtunnel/objects?endpoint=http://{HOSTS['minio']}:9000",
    "WINDTUNNEL_OBJECT_STORE_ACCESS_KEY": "windtunnel",
    "WINDTUNNEL_OBJECT_STORE_SECRET_KEY": PASSWORD,
    "WINDTUNNEL_WEBHOOK_KEY": "k" * 64,
}
SMALL = {"requests": {"cpu": "10m", "memory": "64Mi"}}
#: Values that differ from the defaults: small resources, and names that other tests' releases do not use.
VALUES: dict[str, Any] = {
    "existingSecret": SECRET,
    "projects": {"namespace": f"{NAMESPACE}-{{project}}"},
    **{role: {"resources": SMALL} for role in ("api", "runnerApi", "dispatch", "jobs")},
}
TASKS = 2400
#: A minute of work for two pods, longer than a hook; how long a task sleeps does not affect its result.
LOAD: dict[str, Any] = {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, TASKS]}}
SLOW: dict[str, Any] = {"params": {"sleep_ms": 50}}
#: Kinds of a release's namespaced objects.
KINDS = (
    "deployments,daemonsets,statefulsets,replicasets,jobs,pods,services,endpointslices,configmaps,secrets,"
    "serviceaccounts,networkpolicies,poddisruptionbudgets,roles,rolebindings,controllerrevisions"
)
#: Objects of a new namespace.
ALWAYS = {"configmap/kube-root-ca.crt", "serviceaccount/default"}


class ProductionInstallation:
    """A production release and queries of its operator."""

    def __init__(self, cluster: Cluster, folder: Path, images: dict[str, str]) -> None:
        self.cluster = cluster
        self.release = PlatformRelease(
            cluster, folder, images, namespace=NAMESPACE, project=f"{NAMESPACE}-default", token=TOKEN
        )
        self.release.prepare(trial=False, **VALUES)

    def migration_jobs(self, reason: str) -> int:
        """Count the migration Jobs that ended in this way, by the cluster's events."""
        selector = f"involvedObject.kind=Job,involvedObject.name={RELEASE}-migrate,reason={reason}"
        output = self.cluster.kubectl("get", "events", "-n", NAMESPACE, f"--field-selector={selector}", "-o", "name")
        return len(output.split())

    def objects(self) -> set[str]:
        """Return the objects in its namespace, without the initial objects and the operator's Secret."""
        output = self.cluster.kubectl("get", KINDS, "-n", NAMESPACE, "-o", "name").split()
        return {re.sub(r"[.][^/]*(?=/)", "", name) for name in output} - ALWAYS - {f"secret/{SECRET}"}

    def role_pods(self) -> set[str]:
        """Return its roles' pods, without terminating pods."""
        pods = self.release.pods("app.kubernetes.io/component in (api,runner-api,dispatch,jobs)", NAMESPACE)
        return {pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}

    def status(self) -> str:
        """Return helm's status of the release."""
        status: str = json.loads(self.release.helm("status", RELEASE, "--output", "json"))["info"]["status"]
        return status

    def commands(self) -> Sequence[str]:
        """Return the commands of the notes, verbatim."""
        notes = self.release.helm("get", "notes", RELEASE).replace("\\\n", " ")
        return [line.strip() for line in notes.splitlines() if line.startswith("  ")]


@pytest.fixture(scope="module")
def installation(
    own_cluster: Cluster, platform_images: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProductionInstallation]:
    """A release that is not installed yet, without stores."""
    own_cluster.jobset()
    production = ProductionInstallation(own_cluster, tmp_path_factory.mktemp("production"), platform_images)
    yield production
    production.release.uninstall()
    own_cluster.kubectl("delete", "namespace", STORES, "--ignore-not-found", "--wait=false")


@pytest.fixture(scope="module")
def refusals(installation: ProductionInstallation) -> dict[str, str]:
    """Helm's messages, by the missing part."""
    messages = {}

    def try_upgrade(missing: str) -> None:
        completed = installation.release.try_helm(*UPGRADE)
        assert completed.returncode == 1, completed.stdout
        messages[missing] = completed.stderr

    try_upgrade("secret")
    literals = [f"--from-literal={name}={value}" for name, value in SECRET_VALUES.items()]
    installation.cluster.kubectl("create", "secret", "generic", SECRET, "-n", NAMESPACE, *literals[1:])
    try_upgrade("token")
    installation.cluster.kubectl("delete", "secret", SECRET, "-n", NAMESPACE)
    installation.cluster.kubectl("create", "secret", "generic", SECRET, "-n", NAMESPACE, *literals[:-1])
    try_upgrade("webhook key")
    installation.cluster.kubectl("delete", "secret", SECRET, "-n", NAMESPACE)
    installation.cluster.kubectl("create", "secret", "generic", SECRET, "-n", NAMESPACE, *literals)
    try_upgrade("database")
    return messages


@pytest.fixture(scope="module")
def production(installation: ProductionInstallation, refusals: dict[str, str]) -> PlatformRelease:
    """The installed release: the stores exist, and the same command is run again."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STORES}}
    installation.cluster.apply(namespace)
    installation.cluster.apply(*stores.external_stores(STORES, PASSWORD))
    wait = ["wait", "pods", "--all", "-n", STORES, "--for=condition=Ready", "--timeout=180s"]
    installation.cluster.kubectl(*wait, timeout=240)
    installation.release.upgrade()
    installation.release.wait_for_rollout()
    installation.cluster.until(lambda: installation.release.ready, "the API answers")
    return installation.release


def test_missing_values_are_reported_before_any_object_is_created(refusals: dict[str, str]) -> None:
    assert f"Secret {SECRET} does not exist in namespace {NAMESPACE}; create it first" in refusals["secret"]
    assert f"{SECRET} has no key WINDTUNNEL_TOKEN, and settings.token is not set" in refusals["token"]
    assert f"{SECRET} has no key WINDTUNNEL_WEBHOOK_KEY" in refusals["webhook key"]


def test_an_unreachable_database_is_named_by_helm(
    installation: ProductionInstallation, refusals: dict[str, str]
) -> None:
    message = refusals["database"]
    assert f"The database windtunnel at {HOSTS['postgresql']}:5432 cannot be used: failed to resolve host" in message
    assert f"job {RELEASE}-migrate failed: BackoffLimitExceeded" in message and PASSWORD not in message
    installation.cluster.until(
        lambda: installation.migration_jobs("BackoffLimitExceeded") == 1, "the cluster reports the failed Job"
    )


def test_the_next_attempt_creates_the_schema_and_then_every_role(
    installation: ProductionInstallation, production: PlatformRelease
) -> None:
    installation.cluster.until(lambda: installation.migration_jobs("Completed") == 1, "the migration hook has run")
    assert installation.status() == "deployed"
    assert not {f"job/{RELEASE}-migrate", f"secret/{RELEASE}-migrate"} & installation.objects(), (
        "the hook deletes its objects"
    )
    ready = {
        name: installation.cluster.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}-{name}")["status"]
        for name in ("api", "runner-api", "dispatch", "jobs")
    }
    assert {name: status["readyReplicas"] for name, status in ready.items()} == {
        "api": 2,
        "runner-api": 2,
        "dispatch": 2,
        "jobs": 1,
    }


def test_only_requests_with_the_token_are_served(
    installation: ProductionInstallation, production: PlatformRelease
) -> None:
    service = installation.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/services/{RELEASE}-api")["spec"]
    address, host = f"http://{service['clusterIP']}/v1/simulations", {"Host": f"{RELEASE}-api.{NAMESPACE}.svc"}
    assert httpx.get(address, headers=host, timeout=30.0).status_code == 401
    wrong = host | {"Authorization": "Bearer wrong-token"}
    assert httpx.get(address, headers=wrong, timeout=30.0).status_code == 401
    assert httpx.get(address, headers=host | production.headers, timeout=30.0).status_code == 200


def test_the_commands_of_the_notes_work_verbatim(installation: ProductionInstallation, own_cluster: Cluster) -> None:
    forward, ready, token, label = installation.commands()
    assert "port-forward" in forward and ready.startswith("curl ")
    # The commands run on a node, where port 5000 is free.
    environment = (
        f"export PATH={own_cluster.programs}:$PATH KUBECONFIG={own_cluster.kubeconfig} HOME={own_cluster.folder}"
    )
    wait = f"until {ready} --silent --fail; do sleep 0.2; kill -0 $forward; done"
    script = f"set -e; {environment}\n{forward} >&2 &\nforward=$!; trap 'kill $forward' EXIT\n{wait}\n"
    assert "ready" in own_cluster.node(0).call("sh", "-c", script)
    assert own_cluster.node(0).call("sh", "-c", f"{environment}\n{token}") == TOKEN
    own_cluster.node(0).call("sh", "-c", f"{environment}\n{label}")


@pytest.fixture(scope="module")
def undisturbed(production: PlatformRelease) -> list[Any]:
    """Results of the load without failures."""
    ended = production.wait_for_end(production.submit(**LOAD))
    assert ended["state"] == "succeeded", (ended["reason"], production.messages(ended["id"]))
    return without_timing(production.results(ended["id"]))


def test_a_simulation_runs_to_its_end_and_leaves_no_objects(
    production: PlatformRelease, undisturbed: list[Any]
) -> None:
    assert [result["task"] for result in undisturbed] == list(range(TASKS))
    assert {result["status"] for result in undisturbed} == {"ok"}
    production.until(lambda: not production.remaining_objects(), "all of its objects are deleted")


def test_an_upgrade_replaces_every_pod_and_changes_no_result(
    installation: ProductionInstallation, production: PlatformRelease, undisturbed: list[Any]
) -> None:
    id = production.submit(**LOAD, **SLOW)
    production.until(lambda: production.get(f"/v1/simulations/{id}")["tasks"]["done"] > 0, "a task is done")
    before = installation.role_pods()
    production.set_values(settings={"leaseTtl": 5, "logLevel": "DEBUG"})
    production.upgrade()
    assert production.get(f"/v1/simulations/{id}")["state"] not in FINAL
    production.until(lambda: installation.migration_jobs("Completed") == 2, "the migration hook has run again")
    production.wait_for_rollout()
    assert len(before) == 7 and not before & installation.role_pods(), "every pod is replaced"
    ended = production.wait_for_end(id, 300.0)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1), (ended["reason"], production.messages(id))
    assert without_timing(production.results(id)) == undisturbed
    production.until(lambda: not production.remaining_objects(), "all of its objects are deleted")


def test_an_interrupted_upgrade_is_rolled_back_and_uninstalling_leaves_no_objects(
    installation: ProductionInstallation, production: PlatformRelease
) -> None:
    completed = production.try_helm(*UPGRADE, "--timeout", "1s")
    assert completed.returncode == 1 and installation.status() == "failed"
    assert f"job/{RELEASE}-migrate" in installation.objects(), "the failed hook's Job is kept for diagnosis"
    production.helm("rollback", RELEASE, "2")
    production.wait_for_rollout()
    production.until(lambda: production.ready, "the API answers")
    settings = installation.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{RELEASE}-settings")["data"]
    assert installation.status() == "deployed" and "WINDTUNNEL_LOG_LEVEL" not in settings

    production.helm("uninstall", RELEASE)
    installation.cluster.until(lambda: not installation.objects(), "its namespace has no objects left")
    path = f"/api/v1/namespaces/{NAMESPACE}-default"
    installation.cluster.until(lambda: installation.cluster.get(path) is None, "its project's namespace is deleted")
    roles = installation.cluster.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name").split()
    assert [name for name in roles if f"{NAMESPACE}-{RELEASE}" in name] == []
