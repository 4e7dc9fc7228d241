"""Reachability of pods by the NetworkPolicies of two concurrent launches, evaluated as the API specifies."""

import dataclasses
import ipaddress

import pytest

from tests.unit.launch_samples import ALL, OPTIONS, gang, launch
from workers.executors.kubernetes import manifests

LAUNCH, OTHER_LAUNCH = launch(), launch(id="s2x1x1", simulation_id="s2")
GANG = dataclasses.replace(gang(), id="s3x1x1", simulation_id="s3")


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Endpoint of a connection: a pod, or, where ``labels`` is None, an address outside the cluster."""

    address: str
    namespace: str = ""
    labels: dict | None = None


def pod(launch, address="10.244.0.9", part=""):
    """Return a pod of a launch with the labels of its template."""
    objects = manifests.launch_objects(launch, OPTIONS, ALL)
    jobs = objects[0]["spec"]["replicatedJobs"]
    labels = jobs[0]["template"]["spec"]["template"]["metadata"]["labels"]
    return Endpoint(address, objects[0]["metadata"]["namespace"], labels | ({"windtunnel/part": part} if part else {}))


def service(component, namespace="windtunnel"):
    return Endpoint("10.244.0.50", namespace, {"app.kubernetes.io/component": component})


DNS = Endpoint("10.244.0.2", "kube-system", {"k8s-app": "kube-dns"})
POLICIES = [
    document
    for sample in (LAUNCH, OTHER_LAUNCH, GANG)
    for document in manifests.launch_objects(sample, OPTIONS, ALL)
    if document["kind"] == "NetworkPolicy"
]


def selected(selector, labels):
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(
        {"In": labels.get(expression["key"]) in expression["values"]}[expression["operator"]]
        for expression in selector.get("matchExpressions", [])
    )


def matches(peer, endpoint, namespace):
    if "ipBlock" in peer:
        address, block = ipaddress.ip_address(endpoint.address), peer["ipBlock"]
        excluded = any(address in ipaddress.ip_network(network) for network in block.get("except", []))
        return address in ipaddress.ip_network(block["cidr"]) and not excluded
    if endpoint.labels is None:
        return False
    namespace_selector = peer.get("namespaceSelector")
    namespace_matches = endpoint.namespace == namespace
    if namespace_selector is not None:
        namespace_matches = selected(namespace_selector, {"kubernetes.io/metadata.name": endpoint.namespace})
    return namespace_matches and selected(peer.get("podSelector", {}), endpoint.labels)


def allowed(endpoint, peer_endpoint, port, protocol, direction, peers_key, policies):
    """Return whether no policy selects the endpoint, or a rule allows its peer."""
    if endpoint.labels is None:
        return True
    selecting = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == endpoint.namespace
        and selected(policy["spec"]["podSelector"], endpoint.labels)
    ]
    rules = [rule for policy in selecting for rule in policy["spec"].get(direction, [])]
    if not any(direction.capitalize() in policy["spec"]["policyTypes"] for policy in selecting):
        return True
    return any(
        (not rule.get(peers_key) or any(matches(peer, peer_endpoint, endpoint.namespace) for peer in rule[peers_key]))
        and (
            not rule.get("ports")
            or any(entry["port"] == port and entry.get("protocol", "TCP") == protocol for entry in rule["ports"])
        )
        for rule in rules
    )


def reaches(source, target, port, protocol="TCP", policies=POLICIES):
    """Return whether a connection is allowed by the policies of both endpoints."""
    egress_allowed = allowed(source, target, port, protocol, "egress", "to", policies)
    return egress_allowed and allowed(target, source, port, protocol, "ingress", "from", policies)


@pytest.mark.parametrize("sample", [LAUNCH, GANG])
@pytest.mark.parametrize("protocol", ["UDP", "TCP"])
def test_every_pod_reaches_the_dns_of_the_cluster(sample, protocol):
    assert reaches(pod(sample), DNS, 53, protocol)
    assert not reaches(pod(sample), Endpoint("8.8.8.8"), 53, protocol)
    assert not reaches(pod(sample), dataclasses.replace(DNS, namespace="elsewhere"), 53, protocol)


def test_an_option_sets_another_dns_service():
    """A DNS cache on each node has an address outside the pods; some DNS servers listen on another port."""
    options = dataclasses.replace(OPTIONS, dns=({"ipBlock": {"cidr": "169.254.20.10/32"}},), dns_ports=(53, 5353))
    policies = [
        document
        for sample in (LAUNCH, GANG)
        for document in manifests.launch_objects(sample, options, ALL)
        if document["kind"] == "NetworkPolicy"
    ]
    for sample in (LAUNCH, GANG):
        assert reaches(pod(sample), Endpoint("169.254.20.10"), 5353, "UDP", policies=policies)
        assert not reaches(pod(sample), Endpoint("169.254.20.10"), 80, policies=policies)
        assert not reaches(pod(sample), DNS, 53, policies=policies)


def test_a_runner_reaches_the_runner_api_and_the_cache_service():
    assert reaches(pod(LAUNCH), service("runner-api"), 8001)
    assert reaches(pod(LAUNCH), Endpoint("10.1.2.3"), 8002)
    assert not reaches(pod(LAUNCH), Endpoint("10.1.2.3"), 22)
    assert not reaches(pod(LAUNCH), Endpoint("10.1.2.4"), 8002)


@pytest.mark.parametrize("sample", [LAUNCH, GANG])
@pytest.mark.parametrize(
    ("target", "port"),
    [
        (Endpoint("169.254.169.254"), 80),
        (Endpoint("10.96.0.1"), 443),
        (Endpoint("192.0.2.2"), 6443),
        (Endpoint("203.0.113.7"), 443),
        (service("redis"), 6379),
        (service("postgres"), 5432),
        (service("store"), 9000),
        (service("runner-api", namespace="a-tenants-own"), 8001),
    ],
)
def test_no_pod_reaches_metadata_the_api_server_stores_or_the_internet(sample, target, port):
    assert not reaches(pod(sample), target, port)


@pytest.mark.parametrize(("source", "target"), [(LAUNCH, OTHER_LAUNCH), (LAUNCH, GANG), (GANG, LAUNCH)])
def test_launches_of_the_same_project_do_not_reach_each_other(source, target):
    assert not reaches(pod(source), pod(target, "10.244.0.10"), 29500)


def test_pods_of_independent_workers_do_not_reach_each_other():
    assert not reaches(pod(LAUNCH), pod(LAUNCH, "10.244.0.10"), 8000)


def test_the_pods_of_a_gang_reach_each_other_at_any_port():
    assert reaches(pod(GANG), pod(GANG, "10.244.0.10"), 29500)
    assert reaches(pod(GANG, part="lead"), pod(GANG, "10.244.0.10"), 40001)


def test_the_program_of_a_gang_does_not_reach_the_runner_api():
    assert not reaches(pod(GANG), service("runner-api"), 8001)


def test_the_leader_of_a_gang_reaches_the_runner_api():
    assert reaches(pod(GANG, part="lead"), service("runner-api"), 8001)
    assert not reaches(pod(GANG, part="lead"), Endpoint("169.254.169.254"), 80)


def test_no_pod_is_reachable_from_outside():
    assert not reaches(Endpoint("203.0.113.7"), pod(LAUNCH), 8000)
    assert not reaches(service("runner-api"), pod(LAUNCH), 8000)


@pytest.mark.parametrize(
    ("url", "allowed_address", "denied_address"),
    [
        ("http://192.0.2.2:8001", ("192.0.2.2", 8001), ("192.0.2.3", 8001)),
        ("https://runner_api.example.org", ("198.51.100.1", 443), ("10.0.0.1", 443)),
        ("http://[2001:db8::1]:8001", ("2001:db8::1", 8001), ("2001:db8::2", 8001)),
    ],
)
def test_the_runner_api_may_be_outside_the_cluster(url, allowed_address, denied_address):
    options = dataclasses.replace(OPTIONS, runner_api_url=url)
    sample = dataclasses.replace(LAUNCH, id="s4x1x1")
    objects = manifests.launch_objects(sample, options, ALL)
    labels = {"windtunnel/launch": "s4x1x1"}
    source = Endpoint("10.244.0.9", objects[-1]["metadata"]["namespace"], labels)
    assert reaches(source, Endpoint(allowed_address[0]), allowed_address[1], policies=objects[-1:])
    assert not reaches(source, Endpoint(denied_address[0]), denied_address[1], policies=objects[-1:])
