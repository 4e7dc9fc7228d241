"""Reachability of pods by the NetworkPolicies of two concurrent launches, evaluated as the API specifies."""

import dataclasses
import ipaddress

import pytest

from tests.unit.launch_samples import ALL, OPTIONS, gang, launch
from workers.executors.kubernetes import manifests

ONE, OTHER = launch(), launch(id="s2x1x1", simulation_id="s2")
GANG = dataclasses.replace(gang(), id="s3x1x1", simulation_id="s3")


@dataclasses.dataclass(frozen=True)
class End:
    """One end of a connection: a pod, or an address outside the cluster where ``labels`` is None."""

    address: str
    namespace: str = ""
    labels: dict | None = None


def pod(about, address="10.244.0.9", part=""):
    """Return a pod of a launch with the labels of its template."""
    objects = manifests.launch_objects(about, OPTIONS, ALL)
    jobs = objects[0]["spec"]["replicatedJobs"]
    labels = jobs[0]["template"]["spec"]["template"]["metadata"]["labels"]
    return End(address, objects[0]["metadata"]["namespace"], labels | ({"windtunnel/part": part} if part else {}))


def service(component, namespace="windtunnel"):
    return End("10.244.0.50", namespace, {"app.kubernetes.io/component": component})


DNS = End("10.244.0.2", "kube-system", {"k8s-app": "kube-dns"})
POLICIES = [
    each
    for about in (ONE, OTHER, GANG)
    for each in manifests.launch_objects(about, OPTIONS, ALL)
    if each["kind"] == "NetworkPolicy"
]


def selected(selector, labels):
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(
        {"In": labels.get(one["key"]) in one["values"]}[one["operator"]] for one in selector.get("matchExpressions", [])
    )


def matches(peer, end, namespace):
    if "ipBlock" in peer:
        address, block = ipaddress.ip_address(end.address), peer["ipBlock"]
        excepted = any(address in ipaddress.ip_network(each) for each in block.get("except", []))
        return address in ipaddress.ip_network(block["cidr"]) and not excepted
    if end.labels is None:
        return False
    where = peer.get("namespaceSelector")
    same = end.namespace == namespace
    if where is not None:
        same = selected(where, {"kubernetes.io/metadata.name": end.namespace})
    return same and selected(peer.get("podSelector", {}), end.labels)


def allowed(end, peer_end, port, protocol, direction, way, policies):
    """Return whether the policies of one end allow the other: no policy selects the end, or a rule allows it."""
    if end.labels is None:
        return True
    mine = [
        each
        for each in policies
        if each["metadata"]["namespace"] == end.namespace and selected(each["spec"]["podSelector"], end.labels)
    ]
    rules = [rule for each in mine for rule in each["spec"].get(direction, [])]
    if not any(direction.capitalize() in each["spec"]["policyTypes"] for each in mine):
        return True
    return any(
        (not rule.get(way) or any(matches(peer, peer_end, end.namespace) for peer in rule[way]))
        and (
            not rule.get("ports")
            or any(each["port"] == port and each.get("protocol", "TCP") == protocol for each in rule["ports"])
        )
        for rule in rules
    )


def reaches(source, target, port, protocol="TCP", policies=POLICIES):
    """Return whether a connection is allowed by the policies of both ends."""
    out = allowed(source, target, port, protocol, "egress", "to", policies)
    return out and allowed(target, source, port, protocol, "ingress", "from", policies)


@pytest.mark.parametrize("about", [ONE, GANG])
@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
def test_every_pod_reaches_the_dns_of_the_cluster(about, protocol):
    assert reaches(pod(about), DNS, 53, protocol)
    assert not reaches(pod(about), End("8.8.8.8"), 53, protocol)
    assert not reaches(pod(about), dataclasses.replace(DNS, namespace="elsewhere"), 53, protocol)


def test_an_option_sets_another_dns_service():
    """A DNS cache on each node has an address outside the pods; some DNS servers listen on another port."""
    options = dataclasses.replace(OPTIONS, dns=({"ipBlock": {"cidr": "169.254.20.10/32"}},), dns_ports=(53, 5353))
    policies = [
        each
        for about in (ONE, GANG)
        for each in manifests.launch_objects(about, options, ALL)
        if each["kind"] == "NetworkPolicy"
    ]
    for about in (ONE, GANG):
        assert reaches(pod(about), End("169.254.20.10"), 5353, "UDP", policies=policies)
        assert not reaches(pod(about), End("169.254.20.10"), 80, policies=policies)
        assert not reaches(pod(about), DNS, 53, policies=policies)


def test_a_runner_reaches_the_runner_api_and_the_cache_service():
    assert reaches(pod(ONE), service("runner-api"), 8001)
    assert reaches(pod(ONE), End("10.1.2.3"), 8002)
    assert not reaches(pod(ONE), End("10.1.2.3"), 22)
    assert not reaches(pod(ONE), End("10.1.2.4"), 8002)


@pytest.mark.parametrize("about", [ONE, GANG])
@pytest.mark.parametrize(
    ("target", "port"),
    [
        (End("169.254.169.254"), 80),
        (End("10.96.0.1"), 443),
        (End("192.0.2.2"), 6443),
        (End("203.0.113.7"), 443),
        (service("redis"), 6379),
        (service("postgres"), 5432),
        (service("store"), 9000),
        (service("runner-api", namespace="a-tenants-own"), 8001),
    ],
)
def test_no_pod_reaches_metadata_the_api_server_stores_or_the_world(about, target, port):
    assert not reaches(pod(about), target, port)


@pytest.mark.parametrize(("one", "other"), [(ONE, OTHER), (ONE, GANG), (GANG, ONE)])
def test_launches_do_not_reach_each_other_even_of_one_project(one, other):
    assert not reaches(pod(one), pod(other, "10.244.0.10"), 29500)


def test_pods_of_independent_workers_do_not_reach_each_other():
    assert not reaches(pod(ONE), pod(ONE, "10.244.0.10"), 8000)


def test_the_pods_of_a_gang_reach_each_other_at_any_port():
    assert reaches(pod(GANG), pod(GANG, "10.244.0.10"), 29500)
    assert reaches(pod(GANG, part="lead"), pod(GANG, "10.244.0.10"), 40001)


def test_the_program_of_a_gang_does_not_reach_the_runner_api():
    assert not reaches(pod(GANG), service("runner-api"), 8001)


def test_runner_and_leader_of_a_gang_reach_the_runner_api():
    assert reaches(pod(GANG, part="lead"), service("runner-api"), 8001)
    assert not reaches(pod(GANG, part="lead"), End("169.254.169.254"), 80)


def test_no_pod_is_reachable_from_outside():
    assert not reaches(End("203.0.113.7"), pod(ONE), 8000)
    assert not reaches(service("runner-api"), pod(ONE), 8000)


@pytest.mark.parametrize(
    ("url", "inside", "outside"),
    [
        ("http://192.0.2.2:8001", ("192.0.2.2", 8001), ("192.0.2.3", 8001)),
        ("https://runner_api.example.org", ("198.51.100.1", 443), ("10.0.0.1", 443)),
        ("http://[2001:db8::1]:8001", ("2001:db8::1", 8001), ("2001:db8::2", 8001)),
    ],
)
def test_the_runner_api_may_be_outside_the_cluster(url, inside, outside):
    options = dataclasses.replace(OPTIONS, runner_api_url=url)
    about = dataclasses.replace(ONE, id="s4x1x1")
    objects = manifests.launch_objects(about, options, ALL)
    labels = {"windtunnel/launch": "s4x1x1"}
    source = End("10.244.0.9", objects[-1]["metadata"]["namespace"], labels)
    assert reaches(source, End(inside[0]), inside[1], policies=objects[-1:])
    assert not reaches(source, End(outside[0]), outside[1], policies=objects[-1:])
