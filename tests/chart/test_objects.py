"""The chart: valid objects, pod security, invalid values and upgrades."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.domain.scheduling.allowed_options import OPTIONS
from core.domain.scheduling.executor_config import parsed
from core.settings import Settings
from datasets.scs import config as scs_config
from tests.cached import tool
from tests.chart import schemas
from tests.chart.rendering import (
    CASES,
    CHART,
    PREVIOUS,
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

#: Kinds of the Prometheus operator.
MONITORS = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
#: Present names of values, with their former names.
FORMER_NAMES = {"runnerApi": "drivers", "runners": "couriers", "workers": "cores", "maxWorkers": "width"}
ALL_CASES = pytest.mark.parametrize("case", CASES)


# -- valid objects


@ALL_CASES
def test_helm_lint_reports_nothing(case: str) -> None:
    process = helm("lint", "--strict", str(CHART), "--values", "-", stdin=json.dumps(CASES[case]))
    assert process.returncode == 0, process.stdout + process.stderr


@ALL_CASES
def test_every_object_is_valid_by_the_api_servers_schemas(case: str) -> None:
    objects = [item for item in rendered(case) if item["kind"] not in MONITORS]
    assert {key(item): errors for item in objects if (errors := schemas.schema_errors(item))} == {}


def test_a_misspelt_field_and_an_unknown_kind_are_refused() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"prots": []}}
    [error] = schemas.schema_errors(service)
    assert "prots" in error
    assert schemas.schema_errors({"apiVersion": "v2", "kind": "Service"}) == ["v2 has no kind Service"]


def test_monitors_are_valid_by_the_prometheus_operators_types() -> None:
    monitors = of_kind([*rendered("production"), *rendered("alerts and a dashboard")], *MONITORS)
    assert {monitor["kind"] for monitor in monitors} == MONITORS
    for monitor in monitors:
        assert monitor_check(monitor) == ""
        assert "unknown field" in monitor_check({**monitor, "spec": {**monitor["spec"], "endpionts": []}})


def test_the_dashboard_is_a_config_map_that_grafana_s_sidecar_finds() -> None:
    item = named(rendered("alerts and a dashboard"), "ConfigMap", "windtunnel-dashboard")
    assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert item["data"]["windtunnel.json"] == (CHART / "files/grafana-dashboard.json").read_text()
    [rule] = of_kind(rendered("alerts and a dashboard"), "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((CHART / "files/prometheus-rules.yaml").read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert not of_kind(rendered("trial"), "PrometheusRule")


def test_each_pod_monitor_names_a_port_of_existing_pods() -> None:
    monitors_of_pods = {}
    for monitor in of_kind(rendered("production"), "PodMonitor"):
        selected_labels = monitor["spec"]["selector"]["matchLabels"].items()
        for name, template in templates(rendered("production")).items():
            if selected_labels <= template["metadata"]["labels"].items():
                ports = {
                    port["name"] for container in template["spec"]["containers"] for port in container.get("ports", ())
                }
                assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= ports, name
                monitors_of_pods[name] = monitor["metadata"]["name"]
    assert {"windtunnel-dispatch", "windtunnel-scs"} <= set(monitors_of_pods.values())


def monitor_check(monitor: Object) -> str:
    """Return the errors of a monitor."""
    process = subprocess.run(
        [tool("monitor-check")], input=json.dumps(monitor), capture_output=True, text=True, timeout=60
    )
    return process.stderr


@ALL_CASES
def test_names_are_unique_and_short_enough(case: str) -> None:
    hooks = ((item["metadata"].get("annotations") or {}).get("helm.sh/hook") for item in rendered(case))
    keys = list(zip(map(key, rendered(case)), hooks, strict=True))  # hooks with the same name exist at different times
    assert len(set(keys)) == len(keys)
    longest = render(CASES[case], release="r" * 53, namespace="n" * 63)
    assert max(len(item["metadata"]["name"]) for item in of_kind(longest, "Service", "Deployment", "DaemonSet")) <= 63
    labels = [value for item in longest for value in (item["metadata"].get("labels") or {}).values()]
    assert max(map(len, labels)) <= 63


# -- invalid values

INVALID_VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt setting": ({"trial": True, "settings": {"leaseTTL": 3}}, "leaseTTL"),
    "a misspelt key": ({"trial": True, "replicas": 3}, "replicas"),
    "an invalid port": ({"trial": True, "scs": {"port": 0}}, "/scs/port"),
    "an invalid quantity": ({"trial": True, "jobs": {"scratch": "lots"}}, "/jobs/scratch"),
    "a name that no eviction policy can have": (
        {"trial": True, "scs": {"buckets": [{"name": "b", "quota": "1Gi", "eviction": "LRU"}]}},
        "eviction",
    ),
    "an ingress without a host": ({"trial": True, "ingress": {"enabled": True}}, "/ingress/hosts"),
    "a project with capitals": ({"trial": True, "projects": {"list": [{"name": "Red"}]}}, "/projects/list/0/name"),
    "no executor": (
        {"trial": True, "executors": {"cluster": {"enabled": False}}},
        "add at least one executor to executors.others",
    ),
    "an executor without a number of workers": (
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


@pytest.mark.parametrize("case", INVALID_VALUES)
def test_invalid_values_are_refused_with_a_reason(case: str) -> None:
    values, message = INVALID_VALUES[case]
    with pytest.raises(ValueError, match=re.escape(message)):
        render(values)


# -- configuration of the processes


@ALL_CASES
def test_every_role_can_read_its_settings(case: str) -> None:
    objects = rendered(case)
    secret = {
        "WINDTUNNEL_TOKEN": "token-of-the-tests",
        "WINDTUNNEL_DATABASE_URL": "postgresql+psycopg://db/w",
        "WINDTUNNEL_REDIS_URL": "redis://r",
        "WINDTUNNEL_OBJECT_STORE_URL": "s3://bucket?endpoint=http://s3:9000",
    }
    roles = set()
    for template in templates(objects).values():
        for container in containers(template):
            if "server" not in container.get("command", ()):
                continue
            roles.add(container["name"])
            settings = Settings.from_env(
                (secret if "existingSecret" in CASES[case] else {}) | environment(objects, container)
            )
            assert settings.database.startswith("postgresql+psycopg://")
            if container["name"] != "migrate":
                assert settings.objects.startswith("s3://") and settings.redis_url.startswith("redis")
                assert settings.token and "$(POD_IP)" in settings.names
    assert roles - {"migrate"} == {"api", "runner-api", "dispatch", "jobs"}


def test_a_setting_reaches_the_roles_unchanged() -> None:
    objects = rendered("production")
    [container] = templates(objects)["windtunnel-api"]["spec"]["containers"]
    variables = environment(objects, container)
    assert (variables["WINDTUNNEL_LEASE_TTL"], variables["WINDTUNNEL_MAX_UPLOAD"]) == ("2.5", str(8 << 30))
    assert variables["WINDTUNNEL_NAMES"].count("sim.example") == 1


def test_a_configured_port_is_used_everywhere() -> None:
    objects = render({"trial": True, "settings": {"runnerApiPort": 7001}})
    [container] = templates(objects)["windtunnel-runner-api"]["spec"]["containers"]
    assert container["ports"][0]["containerPort"] == 7001
    assert named(objects, "Service", "windtunnel-runner-api")["spec"]["ports"][0]["port"] == 7001
    assert executor_entries(objects)[0]["options"]["runner_api_url"] == "http://windtunnel-runner-api.sim.svc:7001"
    runners = named(
        [item for item in objects if item["metadata"].get("namespace") == "windtunnel-default"],
        "NetworkPolicy",
        "windtunnel-runners",
    )
    assert 7001 in [port["port"] for rule in runners["spec"]["egress"] for port in rule["ports"]]


def executor_entries(objects: Any) -> list[Object]:
    """Return the entries of executors.json."""
    text = named(objects, "ConfigMap", "windtunnel-executors")["data"]["executors.json"]
    entries: list[Object] = json.loads(text)["executors"]
    return entries


@ALL_CASES
def test_dispatch_can_parse_the_executors(case: str) -> None:
    text = named(rendered(case), "ConfigMap", "windtunnel-executors")["data"]["executors.json"]
    configs = parsed(json.loads(text))
    assert configs
    for config in configs:
        if config.kind == "kubernetes":
            options = kubernetes.parse(config.options)
            assert options.runner_api_url or config.name == "west"


def test_launches_run_in_this_cluster_unless_the_values_disable_it() -> None:
    [cluster] = executor_entries(rendered("trial"))
    assert (cluster["kind"], cluster["options"]["scs"]["nodes"]) == (
        "kubernetes",
        "http://windtunnel-envoy.sim.svc:5081",
    )
    assert [executor["name"] for executor in executor_entries(rendered("production"))] == ["cluster", "west"]
    assert [executor["name"] for executor in executor_entries(rendered("launches elsewhere"))] == ["farm"]


def test_no_name_is_allowed_to_submissions_unless_the_values_allow_it() -> None:
    [cluster] = parsed({"executors": executor_entries(rendered("trial"))})
    assert cluster.allowed == {}
    allowed = {option: ["**"] for option in OPTIONS}
    allowed |= {"annotations": ["example.com/*", "sidecar.istio.io/inject=false"]}
    west = {"name": "west", "kind": "kubernetes", "workers": 1, "allowed": {"queue": ["team-*"]}}
    objects = render({"trial": True, "executors": {"cluster": {"allowed": allowed}, "others": [west]}})
    cluster, other = parsed({"executors": executor_entries(objects)})
    assert cluster.allowed == {option: tuple(patterns) for option, patterns in allowed.items()}
    assert other.allowed == {"queue": ("team-*",)}


def test_a_list_for_an_unknown_option_is_refused_before_anything_is_changed() -> None:
    for entry in ({"cluster": {"allowed": {"queues": ["a"]}}}, {"cluster": {"allowed": {"queue": "a"}}}):
        with pytest.raises(ValueError, match="/executors/cluster/allowed"):
            render({"trial": True, "executors": entry})


def test_dns_servers_are_configured_once_for_the_namespace_and_for_launches() -> None:
    servers = [{"ipBlock": {"cidr": "169.254.20.10/32"}}]
    objects = render({"trial": True, "network": {"dns": servers, "dnsPorts": [53, 5353]}})
    [cluster] = executor_entries(objects)
    options = kubernetes.parse(cluster["options"])
    assert (list(options.dns), options.dns_ports) == (servers, (53, 5353))
    runners = named(objects, "NetworkPolicy", "windtunnel-runners")
    [rule] = [egress for egress in runners["spec"]["egress"] if egress["to"] == servers]
    ports = [(port["protocol"], port["port"]) for port in rule["ports"]]
    assert ports == [("UDP", 53), ("TCP", 53), ("UDP", 5353), ("TCP", 5353)]


@ALL_CASES
def test_the_cache_service_can_parse_its_configuration(case: str) -> None:
    config_maps = [
        config_map for config_map in of_kind(rendered(case), "ConfigMap") if "scs.json" in config_map["data"]
    ]
    assert bool(config_maps) is (case != "no cache")
    for config_map in config_maps:
        config = scs_config.parse(json.loads(config_map["data"]["scs.json"]))
        bucket = config.buckets["private"]
        assert (config.port, config.authenticator["Kind"], bucket.public) == (5080, "kubernetes", False)
        assert bucket.allows("sim")


@ALL_CASES
def test_the_bootstrap_is_valid_by_envoys_schema(case: str) -> None:
    bootstraps = [
        config_map["data"]["envoy.json"]
        for config_map in of_kind(rendered(case), "ConfigMap")
        if "envoy.json" in config_map["data"]
    ]
    assert len(bootstraps) == {"production": 2, "no cache": 0, "clients hash keys themselves": 0}.get(case, 1)
    for bootstrap in bootstraps:
        process = subprocess.run([tool("envoy-check")], input=bootstrap, capture_output=True, text=True, timeout=60)
        assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (("merge_slashes", "merge_slashs"), "merge_slashs"),
        (("KEEP_UNCHANGED", "KEEP"), "KEEP"),
        (("65537", "6000000"), "TableSize"),
        (('"stat_prefix": "scs"', '"stat_prefix": ""'), "StatPrefix"),
    ],
)
def test_an_invalid_bootstrap_is_detected(replacement: tuple[str, str], message: str) -> None:
    bootstrap = named(rendered("trial"), "ConfigMap", "windtunnel-envoy")["data"]["envoy.json"]
    assert replacement[0] in bootstrap
    process = subprocess.run(
        [tool("envoy-check")], input=bootstrap.replace(*replacement), capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 1 and message in process.stderr


def test_envoy_forwards_keys_unchanged() -> None:
    bootstrap = json.loads(named(rendered("trial"), "ConfigMap", "windtunnel-envoy")["data"]["envoy.json"])
    listener = next(resource for resource in bootstrap["static_resources"]["listeners"] if resource["name"] == "scs")
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    assert (manager["merge_slashes"], manager["normalize_path"]) == (False, False)
    assert manager["path_with_escaped_slashes_action"] == "KEEP_UNCHANGED"
    [route] = manager["route_config"]["virtual_hosts"][0]["routes"]
    assert route["route"]["hash_policy"] == [{"header": {"header_name": ":path"}}]
    cluster = next(resource for resource in bootstrap["static_resources"]["clusters"] if resource["name"] == "scs")
    assert cluster["lb_policy"] == "MAGLEV"


def test_the_proxies_of_a_zone_know_only_its_nodes() -> None:
    objects = rendered("production")
    for zone in ("a", "b"):
        bootstrap = named(objects, "ConfigMap", f"windtunnel-envoy-{zone}")["data"]["envoy.json"]
        assert set(re.findall(r"windtunnel-scs-\w+-nodes", bootstrap)) == {f"windtunnel-scs-{zone}-nodes"}
        service = named(objects, "Service", f"windtunnel-scs-{zone}-nodes")["spec"]
        nodes = named(objects, "DaemonSet", f"windtunnel-scs-{zone}")["spec"]["template"]
        assert service["selector"].items() <= nodes["metadata"]["labels"].items()
        assert nodes["spec"]["nodeSelector"] == {"topology.kubernetes.io/zone": zone}


@pytest.mark.parametrize(("version", "distribution"), [("1.30.0", "PreferClose"), ("1.35.4", "PreferSameZone")])
def test_services_prefer_their_zone_by_the_name_that_the_clusters_version_knows(
    version: str, distribution: str
) -> None:
    objects = render(CASES["trial"], version=version)
    for name in ("windtunnel-scs", "windtunnel-envoy"):
        assert named(objects, "Service", name)["spec"]["trafficDistribution"] == distribution


# -- pod security


@ALL_CASES
def test_pods_comply_with_restricted_pod_security(case: str) -> None:
    for name, template in templates(rendered(case)).items():
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


@ALL_CASES
def test_only_pods_that_call_the_api_server_have_a_token_for_it(case: str) -> None:
    holders = {
        name for name, template in templates(rendered(case)).items() if template["spec"]["automountServiceAccountToken"]
    }
    caches = {"production": {"windtunnel-scs-a", "windtunnel-scs-b"}, "no cache": set[str]()}
    dispatch = set() if case == "launches elsewhere" else {"windtunnel-dispatch"}
    dispatch |= {"windtunnel-api"} if case == "people and pods sign in" else set()
    hashing = {"windtunnel-jobs"} if case == "clients hash keys themselves" else set()
    assert holders == caches.get(case, {"windtunnel-scs"}) | dispatch | hashing


@ALL_CASES
def test_no_pod_has_variables_of_services(case: str) -> None:
    """WINDTUNNEL_API_SERVICE_HOST would be an unknown setting, which is an error."""
    assert all(template["spec"]["enableServiceLinks"] is False for template in templates(rendered(case)).values())


@ALL_CASES
def test_secret_values_occur_in_secrets_only(case: str) -> None:
    public_objects = json.dumps([item for item in rendered(case) if item["kind"] != "Secret"])
    for item in of_kind(rendered(case), "Secret"):
        for name, text in item["stringData"].items():
            if name not in {"WINDTUNNEL_HOME", "WINDTUNNEL_OBJECT_STORE_ACCESS_KEY"} and len(text) > 6:
                assert text not in public_objects, name


@ALL_CASES
def test_every_container_has_probes_and_resources(case: str) -> None:
    for workload in of_kind(rendered(case), "Deployment", "DaemonSet", "StatefulSet"):
        for container in workload["spec"]["template"]["spec"]["containers"]:
            assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container), container["name"]
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), container["name"]
            assert "memory" in container["resources"]["limits"], container["name"]


@ALL_CASES
def test_services_and_disruption_budgets_select_exactly_their_pods(case: str) -> None:
    objects = rendered(case)
    labels = {name: item["metadata"]["labels"] for name, item in templates(objects).items()}
    for item in of_kind(objects, "Service", "PodDisruptionBudget"):
        selector = item["spec"]["selector"]
        required = selector.get("matchLabels", selector)
        selected = {
            pod_labels["app.kubernetes.io/component"]
            for pod_labels in labels.values()
            if required.items() <= pod_labels.items()
        }
        assert selected == {required["app.kubernetes.io/component"]}


# -- upgrades


def immutable_fields(item: Object) -> Any:
    """Return the immutable fields of an object."""
    spec = item.get("spec", {})
    match item["kind"]:
        case "Deployment" | "DaemonSet":
            return spec["selector"]
        case "StatefulSet":
            return spec["selector"], spec["serviceName"], spec.get("volumeClaimTemplates")
        case "Service":
            return spec.get("clusterIP")
        case "RoleBinding" | "ClusterRoleBinding":
            return item["roleRef"]
        case "Secret":
            return item["type"]
    return None


@pytest.mark.parametrize("case", ["trial", "trial with volumes", "production", "stores by values"])
@pytest.mark.parametrize("previous", PREVIOUS, ids=lambda path: path.stem)
def test_an_upgrade_changes_no_immutable_field(previous: Path, case: str) -> None:
    before = {key(item): immutable_fields(item) for item in render(with_former_names(CASES[case]), previous)}
    after = {key(item): immutable_fields(item) for item in rendered(case)}
    # Removed objects have a new name: the runner API, and the policies of runners' pods.
    removed = {name: before[name] for name in before if name not in after}
    assert all(name[2] in {"windtunnel-drivers", "windtunnel-couriers"} for name in removed), removed
    assert {name: (before[name], after[name]) for name in before if name in after and before[name] != after[name]} == {}


def with_former_names(values: Any) -> Any:
    """Return values with the names of the chart before the renaming."""
    if isinstance(values, Mapping):
        return {FORMER_NAMES.get(name, name): with_former_names(value) for name, value in values.items()}
    return [with_former_names(value) for value in values] if isinstance(values, list) else values


@pytest.mark.parametrize("previous", PREVIOUS, ids=lambda path: path.stem)
def test_the_values_of_an_earlier_chart_are_accepted_or_refused_with_their_present_names(previous: Path) -> None:
    values = yaml.safe_load(helm("show", "values", str(previous)).stdout)
    with pytest.raises(ValueError) as error:
        render({**values, "trial": True})
    for present, former in (("runnerApi", "drivers"), ("runners", "couriers"), ("workers", "cores")):
        assert f"/{former}': value must be 'is called {present} now'" in str(error.value)
    values["runnerApi"] = values.pop("drivers")
    values["network"]["runners"] = values["network"].pop("couriers")
    cluster = values["executors"]["cluster"]
    cluster["workers"] = cluster.pop("cores")
    assert render({**values, "trial": True})
