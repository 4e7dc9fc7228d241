"""Manifests of launches: equal to golden files and valid by the schemas of Kubernetes and its operators."""

import copy
import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from common.errors import PlatformError
from core.domain.scheduling.launches import Placement
from tests.unit.crds import violations
from tests.unit.launch_samples import ALL, BARE, EVERYTHING, OPTIONS, SAMPLES, gang, launch
from workers.executors.kubernetes import manifests
from workers.executors.kubernetes.manifests import ServedApis

GOLDEN = Path(__file__).parents[1] / "golden" / "kubernetes"


class DumperWithoutAliases(yaml.SafeDumper):
    """YAML dumper without anchors and aliases, so that each part of a file is readable by itself."""

    def ignore_aliases(self, data):
        return True


def objects_of(name: str):
    sample, served_apis = SAMPLES[name]
    return manifests.launch_objects(sample, OPTIONS, served_apis)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_objects_of_a_launch_equal_the_golden_files(name):
    """To accept a change, delete the golden file, run this test twice and review the diff."""
    path = GOLDEN / f"{name}.yaml"
    text = yaml.dump_all(objects_of(name), Dumper=DumperWithoutAliases, sort_keys=False, width=120)
    if not path.exists():
        path.write_text(text)
        pytest.fail(f"{path.name} was missing and has been written: read it, then run this test again")
    assert path.read_text() == text


def test_every_golden_file_belongs_to_a_sample_launch():
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_version_of_the_schemas_accepts_the_objects_without_unknown_fields(name):
    for item in objects_of(name):
        assert violations(item) == []


@pytest.mark.parametrize("name", ["independent", "independent-without-jobset", "gang-trainer", "gang-mpi-operator"])
def test_an_unknown_field_is_detected(name):
    for item in objects_of(name):
        broken = copy.deepcopy(item)
        broken.get("spec", broken)["bogus"] = 1
        assert any("bogus" in violation for violation in violations(broken))


def test_a_misspelt_field_deep_in_a_pod_is_detected():
    owner = copy.deepcopy(objects_of("independent")[0])
    pod = owner["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True
    assert len(violations(owner)) == 2  # one for each version of the schema


@pytest.mark.parametrize("name", SAMPLES)
def test_the_token_is_only_in_the_secret_of_the_runner(name):
    sample, _ = SAMPLES[name]
    owner, _, *other_objects = objects_of(name)
    assert sample.token not in json.dumps([owner, *other_objects])
    for pod in pods(owner):
        for container in pod["spec"]["containers"]:
            token_mounts = [mount["name"] for mount in container.get("volumeMounts", []) if mount["name"] == "token"]
            assert bool(token_mounts) == (container["name"] == "runner")


@pytest.mark.parametrize("name", SAMPLES)
def test_every_object_has_the_labels_of_its_installation_launch_and_project(name):
    for item in objects_of(name):
        labels = item["metadata"]["labels"]
        assert labels["windtunnel/installation"] == "acme" and labels["windtunnel/launch"] == "s1x1x1"
        assert labels["windtunnel/project"] == "street" and labels["windtunnel/attempt"] == "1"
        assert item["metadata"]["namespace"] == "windtunnel-street" and item["metadata"]["name"].startswith("wt-s1x1x1")


def pods(document):
    """Yield all pod templates of an object."""
    if isinstance(document, dict):
        if "containers" in document.get("spec", {}):
            yield document
        for value in document.values():
            yield from pods(value)
    elif isinstance(document, list):
        for value in document:
            yield from pods(value)


@pytest.mark.parametrize("name", [name for name in SAMPLES if "operator" not in name and "trainer" not in name])
def test_pods_meet_the_restricted_pod_security_standard(name):
    templates = list(pods(objects_of(name)[0]))
    assert templates
    for pod in templates:
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] and spec["restartPolicy"] == "Never"
        for container in spec["containers"]:
            context = container["securityContext"]
            assert (
                context["runAsNonRoot"]
                and context["readOnlyRootFilesystem"]
                and not context["allowPrivilegeEscalation"]
            )
            assert (
                context["capabilities"] == {"drop": ["ALL"]} and context["seccompProfile"]["type"] == "RuntimeDefault"
            )
            assert container["resources"]["requests"].keys() >= {"cpu", "memory"}
        users = [container["securityContext"]["runAsUser"] for container in spec["containers"]]
        assert len(set(users)) == len(users)


def test_only_model_servers_have_devices_and_claims():
    [pod] = pods(objects_of("independent-everything")[0])
    limits = {container["name"]: container["resources"]["limits"].keys() for container in pod["spec"]["containers"]}
    assert "nvidia.com/gpu" in limits["model-server"]
    assert limits["runner"] == limits["evaluator"] == {"memory"}
    claims = [container["name"] for container in pod["spec"]["containers"] if "claims" in container["resources"]]
    assert claims == ["model-server"]


def test_only_the_runner_writes_to_shared_volumes_and_sees_the_token():
    [pod] = pods(objects_of("independent")[0])
    for container in pod["spec"]["containers"]:
        shared = {
            mount["name"]: mount.get("readOnly", False)
            for mount in container["volumeMounts"]
            if "tmp" not in mount["name"]
        }
        if container["name"] == "runner":
            assert shared == {"sockets": False, "files": False, "token": True}
        else:
            assert shared == {"sockets": True, "files": True}


@pytest.mark.parametrize(("workers", "workers_per_pod", "count"), [(1, 1, 1), (8, 4, 2), (9, 4, 3), (12736, 1, 12736)])
def test_a_launch_has_as_many_pods_as_its_workers_need(workers, workers_per_pod, count):
    owner = manifests.launch_objects(
        launch(workers=workers), dataclasses.replace(OPTIONS, workers_per_pod=workers_per_pod), ALL
    )[0]
    spec = owner["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert spec["parallelism"] == spec["completions"] == count


def test_the_operators_node_selector_and_shares_take_precedence_over_the_placements():
    placement = Placement(
        node_selector={"pool": "control-plane", "zone": "a"},
        resources={"memory": "1", "cpu": "64", "example.com/gpu": "1"},
    )
    options = dataclasses.replace(OPTIONS, node_selector={"pool": "simulations"})
    trainer = {"operator": "trainer", "runtime_ref": "torch-distributed"}
    for sample in (launch(placement=placement), gang(2, placement=placement), gang(2, placement=placement, **trainer)):
        owner, *_ = manifests.launch_objects(sample, options, ALL)
        selectors = list(values_of(owner, "nodeSelector"))
        assert selectors and {"pool": "simulations", "zone": "a"} in selectors
        assert {selector["pool"] for selector in selectors} == {"simulations"}
        for resources in values_of(owner, "resources"):
            assert int(resources["requests"].get("cpu", "100m").removesuffix("m")) < 2000
            assert resources["requests"]["memory"] == resources["limits"]["memory"] != "1"


def values_of(document, key):
    """Yield the values of a key at any depth."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key:
                yield value
            yield from values_of(value, key)
    elif isinstance(document, list):
        for value in document:
            yield from values_of(value, key)


def test_a_queued_launch_is_created_suspended_with_the_label_of_its_queue():
    for sample in (launch(placement=EVERYTHING), gang(placement=EVERYTHING)):
        owner = manifests.launch_objects(sample, OPTIONS, ALL)[0]
        assert owner["spec"]["suspend"] is True
        assert owner["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "simulations"


def test_the_queues_in_the_documentation_are_valid_for_kueue():
    text = (Path(__file__).parents[2] / "docs" / "gangs.md").read_text()
    documents = [
        document for block in text.split("```yaml\n")[1:] for document in yaml.safe_load_all(block.split("```")[0])
    ]
    assert {document["kind"] for document in documents} == {"ResourceFlavor", "ClusterQueue", "LocalQueue"}
    assert [violation for document in documents for violation in violations(document)] == []


def test_the_leader_starts_when_all_replicas_are_ready_and_its_success_is_the_success_of_the_gang():
    spec = objects_of("gang-torch")[0]["spec"]
    workers, leader = spec["replicatedJobs"]
    assert leader["dependsOn"] == [{"name": workers["name"], "status": "Ready"}]
    assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": [leader["name"]]}
    assert spec["failurePolicy"]["maxRestarts"] == 3


def test_each_slice_has_its_own_topology_domain_and_the_leader_has_none():
    sample = gang(4, "tpu", slices=3, placement=EVERYTHING)
    workers, leader = manifests.launch_objects(sample, OPTIONS, ALL)[0]["spec"]["replicatedJobs"]
    key = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    assert workers["template"]["metadata"]["annotations"][key] == "topology.kubernetes.io/zone"
    assert workers["replicas"] == 3 and "metadata" not in leader["template"]


@pytest.mark.parametrize(
    ("sample", "served_apis", "message"),
    [
        (gang(), BARE, "JobSets"),
        (gang(operator="trainer", runtime_ref="t"), ServedApis(), "trainer"),
        (gang(operator="trainer"), ALL, "runtime_ref"),
        (gang(operator="mpi-operator", image="i"), ServedApis(), "mpi-operator"),
        (gang(operator="mpi-operator"), ALL, "image"),
        (gang(operator="mpi-operator", image="i", implementation="lam"), ALL, "lam"),
        (gang(operator="volcano"), ALL, "volcano"),
        (gang(communication="carrier-pigeon"), ALL, "carrier-pigeon"),
        (gang(communication="torch", slices=2), ALL, "use a larger"),
        (gang(size=0), ALL, "at least one"),
        (launch(placement=EVERYTHING), ServedApis(kueue=True), "device claims"),
        (launch(placement=EVERYTHING), ServedApis(dra="v1"), "Kueue"),
    ],
)
def test_a_launch_that_a_cluster_can_never_run_is_refused_with_the_reason(sample, served_apis, message):
    with pytest.raises(PlatformError, match=message):
        manifests.launch_objects(sample, OPTIONS, served_apis)
