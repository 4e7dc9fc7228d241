"""RBAC of the chart: the rights of dispatch are exactly the rights that the executor lists."""

from collections.abc import Iterable

import pytest

from tests.chart.rendering import CASES, Object, named, of_kind, render, rendered
from workers.executors.kubernetes.rbac import NAMESPACES, RIGHTS

Rights = set[tuple[str, str, str]]
ACCOUNT = {"kind": "ServiceAccount", "name": "windtunnel-dispatch", "namespace": "sim"}
NAMESPACE_RIGHTS: Rights = {
    (right.group, right.resource, verb) for right in RIGHTS if not right.everywhere for verb in right.verbs
}
CLUSTER_RIGHTS: Rights = {
    (right.group, right.resource, verb) for right in RIGHTS if right.everywhere for verb in right.verbs
}
READ_VERBS = {"list", "watch"}


def granted(objects: Iterable[Object], kind: str, namespace: str = "") -> Rights:
    """Return the rights that bindings of a kind (in a namespace) grant to dispatch."""
    objects = list(objects)
    bound = [
        binding["roleRef"]["name"]
        for binding in of_kind(objects, kind)
        if binding["subjects"] == [ACCOUNT] and binding["metadata"].get("namespace", "") == namespace
    ]
    rules = [rule for name in bound for rule in named(objects, "ClusterRole", name)["rules"]]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("namespace", ["windtunnel-red", "windtunnel-blue"])
def test_in_a_projects_namespace_dispatch_has_exactly_the_executors_rights(namespace: str) -> None:
    assert granted(rendered("production"), "RoleBinding", namespace) == NAMESPACE_RIGHTS


def test_in_the_whole_cluster_dispatch_may_only_list_and_watch() -> None:
    """One request lists the objects of all projects; Kubernetes allows a list in all namespaces or in one namespace."""
    reading = {right for right in NAMESPACE_RIGHTS if right[2] in READ_VERBS}
    assert granted(rendered("production"), "ClusterRoleBinding") == CLUSTER_RIGHTS | reading
    assert granted(rendered("production"), "RoleBinding", "sim") == set()


def test_with_one_namespace_for_all_projects_dispatch_may_read_no_other_namespace() -> None:
    objects = render({"trial": True, "projects": {"namespace": "launches"}})
    assert granted(objects, "ClusterRoleBinding") == CLUSTER_RIGHTS
    assert granted(objects, "RoleBinding", "launches") == NAMESPACE_RIGHTS


def test_dispatch_that_creates_namespaces_has_its_rights_in_all_namespaces() -> None:
    creating = {(NAMESPACES.group, NAMESPACES.resource, verb) for verb in NAMESPACES.verbs}
    assert (
        granted(rendered("dispatch creates namespaces"), "ClusterRoleBinding")
        == CLUSTER_RIGHTS | NAMESPACE_RIGHTS | creating
    )


def test_dispatch_without_launches_in_its_cluster_has_no_rights() -> None:
    objects = rendered("launches elsewhere")
    assert granted(objects, "ClusterRoleBinding") == granted(objects, "RoleBinding", "windtunnel-default") == set()


@pytest.mark.parametrize("case", CASES)
def test_cache_and_api_may_create_token_reviews_jobs_may_list_cache_nodes_and_no_other_account_has_rights(
    case: str,
) -> None:
    reviews = ("authentication.k8s.io", "tokenreviews", "create")
    expected = {"windtunnel-scs": reviews, "windtunnel-api": reviews}
    expected |= {"windtunnel-jobs": ("discovery.k8s.io", "endpointslices", "list")}
    for binding in of_kind(rendered(case), "RoleBinding", "ClusterRoleBinding"):
        [subject] = binding["subjects"]
        if subject == ACCOUNT:
            continue
        assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", "sim")
        group, resource, verb = expected[subject["name"]]
        rules = named(rendered(case), binding["roleRef"]["kind"], binding["roleRef"]["name"])["rules"]
        assert rules == [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]
    for binding in of_kind(rendered(case), "ClusterRole", "Role"):
        assert "*" not in str(binding["rules"])
