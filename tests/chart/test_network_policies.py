"""Who reaches whom, by the chart's NetworkPolicies: every pair that must not, on every port anything listens on."""

import json
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from core.domain.launches import Gang, Launch
from tests.chart.reach import End, World
from tests.chart.rendering import SAID, Object, named, of_kind, render, rendered, templates
from workers.executors.kubernetes.manifests.pod_spec import PodSpecBuilder
from workers.executors.kubernetes.manifests.policy import policies
from workers.executors.kubernetes.options import parse

SAYINGS = pytest.mark.parametrize("said", SAID)
PORTS = (22, 53, 80, 443, 2379, 5000, 5001, 5080, 5081, 5432, 6379, 6443, 9000, 9901, 9902, 10250, 26000)
#: What is no pod: the cloud's metadata, the API server by its service and by its own address, a node, the internet.
ELSEWHERE = {
    "metadata": End(address="169.254.169.254"),
    "metadata by IPv6": End(address="fd00:ec2::254"),
    "API server's service": End(address="10.96.0.1"),
    "API server": End(address="192.0.2.10"),
    "kubelet": End(address="192.0.2.20"),
    "internet": End(address="203.0.113.7"),
}
NAMES = End(address="10.0.9.1", namespace="kube-system", labels={"k8s-app": "kube-dns"})
STORES = ("postgresql", "valkey", "minio")
TENANTS = {
    "ours": End(address="10.0.1.1", namespace="windtunnel-default", labels={"windtunnel/launch": "a"}),
    "a neighbour": End(address="10.0.1.2", namespace="windtunnel-default", labels={"windtunnel/launch": "b"}),
    "another project": End(address="10.0.2.1", namespace="windtunnel-other", labels={"windtunnel/launch": "c"}),
    "another installation": End(address="10.0.3.1", namespace="elsewhere-default", labels={"windtunnel/launch": "d"}),
}
STRANGER = End(address="10.0.4.1", namespace="shop", labels={"app": "shop"})


@cache
def two_projects(said: str) -> tuple[Object, ...]:
    """Return what comes of it with two projects; not to be changed."""
    return tuple(render({**SAID[said], "projects": {"list": [{"name": "default"}, {"name": "other"}]}}))


def world(said: str, brought: Iterable[Object] = ()) -> World:
    """Return a cluster with this release, two projects of it, one of another installation, and a stranger."""
    objects = two_projects(said)
    namespaces = {one["metadata"]["name"]: one["metadata"]["labels"] for one in of_kind(objects, "Namespace")}
    assert set(namespaces) == {"windtunnel-default", "windtunnel-other"}
    namespaces |= {"sim": {}, "kube-system": {}, "shop": {}}
    namespaces["elsewhere-default"] = {"windtunnel/installation": "elsewhere-windtunnel"}
    return World(namespaces, [*of_kind(objects, "NetworkPolicy"), *brought])


def components(said: str) -> dict[str, End]:
    """Return our own pods by their component."""
    found = {}
    for number, template in enumerate(templates(rendered(said)).values()):
        labels = template["metadata"]["labels"]
        found[labels["app.kubernetes.io/component"]] = End(
            address=f"10.0.0.{number + 1}", namespace="sim", labels=labels
        )
    return found


@SAYINGS
def test_a_tenant_reaches_the_runners_surface_the_cache_and_names_and_nothing_else(said: str) -> None:
    lets, ours = world(said).lets, components(said)
    allowed = {("runner-api", 5001)}
    if "envoy" in ours:
        allowed.add(("envoy", 5081))
    elif "scs" in ours:
        allowed.add(("scs", 5080))
    everything = {**ours, **{f"tenant: {name}": one for name, one in TENANTS.items() if name != "ours"}, **ELSEWHERE}
    everything |= {"stranger": STRANGER}
    reached = {(name, port) for name, one in everything.items() for port in PORTS if lets(TENANTS["ours"], one, port)}
    assert reached == allowed
    assert lets(TENANTS["ours"], NAMES, 53, "UDP") and lets(TENANTS["ours"], NAMES, 53)
    assert not any(lets(TENANTS["ours"], NAMES, port) for port in PORTS if port != 53)


@SAYINGS
def test_nobody_reaches_a_tenant(said: str) -> None:
    lets = world(said).lets
    sources = [*components(said).values(), STRANGER, *ELSEWHERE.values()]
    sources += [one for name, one in TENANTS.items() if name != "ours"]
    assert not [(one, port) for one in sources for port in PORTS if lets(one, TENANTS["ours"], port)]


@SAYINGS
def test_tenants_of_another_installation_reach_nothing_of_ours(said: str) -> None:
    lets = world(said).lets
    for name, one in components(said).items():
        assert not [port for port in PORTS if lets(TENANTS["another installation"], one, port)], name


@SAYINGS
def test_strangers_reach_the_api_and_nothing_else(said: str) -> None:
    lets = world(said).lets
    reached = {(name, port) for name, one in components(said).items() for port in PORTS if lets(STRANGER, one, port)}
    assert reached == {("api", 5000)}


@SAYINGS
def test_none_of_ours_reaches_the_cloud_s_metadata(said: str) -> None:
    lets = world(said).lets
    for name, one in components(said).items():
        for place in ("metadata", "metadata by IPv6"):
            assert not [port for port in PORTS if lets(one, ELSEWHERE[place], port)], name


def needed(ours: dict[str, End]) -> Iterator[tuple[str, End, End, int]]:
    """Yield what has to be possible."""
    for role in {"api", "runner-api", "dispatch", "jobs"}:
        for part, port in zip(STORES, (5432, 6379, 9000), strict=True):
            yield f"{role} to {part}", ours[role], ours.get(part, ELSEWHERE["internet"]), port
    yield "dispatch to the API server", ours["dispatch"], ELSEWHERE["API server"], 6443
    if "scs" in ours:
        yield "the cache to the API server", ours["scs"], ELSEWHERE["API server's service"], 443
    if "envoy" in ours:
        yield "envoy to the cache", ours["envoy"], ours["scs"], 5080
        yield "jobs to envoy", ours["jobs"], ours["envoy"], 5081
    elif "scs" in ours:
        yield "jobs to the cache", ours["jobs"], ours["scs"], 5080


@SAYINGS
def test_what_has_to_be_possible_is(said: str) -> None:
    lets, ours = world(said).lets, components(said)
    assert [words for words, source, target, port in needed(ours) if not lets(source, target, port)] == []
    assert all(lets(one, NAMES, 53, "UDP") for one in ours.values())


@pytest.mark.parametrize("part", STORES)
def test_only_roles_reach_a_trial_s_stores_and_those_reach_nothing_themselves(part: str) -> None:
    lets, ours = world("trial").lets, components("trial")
    reaching = {name for name, one in ours.items() if any(lets(one, ours[part], port) for port in PORTS)}
    assert reaching == {"api", "runner-api", "dispatch", "jobs"}
    others: list[End] = [*ours.values(), *ELSEWHERE.values(), STRANGER]
    assert not [(one, port) for one in others for port in PORTS if lets(ours[part], one, port)]


def test_runners_of_other_clusters_are_let_in_where_an_operator_says_so() -> None:
    far = {"ipBlock": {"cidr": "203.0.113.0/24"}}
    objects: list[Object] = render({**SAID["trial"], "network": {"runners": [far]}})
    told = World(
        {"sim": {}}, of_kind([one for one in objects if one["metadata"].get("namespace") == "sim"], "NetworkPolicy")
    )
    runner_api = components("trial")["runner-api"]
    assert told.lets(ELSEWHERE["internet"], runner_api, 5001) and not told.lets(ELSEWHERE["internet"], runner_api, 5000)


# -- together with the policies that launches bring


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


def with_launches(said: str, *launches: Launch) -> World:
    """Return that cluster with launches in the project's namespace, and their policies as the executor makes them."""
    [context] = json.loads(named(rendered(said), "ConfigMap", "windtunnel-executors")["data"]["executors.json"])[
        "executors"
    ]
    options = parse(context["options"])
    brought = [policy for one in launches for policy in policies(PodSpecBuilder(one, options))]
    for policy in brought:
        policy["metadata"]["namespace"] = "windtunnel-default"
    return world(said, brought)


def pod_of(launch: Launch, number: int) -> End:
    return End(address=f"10.0.5.{number}", namespace="windtunnel-default", labels={"windtunnel/launch": launch.id})


@pytest.mark.parametrize("said", ["trial", "clients hash by themselves", "no cache"])
def test_what_launches_bring_opens_nothing_but_a_gang_to_itself(said: str) -> None:
    seat, gang = launch("seat1"), launch("gang1", Gang(size=2, communication="mpi"))
    lets, ours = with_launches(said, seat, gang).lets, components(said)
    front = {"trial": {("envoy", 5081)}, "clients hash by themselves": {("scs", 5080)}}.get(said, set())
    everything = {**ours, **TENANTS, **ELSEWHERE, "stranger": STRANGER}
    for one in (seat, gang):
        own = pod_of(one, 1)
        reached = {(name, port) for name, target in everything.items() for port in PORTS if lets(own, target, port)}
        assert reached == {("runner-api", 5001)} | front, one.id
    ranks = pod_of(gang, 2), pod_of(gang, 3)
    assert lets(*ranks, 26000) and lets(*reversed(ranks), 26000)
    for a, b in [(pod_of(seat, 1), ranks[0]), (ranks[0], pod_of(seat, 1)), (pod_of(seat, 1), pod_of(seat, 4))]:
        assert not any(lets(a, b, port) for port in PORTS)
