"""The chart on a real API server: installation, upgrade from the earlier version, and complete removal."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cached import tool
from tests.chart.rendering import CHART, PREVIOUS
from tests.cluster.client import Client
from tests.cluster.machines import ENVIRON
from workers.executors.kubernetes.rbac import RIGHTS

RELEASE = "windtunnel"


class Release:
    """A release of the chart in a namespace with enforced restricted pod security. Its images do not exist."""

    def __init__(self, cluster: Client, namespace: str) -> None:
        self.cluster, self.namespace, self.project = cluster, namespace, f"{namespace}-default"
        self.values = {
            "trial": True,
            "image": {"repository": "none.invalid/windtunnel-server", "pullPolicy": "Never"},
            "projects": {"namespace": f"{namespace}-{{project}}", "list": [{"name": "default", "quota": {"pods": 9}}]},
        }

    def helm(self, *arguments: str) -> str:
        """Run helm in this namespace."""
        command = [tool("helm"), f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={self.namespace}", *arguments]
        completed = subprocess.run(
            command,
            input=json.dumps(self.values),
            capture_output=True,
            text=True,
            timeout=180,
            env=ENVIRON | {"HOME": str(self.cluster.folder)},
        )
        assert completed.returncode == 0, completed.stderr
        assert "would violate PodSecurity" not in completed.stderr and "unknown field" not in completed.stderr, (
            completed.stderr
        )
        return completed.stdout

    def install_or_upgrade(self, chart: Path) -> None:
        """Install or upgrade the release."""
        self.helm("upgrade", "--install", RELEASE, str(chart), "--values", "-")

    def get(self, plural: str, namespace: str = "") -> list[Any]:
        """Return objects of a kind."""
        items: list[Any] = json.loads(
            self.cluster.kubectl("get", plural, "-n", namespace or self.namespace, "-o", "json")
        )["items"]
        return items

    def secrets(self) -> dict[str, Any]:
        """Return the data of the release's Secrets."""
        secrets = [secret for secret in self.get("secrets") if secret["type"] == "Opaque"]
        return {secret["metadata"]["name"]: secret["data"] for secret in secrets}

    def is_allowed(self, group: str, resource: str, verb: str, namespace: str) -> bool:
        """Return whether the API server grants dispatch a right."""
        name, _, subresource = resource.partition("/")
        attributes = {
            "group": group,
            "resource": name,
            "subresource": subresource,
            "verb": verb,
            "namespace": namespace,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{self.namespace}:{RELEASE}-dispatch",
                "resourceAttributes": attributes,
            },
        }
        answer = self.cluster.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review))
        return bool(json.loads(answer)["status"]["allowed"])


@pytest.fixture
def release(cluster: Client, namespace: str) -> Iterator[Release]:
    """A release that is not installed yet; uninstalled afterwards."""
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    installation = Release(cluster, namespace)
    yield installation
    if RELEASE in installation.helm("list", "--short"):
        installation.helm("uninstall", RELEASE)


def test_the_chart_is_installed_upgraded_and_uninstalled(release: Release) -> None:
    cluster = release.cluster
    release.install_or_upgrade(PREVIOUS[0])
    before = release.secrets()
    assert set(before) == {"windtunnel-bundled", "windtunnel-settings"}
    release.install_or_upgrade(CHART)
    assert release.secrets() == before, "generated values are kept"

    expected = {
        "api": 2,
        "runner-api": 2,
        "dispatch": 2,
        "jobs": 1,
        "envoy": 2,
        "postgresql": 1,
        "valkey": 1,
        "minio": 1,
    }

    def all_pods_admitted() -> bool:
        """Return whether every pod was admitted: pod security refuses pods, not their workloads."""
        counts: dict[str, int] = {}
        for pod in release.get("pods"):
            component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
            counts[component] = counts.get(component, 0) + 1
        return counts.get("scs", 0) >= 1 and all(counts.get(name, 0) >= count for name, count in expected.items())

    cluster.until(all_pods_admitted, "all pods of the release exist")

    for right in RIGHTS:
        for verb in right.verbs:
            namespace = "" if right.everywhere else release.project
            assert release.is_allowed(right.group, right.resource, verb, namespace), (right, verb)
    for group, resource, verb, namespace in [
        ("", "secrets", "list", release.project),
        ("", "secrets", "create", release.namespace),
        ("", "pods", "create", release.project),
        ("", "pods/exec", "create", release.project),
        ("", "namespaces", "create", ""),
        ("batch", "jobs", "create", "kube-system"),
        ("rbac.authorization.k8s.io", "rolebindings", "create", release.project),
    ]:
        assert not release.is_allowed(group, resource, verb, namespace), (resource, verb)

    [quota] = release.get("resourcequotas", release.project)
    assert quota["spec"]["hard"] == {"pods": "9"}
    release.helm("uninstall", RELEASE)
    for plural in ("deployments", "daemonsets", "statefulsets", "services", "networkpolicies", "serviceaccounts"):
        assert {item["metadata"]["name"] for item in release.get(plural)} <= {"default"}, plural
    assert release.secrets() == {}
    roles = json.loads(cluster.kubectl("get", "clusterroles,clusterrolebindings", "-o", "json"))["items"]
    assert [role["metadata"]["name"] for role in roles if release.namespace in role["metadata"]["name"]] == []


def test_the_previous_chart_has_a_lower_version() -> None:
    current = next(line for line in (CHART / "Chart.yaml").read_text().splitlines() if line.startswith("version: "))
    assert PREVIOUS and all(path.stem != f"windtunnel-{current.removeprefix('version: ')}" for path in PREVIOUS)
