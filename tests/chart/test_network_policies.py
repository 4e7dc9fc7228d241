"""Connections that the chart's NetworkPolicies allow and deny: every pair of pods, on every port that is used."""

import json
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from core.domain.scheduling.launches import Gang, Launch
from tests.chart.policy_evaluator import End, PolicyEvaluator
from tests.chart.rendering import CASES, Object, named, of_kind, render, rendered, templates
from workers.executors.kubernetes.manifests.network_policy import policies
from workers.executors.kubernetes.manifests.pod_spec import PodSpecBuilder
from workers.executors.kubernetes.options import parse

ALL_CASES = pytest.mark.parametrize("case", CASES)
PORTS = (22, 53, 80, 443, 2379, 5000, 5001, 5080, 5081, 5432, 6379, 6443, 9000, 9901, 9902, 10250, 26000)
#: Addresses outside of pods: the cloud's metadata, the API server's service and own address, a node, the internet.
ADDRESSES = {
    "metadata": End(address="169.254.169.254"),
    "metadata by IPv6": End(address="fd00:ec2::254"),
    "API server's service": End(address="10.96.0.1"),
    "API server": End(address="192.0.2.10"),
    "kubelet": End(address="192.0.2.20"),
    "internet": End(address="203.0.113.7"),
}
DNS_SERVER = End(address="10.0.9.1", namespace="kube-system", labels={"k8s-app": "kube-dns"})
STORES = ("postgresql", "valkey", "minio")
TENANTS = {
    "tenant": End(address="10.0.1.1", namespace="windtunnel-default", labels={"windtunnel/launch": "a"}),
    "another launch of the project": End(
        address="10.0.1.2", namespace="windtunnel-default", labels={"windtunnel/launch": "b"}
    ),
    "another project": End(address="10.0.2.1", namespace="windtunnel-other", labels={"windtunnel/launch": "c"}),
    "another installation": End(address="10.0.3.1", namespace="elsewhere-default", labels={"windtunnel/launch": "d"}),
}
OTHER_POD = End(address="10.0.4.1", namespace="shop", labels={"app": "shop"})


@cache
def two_projects(case: str) -> tuple[Object, ...]:
    """Return the objects of a case with two projects; they must not be changed."""
    return tuple(render({**CASES[case], "projects": {"list": [{"name": "default"}, {"name": "other"}]}}))


def evaluator(case: str, launch_policies: Iterable[Object] = ()) -> PolicyEvaluator:
    """Return an evaluator: this release with two projects, another installation, and an unrelated namespace."""
    objects = two_projects(case)
    namespaces = {item["metadata"]["name"]: item["metadata"]["labels"] for item in of_kind(objects, "Namespace")}
    assert set(namespaces) == {"windtunnel-default", "windtunnel-other"}
    namespaces |= {"sim": {}, "kube-system": {}, "shop": {}}
    namespaces["elsewhere-default"] = {"windtunnel/installation": "elsewhere-windtunnel"}
    return PolicyEvaluator(namespaces, [*of_kind(objects, "NetworkPolicy"), *launch_policies])


def components(case: str) -> dict[str, End]:
    """Return the platform's pods by component."""
    pods = {}
    for number, template in enumerate(templates(rendered(case)).values()):
        labels = template["metadata"]["labels"]
        pods[labels["app.kubernetes.io/component"]] = End(
            address=f"10.0.0.{number + 1}", namespace="sim", labels=labels
        )
    return pods


@ALL_CASES
def test_a_tenants_pod_reaches_only_the_runner_api_the_cache_and_dns(case: str) -> None:
    allows, platform = evaluator(case).allows, components(case)
    allowed = {("runner-api", 5001)}
    if "envoy" in platform:
        allowed.add(("envoy", 5081))
    elif "scs" in platform:
        allowed.add(("scs", 5080))
    targets = {**platform, **{f"tenant: {name}": pod for name, pod in TENANTS.items() if name != "tenant"}, **ADDRESSES}
    targets |= {"another application": OTHER_POD}
    reached = {(name, port) for name, pod in targets.items() for port in PORTS if allows(TENANTS["tenant"], pod, port)}
    assert reached == allowed
    assert allows(TENANTS["tenant"], DNS_SERVER, 53, "UDP") and allows(TENANTS["tenant"], DNS_SERVER, 53)
    assert not any(allows(TENANTS["tenant"], DNS_SERVER, port) for port in PORTS if port != 53)


@ALL_CASES
def test_no_pod_reaches_a_tenants_pod(case: str) -> None:
    allows = evaluator(case).allows
    sources = [*components(case).values(), OTHER_POD, *ADDRESSES.values()]
    sources += [pod for name, pod in TENANTS.items() if name != "tenant"]
    assert not [(pod, port) for pod in sources for port in PORTS if allows(pod, TENANTS["tenant"], port)]


@ALL_CASES
def test_tenants_of_another_installation_reach_no_pod_of_the_platform(case: str) -> None:
    allows = evaluator(case).allows
    for name, pod in components(case).items():
        assert not [port for port in PORTS if allows(TENANTS["another installation"], pod, port)], name


@ALL_CASES
def test_unrelated_pods_reach_only_the_api(case: str) -> None:
    allows = evaluator(case).allows
    reached = {(name, port) for name, pod in components(case).items() for port in PORTS if allows(OTHER_POD, pod, port)}
    assert reached == {("api", 5000)}


@ALL_CASES
def test_no_pod_of_the_platform_reaches_the_clouds_metadata_service(case: str) -> None:
    allows = evaluator(case).allows
    for name, pod in components(case).items():
        for address in ("metadata", "metadata by IPv6"):
            assert not [port for port in PORTS if allows(pod, ADDRESSES[address], port)], name


def required_connections(platform: dict[str, End]) -> Iterator[tuple[str, End, End, int]]:
    """Yield the required connections."""
    for role in {"api", "runner-api", "dispatch", "jobs"}:
        for store, port in zip(STORES, (5432, 6379, 9000), strict=True):
            yield f"{role} to {store}", platform[role], platform.get(store, ADDRESSES["internet"]), port
    yield "dispatch to the API server", platform["dispatch"], ADDRESSES["API server"], 6443
    if "scs" in platform:
        yield "the cache to the API server", platform["scs"], ADDRESSES["API server's service"], 443
    if "envoy" in platform:
        yield "envoy to the cache", platform["envoy"], platform["scs"], 5080
        yield "jobs to envoy", platform["jobs"], platform["envoy"], 5081
    elif "scs" in platform:
        yield "jobs to the cache", platform["jobs"], platform["scs"], 5080


@ALL_CASES
def test_required_connections_are_allowed(case: str) -> None:
    allows, platform = evaluator(case).allows, components(case)
    assert [
        name for name, source, target, port in required_connections(platform) if not allows(source, target, port)
    ] == []
    assert all(allows(pod, DNS_SERVER, 53, "UDP") for pod in platform.values())


@pytest.mark.parametrize("store", STORES)
def test_only_roles_reach_a_trials_stores_and_stores_reach_no_pod(store: str) -> None:
    allows, platform = evaluator("trial").allows, components("trial")
    sources = {name for name, pod in platform.items() if any(allows(pod, platform[store], port) for port in PORTS)}
    assert sources == {"api", "runner-api", "dispatch", "jobs"}
    targets: list[End] = [*platform.values(), *ADDRESSES.values(), OTHER_POD]
    assert not [(pod, port) for pod in targets for port in PORTS if allows(platform[store], pod, port)]


def test_runners_of_other_clusters_are_allowed_by_values() -> None:
    peer = {"ipBlock": {"cidr": "203.0.113.0/24"}}
    objects: list[Object] = render({**CASES["trial"], "network": {"runners": [peer]}})
    policy_evaluator = PolicyEvaluator(
        {"sim": {}}, of_kind([item for item in objects if item["metadata"].get("namespace") == "sim"], "NetworkPolicy")
    )
    runner_api = components("trial")["runner-api"]
    assert policy_evaluator.allows(ADDRESSES["internet"], runner_api, 5001) and not policy_evaluator.allows(
        ADDRESSES["internet"], runner_api, 5000
    )


# -- together with the policies of launches


def launch(id: str, gang: Gang | None = None) -> Launch:
    return Launch(
        id=id,
        simulation_id="s",
        attempt=1,
        url="",
        workers=2,
        runtime="python",
        format="python",
        dataset="noop",
        version="1",
        model_digest="",
        model_key="",
        token="",
        gang=gang,
    )


def with_launches(case: str, *launches: Launch) -> PolicyEvaluator:
    """Return an evaluator with launches in the project's namespace, and their policies from the executor."""
    [executor] = json.loads(named(rendered(case), "ConfigMap", "windtunnel-executors")["data"]["executors.json"])[
        "executors"
    ]
    options = parse(executor["options"])
    launch_policies = [policy for launch in launches for policy in policies(PodSpecBuilder(launch, options))]
    for policy in launch_policies:
        policy["metadata"]["namespace"] = "windtunnel-default"
    return evaluator(case, launch_policies)


def pod_of(launch: Launch, number: int) -> End:
    return End(address=f"10.0.5.{number}", namespace="windtunnel-default", labels={"windtunnel/launch": launch.id})


@pytest.mark.parametrize("case", ["trial", "clients hash keys themselves", "no cache"])
def test_policies_of_launches_allow_only_traffic_within_a_gang(case: str) -> None:
    single, gang = launch("single1"), launch("gang1", Gang(size=2, communication="mpi"))
    allows, platform = with_launches(case, single, gang).allows, components(case)
    cache = {"trial": {("envoy", 5081)}, "clients hash keys themselves": {("scs", 5080)}}.get(case, set())
    targets = {**platform, **TENANTS, **ADDRESSES, "another application": OTHER_POD}
    for item in (single, gang):
        pod = pod_of(item, 1)
        reached = {(name, port) for name, target in targets.items() for port in PORTS if allows(pod, target, port)}
        assert reached == {("runner-api", 5001)} | cache, item.id
    ranks = pod_of(gang, 2), pod_of(gang, 3)
    assert allows(*ranks, 26000) and allows(*reversed(ranks), 26000)
    for a, b in [
        (pod_of(single, 1), ranks[0]),
        (ranks[0], pod_of(single, 1)),
        (pod_of(single, 1), pod_of(single, 4)),
    ]:
        assert not any(allows(a, b, port) for port in PORTS)
