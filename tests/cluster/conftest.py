"""Fixtures of tests on a real Kubernetes. `make cluster` builds it first; otherwise the first test does.

With KUBECONFIG in the environment tests run on that cluster, except those that request `own_cluster` or
`control_plane`: they stop parts of the cluster, hold its keys, or let pods call processes of this machine.
"""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.client import Borrowed, Client
from tests.cluster.cluster import Cluster
from tests.cluster.control_plane import ControlPlane
from tests.cluster.platform_release import NAMESPACE, PROJECT, ROOT, Installed, bring_images, installed
from tests.cluster.tools import tool

AUDIENCE = "scs"
#: Time limit of a test in seconds, without its fixtures.
LONGEST = 900
LENT = os.environ.get("KUBECONFIG", "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that cannot run on a user's cluster, and give each test time for a lost node on a slow machine.

    Tests of Kueue come last: once it is installed, Jobs and JobSets depend on its webhooks.
    """
    items.sort(key=lambda item: "queues" in getattr(item, "fixturenames", ()))
    if LENT:
        left_out = [item for item in items if "own_cluster" in getattr(item, "fixturenames", ())]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST))


@pytest.fixture(scope="session")
def own_cluster() -> Iterator[Cluster]:
    """A cluster of this session, at first with one node; operators are installed when a test requests them."""
    with Cluster() as running:
        yield running


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """The cluster of this session, or the user's."""
    if LENT:
        importer = os.environ.get("CLUSTER_IMPORT", "")
        folder = tmp_path_factory.mktemp("kubectl")
        return Borrowed(tool("kubernetes") / "kubectl", Path(LENT).absolute(), folder, importer=importer)
    own: Cluster = request.getfixturevalue("own_cluster")
    return own


@pytest.fixture(scope="session")
def control_plane(own_cluster: Cluster) -> ControlPlane:
    """The control plane, for tests without pods."""
    return own_cluster.control_plane


@pytest.fixture(scope="session")
def brought(cluster: Client) -> Iterator[dict[str, str]]:
    """The images of the platform and its simulations, imported on every node, by name."""
    with tempfile.TemporaryDirectory(prefix="images-", dir=ROOT / "var") as folder:
        yield bring_images(cluster, Path(folder))


@pytest.fixture(scope="session")
def platform(cluster: Client, brought: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The chart, installed as a trial, with everything a simulation needs."""
    for namespace in (NAMESPACE, PROJECT) if LENT else ():
        assert cluster.get(f"/api/v1/namespaces/{namespace}") is None, (
            f"{LENT}: that cluster has a namespace {namespace} already, which these tests would take away"
        )
    cluster.jobset()
    with installed(cluster, tmp_path_factory.mktemp("platform"), brought) as found:
        yield found


@pytest.fixture
def namespace(cluster: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for this test alone, where pods can start at once; its deletion is not awaited."""
    words = request.node.name.removeprefix("test_").replace("_", "-").lower()
    name = "".join(c for c in words if c.isalnum() or c == "-")[:50].strip("-") + f"-{os.urandom(3).hex()}"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    cluster.until(lambda: cluster.get(account) is not None, f"{name} has an account")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@dataclass(frozen=True)
class Account:
    """A service account."""

    control_plane: ControlPlane
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Path of its namespace in the API."""
        return f"/api/v1/namespaces/{self.namespace}"

    def token(self, *audiences: str, pod: Any = None) -> str:
        """Request a token, optionally bound to a pod."""
        asked: dict[str, Any] = {"audiences": list(audiences), "expirationSeconds": 3600}
        if pod is not None:
            of = pod["metadata"]
            asked["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": of["name"], "uid": of["uid"]}
        document = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": asked}
        answer = self.control_plane.request("POST", f"{self.path}/serviceaccounts/{self.name}/token", document)
        token: str = answer["status"]["token"]
        return token

    def pod(self, name: str) -> Any:
        """Create a pod of this account; it never runs."""
        container = {"name": "main", "image": "none"}
        spec = {"serviceAccountName": self.name, "containers": [container], "automountServiceAccountToken": False}
        return self.control_plane.make(f"{self.path}/pods", "Pod", name, spec=spec)

    def bind(self, role: str) -> None:
        """Bind it to a ClusterRole."""
        self.control_plane.make(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "ClusterRoleBinding",
            f"{self.namespace}-{self.name}-{role.replace(':', '-')}",
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            subjects=[{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}],
        )


@pytest.fixture(scope="session")
def account(control_plane: ControlPlane) -> Any:
    """Create a service account, and its namespace if that is missing."""
    known: set[str] = set()

    def make(namespace: str, name: str) -> Account:
        if namespace not in known:
            known.add(namespace)
            control_plane.make("/api/v1/namespaces", "Namespace", namespace)
        control_plane.make(f"/api/v1/namespaces/{namespace}/serviceaccounts", "ServiceAccount", name)
        return Account(control_plane, namespace, name)

    return make


@pytest.fixture(scope="session")
def server_token(account: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File with the cache service's own token, which may create TokenReviews."""
    scs = account("scs", "scs")
    scs.bind("system:auth-delegator")
    path = tmp_path_factory.mktemp("scs") / "token"
    path.write_text(scs.token() + "\n")
    return path
