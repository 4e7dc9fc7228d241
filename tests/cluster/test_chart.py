"""The chart on a real API server: installation, upgrade from the earlier version, and removal without traces."""

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
        done = subprocess.run(
            command,
            input=json.dumps(self.values),
            capture_output=True,
            text=True,
            timeout=180,
            env=ENVIRON | {"HOME": str(self.cluster.folder)},
        )
        assert done.returncode == 0, done.stderr
        assert "would violate PodSecurity" not in done.stderr and "unknown field" not in done.stderr, done.stderr
        return done.stdout

    def bring(self, chart: Path) -> None:
        """Install or upgrade the release."""
        self.helm("upgrade", "--install", RELEASE, str(chart), "--values", "-")

    def get(self, plural: str, namespace: str = "") -> list[Any]:
        """Return objects of a kind."""
        found: list[Any] = json.loads(
            self.cluster.kubectl("get", plural, "-n", namespace or self.namespace, "-o", "json")
        )["items"]
        return found

    def secrets(self) -> dict[str, Any]:
        """Return the data of the release's Secrets."""
        ours = [one for one in self.get("secrets") if one["type"] == "Opaque"]
        return {one["metadata"]["name"]: one["data"] for one in ours}

    def may(self, group: str, resource: str, verb: str, namespace: str) -> bool:
        """Return whether the API server grants dispatch a right."""
        plain, _, part = resource.partition("/")
        asked = {"group": group, "resource": plain, "subresource": part, "verb": verb, "namespace": namespace}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{self.namespace}:{RELEASE}-dispatch",
                "resourceAttributes": asked,
            },
        }
        answer = self.cluster.kubectl("create", "-f", "-", "-o", "json", given=json.dumps(review))
        return bool(json.loads(answer)["status"]["allowed"])


@pytest.fixture
def release(cluster: Client, namespace: str) -> Iterator[Release]:
    """A release that is not installed yet; uninstalled afterwards."""
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    found = Release(cluster, namespace)
    yield found
    if RELEASE in found.helm("list", "--short"):
        found.helm("uninstall", RELEASE)


def test_the_chart_is_installed_upgraded_and_uninstalled(release: Release) -> None:
    cluster = release.cluster
    release.bring(PREVIOUS[0])
    before = release.secrets()
    assert set(before) == {"windtunnel-bundled", "windtunnel-settings"}
    release.bring(CHART)
    assert release.secrets() == before, "what was drawn is kept"

    wanted = {"api": 2, "runner-api": 2, "dispatch": 2, "jobs": 1, "envoy": 2, "postgresql": 1, "valkey": 1, "minio": 1}

    def made() -> bool:
        """Return whether every pod was admitted: pod security refuses pods, not their workloads."""
        counts: dict[str, int] = {}
        for pod in release.get("pods"):
            component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
            counts[component] = counts.get(component, 0) + 1
        return counts.get("scs", 0) >= 1 and all(counts.get(name, 0) >= count for name, count in wanted.items())

    cluster.until(made, "all pods of the release are there")

    for right in RIGHTS:
        for verb in right.verbs:
            where = "" if right.everywhere else release.project
            assert release.may(right.group, right.resource, verb, where), (right, verb)
    for group, resource, verb, where in [
        ("", "secrets", "list", release.project),
        ("", "secrets", "create", release.namespace),
        ("", "pods", "create", release.project),
        ("", "pods/exec", "create", release.project),
        ("", "namespaces", "create", ""),
        ("batch", "jobs", "create", "kube-system"),
        ("rbac.authorization.k8s.io", "rolebindings", "create", release.project),
    ]:
        assert not release.may(group, resource, verb, where), (resource, verb)

    [quota] = release.get("resourcequotas", release.project)
    assert quota["spec"]["hard"] == {"pods": "9"}
    release.helm("uninstall", RELEASE)
    for plural in ("deployments", "daemonsets", "statefulsets", "services", "networkpolicies", "serviceaccounts"):
        assert {one["metadata"]["name"] for one in release.get(plural)} <= {"default"}, plural
    assert release.secrets() == {}
    roles = json.loads(cluster.kubectl("get", "clusterroles,clusterrolebindings", "-o", "json"))["items"]
    assert [one["metadata"]["name"] for one in roles if release.namespace in one["metadata"]["name"]] == []


def test_the_previous_chart_has_a_lower_version() -> None:
    current = next(line for line in (CHART / "Chart.yaml").read_text().splitlines() if line.startswith("version: "))
    assert PREVIOUS and all(path.stem != f"windtunnel-{current.removeprefix('version: ')}" for path in PREVIOUS)
