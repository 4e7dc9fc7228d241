"""What the chart lets dispatch do in a cluster: what its executor says it needs, and nothing else."""

from collections.abc import Iterable

import pytest

from tests.chart.rendering import SAID, Object, named, of_kind, render, rendered
from workers.executors.kubernetes.rbac import NAMESPACES, RIGHTS

Rights = set[tuple[str, str, str]]
ACCOUNT = {"kind": "ServiceAccount", "name": "windtunnel-dispatch", "namespace": "sim"}
NEEDED: Rights = {(one.group, one.resource, verb) for one in RIGHTS if not one.everywhere for verb in one.verbs}
EVERYWHERE: Rights = {(one.group, one.resource, verb) for one in RIGHTS if one.everywhere for verb in one.verbs}
SEEING = {"list", "watch"}


def granted(objects: Iterable[Object], kind: str, namespace: str = "") -> Rights:
    """Return what bindings of a kind (in a namespace) give to dispatch."""
    objects = list(objects)
    bound = [
        one["roleRef"]["name"]
        for one in of_kind(objects, kind)
        if one["subjects"] == [ACCOUNT] and one["metadata"].get("namespace", "") == namespace
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
def test_in_a_project_s_namespace_dispatch_may_do_what_its_executor_needs_and_no_more(namespace: str) -> None:
    assert granted(rendered("production"), "RoleBinding", namespace) == NEEDED


def test_in_the_whole_cluster_it_may_only_look() -> None:
    """All projects are looked after by one call, which Kubernetes allows in all namespaces or in one."""
    looking = {right for right in NEEDED if right[2] in SEEING}
    assert granted(rendered("production"), "ClusterRoleBinding") == EVERYWHERE | looking
    assert granted(rendered("production"), "RoleBinding", "sim") == set()


def test_where_all_projects_share_a_namespace_it_sees_no_other() -> None:
    objects = render({"trial": True, "projects": {"namespace": "launches"}})
    assert granted(objects, "ClusterRoleBinding") == EVERYWHERE
    assert granted(objects, "RoleBinding", "launches") == NEEDED


def test_only_where_it_makes_namespaces_it_has_its_rights_in_all_of_them() -> None:
    making = {(NAMESPACES.group, NAMESPACES.resource, verb) for verb in NAMESPACES.verbs}
    assert granted(rendered("dispatch makes namespaces"), "ClusterRoleBinding") == EVERYWHERE | NEEDED | making


def test_where_launches_run_elsewhere_it_may_do_nothing_here() -> None:
    objects = rendered("launches elsewhere")
    assert granted(objects, "ClusterRoleBinding") == granted(objects, "RoleBinding", "windtunnel-default") == set()


@pytest.mark.parametrize("said", SAID)
def test_the_cache_may_have_tokens_reviewed_jobs_may_look_up_its_nodes_and_nobody_else_is_given_anything(
    said: str,
) -> None:
    others = {"windtunnel-scs": ("authentication.k8s.io", "tokenreviews", "create")}
    others |= {"windtunnel-jobs": ("discovery.k8s.io", "endpointslices", "list")}
    for one in of_kind(rendered(said), "RoleBinding", "ClusterRoleBinding"):
        [subject] = one["subjects"]
        if subject == ACCOUNT:
            continue
        assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", "sim")
        group, resource, verb = others[subject["name"]]
        rules = named(rendered(said), one["roleRef"]["kind"], one["roleRef"]["name"])["rules"]
        assert rules == [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]
    for one in of_kind(rendered(said), "ClusterRole", "Role"):
        assert "*" not in str(one["rules"])
