"""Options of a Kubernetes executor, errors for refusals of the API server, and the requested permissions."""

from typing import Any

import pytest

from common.errors import ClusterFull, LaunchRefused, NotGranted, PlatformError
from kube.messages import ApiRefused, path_of
from workers.executors.kubernetes.api_errors import error_of
from workers.executors.kubernetes.options import Share, parse
from workers.executors.kubernetes.rbac import NAMESPACES, RIGHTS, rules


def test_options_have_defaults_and_nested_options_are_parsed() -> None:
    options = parse({"images": {"tag": "abc"}, "model_server": {"cpu": "2", "memory": "4Gi"}, "pull_secrets": ["a"]})
    assert (options.images.tag, options.images.prefix) == ("abc", "windtunnel-")
    assert options.model_server == Share(cpu="2", memory="4Gi")
    assert options.namespace == "windtunnel-{project}" and not options.shared_namespace
    assert parse({"namespace": "sims"}).shared_namespace


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kubeconfg": "x"}, "have no 'kubeconfg'; they have kubeconfig"),
        ({"images": {"curier": "x"}}, "have no images: 'curier'"),
        ({"runner": {"cpu": "1"}}, "memory"),
        ({"workers_per_pod": "many"}, "workers_per_pod"),
        ({"workers_per_pod": 0}, "workers_per_pod is at least 1"),
        ({"pull_policy": "Sometimes"}, "one of Always, IfNotPresent, Never"),
        ({"namespace": "Bad Name"}, "namespace"),
        ({"namespace": "a-{user}"}, "namespace"),
        ({"installation": "x/y"}, "installation"),
        ({"dns": []}, "dns and dns_ports name a peer"),
        ({"dns_ports": []}, "dns and dns_ports name a peer"),
    ],
)
def test_invalid_options_are_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("{", r"\{")):
        parse(options)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"seats": 4}, "workers_per_pod"),
        ({"courier": {"cpu": "1", "memory": "1Gi"}}, "runner"),
        ({"player": {"cpu": "1", "memory": "1Gi"}}, "evaluator"),
        ({"host": {"cpu": "1", "memory": "1Gi"}}, "model_server"),
        ({"drivers_url": "http://x"}, "runner_api_url"),
        ({"images": {"courier": "x"}}, "runner"),
    ],
)
def test_options_of_earlier_releases_are_refused_with_their_new_names(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"is called {name} now"):
        parse(options)


@pytest.mark.parametrize(
    ("status", "message", "kind", "remedy"),
    [
        (403, 'secrets "x" is forbidden: exceeded quota: q, requested: count/secrets=1', ClusterFull, "quota of ns"),
        (403, 'jobsets "x" is forbidden: status unknown for quota: q', ClusterFull, "quota of ns"),
        (
            403,
            'jobs "x" is forbidden: unable to create new content in namespace ns because it is being terminated',
            ClusterFull,
            "taken again once it is back",
        ),
        (
            403,
            'jobsets.jobset.x-k8s.io is forbidden: User "u" cannot create resource "jobsets" in API group '
            '"jobset.x-k8s.io" in the namespace "ns"',
            NotGranted,
            "may not create jobsets.jobset.x-k8s.io in ns",
        ),
        (404, 'namespaces "ns" not found', NotGranted, "kubectl create namespace ns"),
        (422, 'JobSet "x" is invalid: spec: no', LaunchRefused, "JobSet"),
        (400, 'admission webhook "a" denied the request: no sims on Sunday', LaunchRefused, "no sims on Sunday"),
    ],
)
def test_a_refusal_names_the_remedy(status: int, message: str, kind: type[PlatformError], remedy: str) -> None:
    error = error_of(ApiRefused(status, "", message), "ns")
    assert type(error) is kind and remedy in str(error)


def test_paths_follow_the_kubernetes_api() -> None:
    assert path_of("v1", "pods", "ns", "p") == "/api/v1/namespaces/ns/pods/p"
    assert path_of("batch/v1", "jobs") == "/apis/batch/v1/jobs"
    assert path_of("v1", "pods", "a/../b") == "/api/v1/namespaces/a%2F..%2Fb/pods"


def test_no_rbac_rule_reads_a_secret_or_is_a_wildcard() -> None:
    for right in (*RIGHTS, NAMESPACES):
        assert "*" not in (right.group, right.resource, *right.verbs)
        assert right.why
        if right.resource == "secrets":
            assert right.verbs == ("create", "delete")
        if right.resource in ("pods", "events"):
            assert right.verbs == ("list",)
    assert rules()[0]["apiGroups"] == ["jobset.x-k8s.io"]
