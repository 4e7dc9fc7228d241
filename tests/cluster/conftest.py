"""Fixtures of tests on a real Kubernetes. `make cluster` builds it first; otherwise the first test does.

With KUBECONFIG in the environment tests run on the cluster of that file, except tests that request `own_cluster` or
`control_plane`: these tests stop parts of the cluster, hold its keys, or let pods call processes of this machine.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.client import Client, UserCluster
from tests.cluster.cluster import Cluster
from tests.cluster.control_plane import ControlPlane
from tests.cluster.platform_release import (
    NAMESPACE,
    PROJECT,
    PlatformRelease,
    image_folder,
    import_images,
    installed_platform,
)
from tests.cluster.tools import tool

AUDIENCE = "scs"
#: Time limit of a test in seconds, without its fixtures.
TIMEOUT = 900
USER_KUBECONFIG = os.environ.get("KUBECONFIG", "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that cannot run on a user's cluster, and give each test time for a lost node on a slow machine.

    Tests of Kueue come last: once it is installed, Jobs and JobSets depend on its webhooks.
    """
    items.sort(key=lambda item: "queues" in getattr(item, "fixturenames", ()))
    if USER_KUBECONFIG:
        deselected = [item for item in items if "own_cluster" in getattr(item, "fixturenames", ())]
        items[:] = [item for item in items if item not in deselected]
        config.hook.pytest_deselected(items=deselected)
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT))


@pytest.fixture(scope="session")
def own_cluster() -> Iterator[Cluster]:
    """A cluster of this session, at first with one node; operators are installed when a test requests them."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Client:
    """The cluster of this session, or the user's."""
    if USER_KUBECONFIG:
        importer = os.environ.get("CLUSTER_IMPORT", "")
        folder = tmp_path_factory.mktemp("kubectl")
        return UserCluster(tool("kubernetes") / "kubectl", Path(USER_KUBECONFIG).absolute(), folder, importer=importer)
    own: Cluster = request.getfixturevalue("own_cluster")
    return own


@pytest.fixture(scope="session")
def control_plane(own_cluster: Cluster) -> ControlPlane:
    """The control plane, for tests without pods."""
    return own_cluster.control_plane


@pytest.fixture(scope="session")
def platform_images(cluster: Client) -> Iterator[dict[str, str]]:
    """The images of the platform and its simulations, imported on every node, by name."""
    with image_folder() as folder:
        yield import_images(cluster, folder)


@pytest.fixture(scope="session")
def platform(
    cluster: Client, platform_images: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PlatformRelease]:
    """The chart, installed as a trial, with all that a simulation needs."""
    for namespace in (NAMESPACE, PROJECT) if USER_KUBECONFIG else ():
        assert cluster.get(f"/api/v1/namespaces/{namespace}") is None, (
            f"{USER_KUBECONFIG}: the cluster already has a namespace {namespace}, which these tests would delete"
        )
    cluster.jobset()
    with installed_platform(cluster, tmp_path_factory.mktemp("platform"), platform_images) as release:
        yield release


@pytest.fixture
def namespace(cluster: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test, where pods can start at once; its deletion is not awaited."""
    title = request.node.name.removeprefix("test_").replace("_", "-").lower()
    name = "".join(c for c in title if c.isalnum() or c == "-")[:50].strip("-") + f"-{os.urandom(3).hex()}"
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    cluster.until(lambda: cluster.get(account) is not None, f"namespace {name} has a default service account")
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
        """Path of the account's namespace in the API."""
        return f"/api/v1/namespaces/{self.namespace}"

    def token(self, *audiences: str, pod: Any = None) -> str:
        """Request a token of the account, optionally bound to a pod."""
        spec: dict[str, Any] = {"audiences": list(audiences), "expirationSeconds": 3600}
        if pod is not None:
            metadata = pod["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "uid": metadata["uid"],
            }
        document = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = self.control_plane.request("POST", f"{self.path}/serviceaccounts/{self.name}/token", document)
        token: str = answer["status"]["token"]
        return token

    def pod(self, name: str) -> Any:
        """Create a pod of this account; the pod never runs."""
        container = {"name": "main", "image": "none"}
        spec = {"serviceAccountName": self.name, "containers": [container], "automountServiceAccountToken": False}
        return self.control_plane.create(f"{self.path}/pods", "Pod", name, spec=spec)

    def bind(self, role: str) -> None:
        """Bind the account to a ClusterRole."""
        self.control_plane.create(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "ClusterRoleBinding",
            f"{self.namespace}-{self.name}-{role.replace(':', '-')}",
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            subjects=[{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}],
        )


@pytest.fixture(scope="session")
def account(control_plane: ControlPlane) -> Any:
    """Create a service account, and its namespace if that is missing."""
    namespaces: set[str] = set()

    def create(namespace: str, name: str) -> Account:
        if namespace not in namespaces:
            namespaces.add(namespace)
            control_plane.create("/api/v1/namespaces", "Namespace", namespace)
        control_plane.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", "ServiceAccount", name)
        return Account(control_plane, namespace, name)

    return create


@pytest.fixture(scope="session")
def server_token(account: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File with the cache service's own token, which may create TokenReviews."""
    scs = account("scs", "scs")
    scs.bind("system:auth-delegator")
    path = tmp_path_factory.mktemp("scs") / "token"
    path.write_text(scs.token() + "\n")
    return path
