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
from tests.cluster.platform_release import FINAL, RELEASE, UPGRADE, Installed, untimed

NAMESPACE, STORES = "production", "production-stores"
SECRET, TOKEN, PASSWORD = "windtunnel-secrets", "of-the-operator", "of-the-stores"
HOSTS = {name: f"{name}.{STORES}.svc" for name in ("postgresql", "valkey", "minio")}
GIVEN = {
    "WINDTUNNEL_TOKEN": TOKEN,
    "WINDTUNNEL_DATABASE_URL": f"postgresql+psycopg://windtunnel:{PASSWORD}@{HOSTS['postgresql']}/windtunnel",
    "WINDTUNNEL_REDIS_URL": f"redis://:{PASSWORD}@{HOSTS['valkey']}:6379/0",
    "WINDTUNNEL_OBJECT_STORE_URL": f"s3://windtunnel/objects?endpoint=http://{HOSTS['minio']}:9000",
    "WINDTUNNEL_OBJECT_STORE_ACCESS_KEY": "windtunnel",
    "WINDTUNNEL_OBJECT_STORE_SECRET_KEY": PASSWORD,
}
LITTLE = {"requests": {"cpu": "10m", "memory": "64Mi"}}
#: Values that differ from the defaults: small resources, and names that other tests' releases do not use.
VALUES: dict[str, Any] = {
    "existingSecret": SECRET,
    "projects": {"namespace": f"{NAMESPACE}-{{project}}"},
    **{role: {"resources": LITTLE} for role in ("api", "runnerApi", "dispatch", "jobs")},
}
TASKS = 2400
#: A minute of work for two pods, longer than a hook; how long a task sleeps does not affect its result.
LOAD: dict[str, Any] = {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, TASKS]}}
SLOWLY: dict[str, Any] = {"params": {"sleep_ms": 50}}
#: Kinds of a release's namespaced objects.
KINDS = (
    "deployments,daemonsets,statefulsets,replicasets,jobs,pods,services,endpointslices,configmaps,secrets,"
    "serviceaccounts,networkpolicies,poddisruptionbudgets,roles,rolebindings,controllerrevisions"
)
#: Objects of a new namespace.
ALWAYS = {"configmap/kube-root-ca.crt", "serviceaccount/default"}


class Production:
    """A release, as its operator sees it."""

    def __init__(self, cluster: Cluster, folder: Path, images: dict[str, str]) -> None:
        self.cluster = cluster
        self.release = Installed(
            cluster, folder, images, namespace=NAMESPACE, project=f"{NAMESPACE}-default", token=TOKEN
        )
        self.release.prepare(trial=False, **VALUES)

    def hooks(self, reason: str) -> int:
        """Count the migration Jobs that ended in this way, by the cluster's events."""
        chosen = f"involvedObject.kind=Job,involvedObject.name={RELEASE}-migrate,reason={reason}"
        found = self.cluster.kubectl("get", "events", "-n", NAMESPACE, f"--field-selector={chosen}", "-o", "name")
        return len(found.split())

    def there(self) -> set[str]:
        """Return the objects in its namespace, without the initial objects and the operator's Secret."""
        found = self.cluster.kubectl("get", KINDS, "-n", NAMESPACE, "-o", "name").split()
        return {re.sub(r"[.][^/]*(?=/)", "", one) for one in found} - ALWAYS - {f"secret/{SECRET}"}

    def roles(self) -> set[str]:
        """Return its roles' pods, without terminating pods."""
        found = self.release.pods("app.kubernetes.io/component in (api,runner_api,dispatch,jobs)", NAMESPACE)
        return {one["metadata"]["uid"] for one in found if "deletionTimestamp" not in one["metadata"]}

    def status(self) -> str:
        """Return helm's status of the release."""
        status: str = json.loads(self.release.helm("status", RELEASE, "--output", "json"))["info"]["status"]
        return status

    def commands(self) -> Sequence[str]:
        """Return the commands of the notes, verbatim."""
        notes = self.release.helm("get", "notes", RELEASE).replace("\\\n", " ")
        return [line.strip() for line in notes.splitlines() if line.startswith("  ")]


@pytest.fixture(scope="module")
def operator(
    own_cluster: Cluster, brought: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Production]:
    """A release that is not installed yet, without stores."""
    own_cluster.jobset()
    made = Production(own_cluster, tmp_path_factory.mktemp("production"), brought)
    yield made
    made.release.uninstall()
    own_cluster.kubectl("delete", "namespace", STORES, "--ignore-not-found", "--wait=false")


@pytest.fixture(scope="module")
def refused(operator: Production) -> dict[str, str]:
    """Helm's message for each missing value."""
    said = {}

    def tried(what: str) -> None:
        done = operator.release.ask_helm(*UPGRADE)
        assert done.returncode == 1, done.stdout
        said[what] = done.stderr

    tried("secret")
    literals = [f"--from-literal={name}={value}" for name, value in GIVEN.items()]
    operator.cluster.kubectl("create", "secret", "generic", SECRET, "-n", NAMESPACE, *literals[1:])
    tried("token")
    operator.cluster.kubectl("delete", "secret", SECRET, "-n", NAMESPACE)
    operator.cluster.kubectl("create", "secret", "generic", SECRET, "-n", NAMESPACE, *literals)
    tried("database")
    return said


@pytest.fixture(scope="module")
def production(operator: Production, refused: dict[str, str]) -> Installed:
    """The stores exist, and the same command is run again."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": STORES}}
    operator.cluster.apply(space)
    operator.cluster.apply(*stores.apart(STORES, PASSWORD))
    wait = ["wait", "pods", "--all", "-n", STORES, "--for=condition=Ready", "--timeout=180s"]
    operator.cluster.kubectl(*wait, timeout=240)
    operator.release.upgrade()
    operator.release.rolled()
    operator.cluster.until(lambda: operator.release.ready, "the API answers")
    return operator.release


def test_missing_values_are_reported_before_any_object_is_created(refused: dict[str, str]) -> None:
    assert f"Secret {SECRET} does not exist in namespace {NAMESPACE}; create it first" in refused["secret"]
    assert f"{SECRET} has no key WINDTUNNEL_TOKEN, and settings.token is not set" in refused["token"]


def test_an_unreachable_database_is_named_by_helm(operator: Production, refused: dict[str, str]) -> None:
    said = refused["database"]
    assert f"The database windtunnel at {HOSTS['postgresql']}:5432 cannot be used: failed to resolve host" in said
    assert f"job {RELEASE}-migrate failed: BackoffLimitExceeded" in said and PASSWORD not in said
    operator.cluster.until(lambda: operator.hooks("BackoffLimitExceeded") == 1, "the cluster says so, too")


def test_the_next_attempt_creates_the_schema_and_then_every_role(operator: Production, production: Installed) -> None:
    operator.cluster.until(lambda: operator.hooks("Completed") == 1, "the hook ran")
    assert operator.status() == "deployed"
    assert not {f"job/{RELEASE}-migrate", f"secret/{RELEASE}-migrate"} & operator.there(), "the hook cleans up"
    ready = {
        name: operator.cluster.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}-{name}")["status"]
        for name in ("api", "runner-api", "dispatch", "jobs")
    }
    assert {name: one["readyReplicas"] for name, one in ready.items()} == {
        "api": 2,
        "runner-api": 2,
        "dispatch": 2,
        "jobs": 1,
    }


def test_only_requests_with_the_token_are_served(operator: Production, production: Installed) -> None:
    service = operator.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/services/{RELEASE}-api")["spec"]
    address, host = f"http://{service['clusterIP']}/v1/simulations", {"Host": f"{RELEASE}-api.{NAMESPACE}.svc"}
    assert httpx.get(address, headers=host, timeout=30.0).status_code == 401
    wrong = host | {"Authorization": "Bearer of-somebody"}
    assert httpx.get(address, headers=wrong, timeout=30.0).status_code == 401
    assert httpx.get(address, headers=host | production.headers, timeout=30.0).status_code == 200


def test_the_commands_of_the_notes_work_verbatim(operator: Production, own_cluster: Cluster) -> None:
    forward, ready, token, label = operator.commands()
    assert "port-forward" in forward and ready.startswith("curl ")
    # Only on a machine where port 5000 is free.
    begin = f"export PATH={own_cluster.programs}:$PATH KUBECONFIG={own_cluster.kubeconfig} HOME={own_cluster.folder}"
    wait = f"until {ready} --silent --fail; do sleep 0.2; kill -0 $forward; done"
    script = f"set -e; {begin}\n{forward} >&2 &\nforward=$!; trap 'kill $forward' EXIT\n{wait}\n"
    assert "ready" in own_cluster.node(0).call("sh", "-c", script)
    assert own_cluster.node(0).call("sh", "-c", f"{begin}\n{token}") == TOKEN
    own_cluster.node(0).call("sh", "-c", f"{begin}\n{label}")


@pytest.fixture(scope="module")
def undisturbed(production: Installed) -> list[Any]:
    """Results of the load without failures."""
    ended = production.ended(production.submit(**LOAD))
    assert ended["state"] == "succeeded", (ended["reason"], production.messages(ended["id"]))
    return untimed(production.results(ended["id"]))


def test_a_simulation_runs_to_its_end_and_leaves_no_objects(production: Installed, undisturbed: list[Any]) -> None:
    assert [one["task"] for one in undisturbed] == list(range(TASKS))
    assert {one["status"] for one in undisturbed} == {"ok"}
    production.until(lambda: not production.left(), "nothing is left of it")


def test_an_upgrade_replaces_every_pod_and_changes_no_result(
    operator: Production, production: Installed, undisturbed: list[Any]
) -> None:
    id = production.submit(**LOAD, **SLOWLY)
    production.until(lambda: production.get(f"/v1/simulations/{id}")["tasks"]["done"] > 0, "results come")
    before = operator.roles()
    production.tell(settings={"leaseTtl": 5, "logLevel": "DEBUG"})
    production.upgrade()
    assert production.get(f"/v1/simulations/{id}")["state"] not in FINAL
    production.until(lambda: operator.hooks("Completed") == 2, "the hook ran once more")
    production.rolled()
    assert len(before) == 7 and not before & operator.roles(), "all of them are others"
    ended = production.ended(id, 300.0)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1), (ended["reason"], production.messages(id))
    assert untimed(production.results(id)) == undisturbed
    production.until(lambda: not production.left(), "nothing is left of it")


def test_an_interrupted_upgrade_is_rolled_back_and_uninstalling_leaves_no_objects(
    operator: Production, production: Installed
) -> None:
    done = production.ask_helm(*UPGRADE, "--timeout", "1s")
    assert done.returncode == 1 and operator.status() == "failed"
    assert f"job/{RELEASE}-migrate" in operator.there(), "it is kept to be looked at"
    production.helm("rollback", RELEASE, "2")
    production.rolled()
    production.until(lambda: production.ready, "the API answers")
    settings = operator.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{RELEASE}-settings")["data"]
    assert operator.status() == "deployed" and "WINDTUNNEL_LOG_LEVEL" not in settings

    production.helm("uninstall", RELEASE)
    operator.cluster.until(lambda: not operator.there(), "nothing is left in its namespace")
    path = f"/api/v1/namespaces/{NAMESPACE}-default"
    operator.cluster.until(lambda: operator.cluster.get(path) is None, "nor that of its project")
    everywhere = operator.cluster.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name").split()
    assert [one for one in everywhere if f"{NAMESPACE}-{RELEASE}" in one] == []
