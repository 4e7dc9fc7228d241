"""What the chart promises: objects that a cluster takes, pods that are confined, values that are refused in words."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.domain.executor_config import parsed
from core.settings import Settings
from datasets.scs import config as scs_config
from scripts import chart as schema
from tests.cached import tool
from tests.chart import schemas
from tests.chart.rendering import (
    CHART,
    PREVIOUS,
    SAID,
    Object,
    containers,
    environment,
    helm,
    key,
    named,
    of_kind,
    render,
    rendered,
    templates,
)
from workers.executors.kubernetes import options as kubernetes

#: Kinds that the Prometheus operator brings.
MONITORS = {"ServiceMonitor", "PodMonitor"}
#: Values by their present and their former name.
FORMER = {"runnerApi": "drivers", "runners": "couriers", "workers": "cores", "maxWorkers": "width"}
SAYINGS = pytest.mark.parametrize("said", SAID)


# -- what a cluster takes


@SAYINGS
def test_helm_finds_nothing_to_say_about_it(said: str) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", "-", given=json.dumps(SAID[said]))
    assert done.returncode == 0, done.stdout + done.stderr


@SAYINGS
def test_the_api_s_own_schemas_know_every_field(said: str) -> None:
    own = [one for one in rendered(said) if one["kind"] not in MONITORS]
    assert {key(one): found for one in own if (found := schemas.complaints(one))} == {}


def test_a_misspelt_field_and_an_unknown_kind_are_refused() -> None:
    wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"prots": []}}
    [complaint] = schemas.complaints(wrong)
    assert "prots" in complaint
    assert schemas.complaints({"apiVersion": "v2", "kind": "Service"}) == ["v2 has no kind Service"]


def test_the_prometheus_operator_s_own_types_know_every_field_of_monitors() -> None:
    found = of_kind(rendered("production"), *MONITORS)
    assert {one["kind"] for one in found} == MONITORS
    for one in found:
        assert monitor_check(one) == ""
        assert "unknown field" in monitor_check({**one, "spec": {**one["spec"], "endpionts": []}})


def test_what_prometheus_is_told_to_ask_is_a_port_of_pods_that_are_there() -> None:
    asked = {}
    for monitor in of_kind(rendered("production"), "PodMonitor"):
        chosen = monitor["spec"]["selector"]["matchLabels"].items()
        for name, template in templates(rendered("production")).items():
            if chosen <= template["metadata"]["labels"].items():
                ports = {port["name"] for one in template["spec"]["containers"] for port in one.get("ports", ())}
                assert {end["port"] for end in monitor["spec"]["podMetricsEndpoints"]} <= ports, name
                asked[name] = monitor["metadata"]["name"]
    assert {"windtunnel-dispatch", "windtunnel-scs"} <= set(asked.values())


def monitor_check(monitor: Object) -> str:
    """Return what is wrong with it."""
    done = subprocess.run(
        [tool("monitor-check")], input=json.dumps(monitor), capture_output=True, text=True, timeout=60
    )
    return done.stderr


@SAYINGS
def test_names_are_unique_and_short_enough(said: str) -> None:
    hooks = ((one["metadata"].get("annotations") or {}).get("helm.sh/hook") for one in rendered(said))
    keys = list(zip(map(key, rendered(said)), hooks, strict=True))  # of hooks, there is one at a time
    assert len(set(keys)) == len(keys)
    longest = render(SAID[said], release="r" * 53, namespace="n" * 63)
    assert max(len(one["metadata"]["name"]) for one in of_kind(longest, "Service", "Deployment", "DaemonSet")) <= 63
    labels = [value for one in longest for value in (one["metadata"].get("labels") or {}).values()]
    assert max(map(len, labels)) <= 63


# -- what is refused

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt setting": ({"trial": True, "settings": {"leaseTTL": 3}}, "leaseTTL"),
    "a misspelt key": ({"trial": True, "replicas": 3}, "replicas"),
    "a port that is none": ({"trial": True, "scs": {"port": 0}}, "/scs/port"),
    "a quantity that is none": ({"trial": True, "jobs": {"scratch": "lots"}}, "/jobs/scratch"),
    "an unknown way to evict": (
        {"trial": True, "scs": {"buckets": [{"name": "b", "quota": "1Gi", "eviction": "lfu"}]}},
        "eviction",
    ),
    "an ingress without a host": ({"trial": True, "ingress": {"enabled": True}}, "/ingress/hosts"),
    "a project with capitals": ({"trial": True, "projects": {"list": [{"name": "Red"}]}}, "/projects/list/0/name"),
    "nowhere to run": (
        {"trial": True, "executors": {"cluster": {"enabled": False}}},
        "add at least one executor to executors.others",
    ),
    "a place of unknown size": (
        {"trial": True, "executors": {"others": [{"name": "west", "kind": "kubernetes"}]}},
        "missing property 'workers'",
    ),
    "no database": ({}, "settings.databaseUrl is missing"),
    "no object store": (
        {"settings": {"databaseUrl": "postgresql+psycopg://db/w", "redisUrl": "redis://r"}},
        "settings.objectStoreUrl is missing",
    ),
    "a database that pods cannot share": (
        {"trial": True, "settings": {"databaseUrl": "sqlite:///w.db"}},
        "instead of SQLite",
    ),
    "objects that pods cannot share": (
        {"trial": True, "settings": {"objectStoreUrl": "file:///w"}},
        "instead of a folder",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_not_work_is_refused_in_words(case: str) -> None:
    values, words = REFUSED[case]
    with pytest.raises(ValueError, match=re.escape(words)):
        render(values)


def test_the_schema_knows_every_setting_and_no_other() -> None:
    assert schema.SCHEMA.read_text() == schema.schema(), "run `python -m scripts.chart`"


# -- what the processes are told


@SAYINGS
def test_every_role_can_read_its_settings(said: str) -> None:
    objects = rendered(said)
    given = {
        "WINDTUNNEL_TOKEN": "t",
        "WINDTUNNEL_DATABASE_URL": "postgresql+psycopg://db/w",
        "WINDTUNNEL_REDIS_URL": "redis://r",
        "WINDTUNNEL_OBJECT_STORE_URL": "s3://bucket?endpoint=http://s3:9000",
    }
    for template in templates(objects).values():
        for container in containers(template):
            if "workers" not in container.get("command", ()):
                continue
            settings = Settings.from_env(
                (given if "existingSecret" in SAID[said] else {}) | environment(objects, container)
            )
            assert settings.database.startswith("postgresql+psycopg://")
            if container["name"] != "migrate":
                assert settings.objects.startswith("s3://") and settings.redis_url.startswith("redis")
                assert settings.token and "$(POD_IP)" in settings.names


def test_a_setting_reaches_every_role_as_it_was_given() -> None:
    objects = rendered("production")
    [container] = templates(objects)["windtunnel-api"]["spec"]["containers"]
    seen = environment(objects, container)
    assert (seen["WINDTUNNEL_LEASE_TTL"], seen["WINDTUNNEL_MAX_UPLOAD"]) == ("2.5", str(8 << 30))
    assert seen["WINDTUNNEL_NAMES"].count("sim.example") == 1


def test_a_port_that_is_set_is_the_port_everywhere() -> None:
    objects = render({"trial": True, "settings": {"runnerApiPort": 7001}})
    [container] = templates(objects)["windtunnel-runner-api"]["spec"]["containers"]
    assert container["ports"][0]["containerPort"] == 7001
    assert named(objects, "Service", "windtunnel-runner-api")["spec"]["ports"][0]["port"] == 7001
    assert contexts(objects)[0]["options"]["runner_api_url"] == "http://windtunnel-runner-api.sim.svc:7001"
    runners = named(
        [one for one in objects if one["metadata"].get("namespace") == "windtunnel-default"],
        "NetworkPolicy",
        "windtunnel-runners",
    )
    assert 7001 in [port["port"] for rule in runners["spec"]["egress"] for port in rule["ports"]]


def contexts(objects: Any) -> list[Object]:
    """Return the executors' contexts."""
    text = named(objects, "ConfigMap", "windtunnel-executors")["data"]["executors.json"]
    found: list[Object] = json.loads(text)["executors"]
    return found


@SAYINGS
def test_dispatch_can_read_where_launches_run(said: str) -> None:
    text = named(rendered(said), "ConfigMap", "windtunnel-executors")["data"]["executors.json"]
    places = parsed(json.loads(text))
    assert places
    for one in places:
        if one.kind == "kubernetes":
            options = kubernetes.parse(one.options)
            assert options.runner_api_url or one.name == "west"


def test_launches_run_in_this_cluster_unless_the_values_say_otherwise() -> None:
    [cluster] = contexts(rendered("trial"))
    assert (cluster["kind"], cluster["options"]["scs"]["nodes"]) == (
        "kubernetes",
        "http://windtunnel-envoy.sim.svc:5081",
    )
    assert [one["name"] for one in contexts(rendered("production"))] == ["cluster", "west"]
    assert [one["name"] for one in contexts(rendered("launches elsewhere"))] == ["farm"]


def test_who_answers_for_names_is_said_once_for_the_namespace_and_for_launches() -> None:
    near = [{"ipBlock": {"cidr": "169.254.20.10/32"}}]
    objects = render({"trial": True, "network": {"dns": near, "dnsPorts": [53, 5353]}})
    [cluster] = contexts(objects)
    options = kubernetes.parse(cluster["options"])
    assert (list(options.dns), options.dns_ports) == (near, (53, 5353))
    runners = named(objects, "NetworkPolicy", "windtunnel-runners")
    [rule] = [one for one in runners["spec"]["egress"] if one["to"] == near]
    asked = [(port["protocol"], port["port"]) for port in rule["ports"]]
    assert asked == [("UDP", 53), ("TCP", 53), ("UDP", 5353), ("TCP", 5353)]


@SAYINGS
def test_the_cache_can_read_its_configuration(said: str) -> None:
    found = [one for one in of_kind(rendered(said), "ConfigMap") if "scs.json" in one["data"]]
    assert bool(found) is (said != "no cache")
    for one in found:
        config = scs_config.parse(json.loads(one["data"]["scs.json"]))
        bucket = config.buckets["private"]
        assert (config.port, config.authenticator["Kind"], bucket.public) == (5080, "kubernetes", False)
        assert bucket.allows("sim")


@SAYINGS
def test_envoy_s_own_schema_knows_its_bootstrap(said: str) -> None:
    found = [one["data"]["envoy.json"] for one in of_kind(rendered(said), "ConfigMap") if "envoy.json" in one["data"]]
    assert len(found) == {"production": 2, "no cache": 0, "clients hash by themselves": 0}.get(said, 1)
    for bootstrap in found:
        done = subprocess.run([tool("envoy-check")], input=bootstrap, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("merge_slashes", "merge_slashs"), "merge_slashs"),
        (("KEEP_UNCHANGED", "KEEP"), "KEEP"),
        (("65537", "6000000"), "TableSize"),
        (('"stat_prefix": "scs"', '"stat_prefix": ""'), "StatPrefix"),
    ],
)
def test_a_wrong_bootstrap_would_be_found(wrong: tuple[str, str], words: str) -> None:
    bootstrap = named(rendered("trial"), "ConfigMap", "windtunnel-envoy")["data"]["envoy.json"]
    assert wrong[0] in bootstrap
    done = subprocess.run(
        [tool("envoy-check")], input=bootstrap.replace(*wrong), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and words in done.stderr


def test_envoy_hands_keys_on_as_they_came() -> None:
    bootstrap = json.loads(named(rendered("trial"), "ConfigMap", "windtunnel-envoy")["data"]["envoy.json"])
    listener = next(one for one in bootstrap["static_resources"]["listeners"] if one["name"] == "scs")
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    assert (manager["merge_slashes"], manager["normalize_path"]) == (False, False)
    assert manager["path_with_escaped_slashes_action"] == "KEEP_UNCHANGED"
    [route] = manager["route_config"]["virtual_hosts"][0]["routes"]
    assert route["route"]["hash_policy"] == [{"header": {"header_name": ":path"}}]
    cluster = next(one for one in bootstrap["static_resources"]["clusters"] if one["name"] == "scs")
    assert cluster["lb_policy"] == "MAGLEV"


def test_each_zone_s_proxies_know_the_nodes_of_their_zone_alone() -> None:
    objects = rendered("production")
    for zone in ("a", "b"):
        bootstrap = named(objects, "ConfigMap", f"windtunnel-envoy-{zone}")["data"]["envoy.json"]
        assert set(re.findall(r"windtunnel-scs-\w+-nodes", bootstrap)) == {f"windtunnel-scs-{zone}-nodes"}
        service = named(objects, "Service", f"windtunnel-scs-{zone}-nodes")["spec"]
        nodes = named(objects, "DaemonSet", f"windtunnel-scs-{zone}")["spec"]["template"]
        assert service["selector"].items() <= nodes["metadata"]["labels"].items()
        assert nodes["spec"]["nodeSelector"] == {"topology.kubernetes.io/zone": zone}


@pytest.mark.parametrize(("version", "word"), [("1.30.0", "PreferClose"), ("1.35.4", "PreferSameZone")])
def test_reads_stay_in_their_zone_by_the_word_that_the_cluster_knows(version: str, word: str) -> None:
    objects = render(SAID["trial"], version=version)
    for name in ("windtunnel-scs", "windtunnel-envoy"):
        assert named(objects, "Service", name)["spec"]["trafficDistribution"] == word


# -- how pods are confined


@SAYINGS
def test_pods_keep_to_restricted_pod_security(said: str) -> None:
    for name, template in templates(rendered(said)).items():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        allowed = {"configMap", "emptyDir", "secret", "projected", "ephemeral", "persistentVolumeClaim", "name"}
        assert {kind for volume in spec.get("volumes", ()) for kind in volume} <= allowed, name
        for container in containers(template):
            context = container["securityContext"]
            assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True), name
            assert context["capabilities"] == {"drop": ["ALL"]}, name


@SAYINGS
def test_only_those_who_ask_the_api_server_hold_a_token_for_it(said: str) -> None:
    holders = {name for name, one in templates(rendered(said)).items() if one["spec"]["automountServiceAccountToken"]}
    caches = {"production": {"windtunnel-scs-a", "windtunnel-scs-b"}, "no cache": set[str]()}
    dispatch = set() if said == "launches elsewhere" else {"windtunnel-dispatch"}
    hashing = {"windtunnel-jobs"} if said == "clients hash by themselves" else set()
    assert holders == caches.get(said, {"windtunnel-scs"}) | dispatch | hashing


@SAYINGS
def test_no_pod_is_told_of_services_by_variables(said: str) -> None:
    """WINDTUNNEL_API_SERVICE_HOST would be an unknown setting, and those are errors."""
    assert all(one["spec"]["enableServiceLinks"] is False for one in templates(rendered(said)).values())


@SAYINGS
def test_secrets_stand_in_secrets_alone(said: str) -> None:
    shown = json.dumps([one for one in rendered(said) if one["kind"] != "Secret"])
    for one in of_kind(rendered(said), "Secret"):
        for name, text in one["stringData"].items():
            if name not in {"WINDTUNNEL_HOME", "WINDTUNNEL_OBJECT_STORE_ACCESS_KEY"} and len(text) > 6:
                assert text not in shown, name


@SAYINGS
def test_every_container_is_probed_and_asks_for_what_it_needs(said: str) -> None:
    for one in of_kind(rendered(said), "Deployment", "DaemonSet", "StatefulSet"):
        for container in one["spec"]["template"]["spec"]["containers"]:
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container), container["name"]
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), container["name"]
            assert "memory" in container["resources"]["limits"], container["name"]


@SAYINGS
def test_services_and_budgets_find_their_pods_and_no_others(said: str) -> None:
    objects = rendered(said)
    labels = {name: one["metadata"]["labels"] for name, one in templates(objects).items()}
    for one in of_kind(objects, "Service", "PodDisruptionBudget"):
        selector = one["spec"]["selector"]
        wanted = selector.get("matchLabels", selector)
        found = {found["app.kubernetes.io/component"] for found in labels.values() if wanted.items() <= found.items()}
        assert found == {wanted["app.kubernetes.io/component"]}


# -- from one version to the next


def stable(one: Object) -> Any:
    """Return what of an object a cluster does not let anybody change."""
    spec = one.get("spec", {})
    match one["kind"]:
        case "Deployment" | "DaemonSet":
            return spec["selector"]
        case "StatefulSet":
            return spec["selector"], spec["serviceName"], spec.get("volumeClaimTemplates")
        case "Service":
            return spec.get("clusterIP")
        case "RoleBinding" | "ClusterRoleBinding":
            return one["roleRef"]
        case "Secret":
            return one["type"]
    return None


@pytest.mark.parametrize("said", ["trial", "trial that keeps", "production", "given values"])
@pytest.mark.parametrize("previous", PREVIOUS, ids=lambda path: path.stem)
def test_an_upgrade_changes_nothing_that_cannot_be_changed(previous: Path, said: str) -> None:
    before = {key(one): stable(one) for one in render(with_former_names(SAID[said]), previous)}
    after = {key(one): stable(one) for one in rendered(said)}
    # What goes is made again by its present name: the runner API, and the policies of runners' pods.
    gone = {one: before[one] for one in before if one not in after}
    assert all(one[2] in {"windtunnel-drivers", "windtunnel-couriers"} for one in gone), gone
    assert {one: (before[one], after[one]) for one in before if one in after and before[one] != after[one]} == {}


def with_former_names(values: Any) -> Any:
    """Return values as the chart of before the renaming has them."""
    if isinstance(values, Mapping):
        return {FORMER.get(name, name): with_former_names(value) for name, value in values.items()}
    return [with_former_names(value) for value in values] if isinstance(values, list) else values


@pytest.mark.parametrize("previous", PREVIOUS, ids=lambda path: path.stem)
def test_the_values_of_an_earlier_chart_are_understood_or_refused_with_their_present_names(previous: Path) -> None:
    values = yaml.safe_load(helm("show", "values", str(previous)).stdout)
    with pytest.raises(ValueError) as refused:
        render({**values, "trial": True})
    for present, former in (("runnerApi", "drivers"), ("runners", "couriers"), ("workers", "cores")):
        assert f"/{former}': value must be 'is called {present} now'" in str(refused.value)
    values["runnerApi"] = values.pop("drivers")
    values["network"]["runners"] = values["network"].pop("couriers")
    cluster = values["executors"]["cluster"]
    cluster["workers"] = cluster.pop("cores")
    assert render({**values, "trial": True})
