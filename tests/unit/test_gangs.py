"""Environment of a gang's replicas, consistent for all of them, and names that a cluster accepts."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.launches import Placement
from tests.unit.launch_samples import ALL, OPTIONS, gang, launch
from workers.executors.kubernetes import gangs, manifests, names
from workers.executors.kubernetes.gangs import ReplicaPosition

DNS = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
sizes = st.integers(1, 40)


def places(about):
    """Return every replica of a gang, slice by slice."""
    asked = gangs.gang_of(about)
    return [ReplicaPosition(slice=str(s), index=str(i)) for s in range(asked.slices) for i in range(asked.size)]


def filled(value, place):
    """Return a value with its variable references expanded, as the kubelet does."""
    return value.replace("$(WINDTUNNEL_GANG_SLICE)", place.slice).replace("$(WINDTUNNEL_GANG_INDEX)", place.index)


@given(size=sizes, communication=st.sampled_from(sorted(gangs.TABLE)), slots=st.integers(1, 8))
def test_placeholders_are_filled_for_each_replica(size, communication, slots):
    about = gang(size, communication, slots=slots)
    written = gangs.environment(about, gangs.FROM_LABELS)
    for place in places(about):
        told = gangs.environment(about, place)
        assert {name: filled(value, place) for name, value in written.items()} == told
    names_then = [gangs.host(about, place) for place in places(about)]
    assert names_then == [gangs.host(about, place) for place in places(about)]
    assert len(set(names_then)) == size


@given(size=sizes)
def test_every_rank_of_torch_has_the_same_master_and_its_own_rank(size):
    about = gang(size, "torch")
    seen = [gangs.environment(about, place) for place in places(about)]
    assert {one["MASTER_ADDR"] for one in seen} == {one["PET_MASTER_ADDR"] for one in seen} == {gangs.hosts(about)[0]}
    assert sorted(int(one["RANK"]) for one in seen) == list(range(size))
    assert {one["WORLD_SIZE"] for one in seen} == {str(size)}
    assert all(one["NODE_RANK"] == one["PET_NODE_RANK"] for one in seen)


def test_ranks_of_several_processes_per_replica_are_left_to_the_launcher():
    told = gangs.environment(gang(2, "torch", slots=4), ReplicaPosition())
    assert told["PET_NPROC_PER_NODE"] == "4" and "RANK" not in told and "WORLD_SIZE" not in told


@given(size=sizes)
def test_every_worker_of_tensorflow_reads_the_same_cluster(size):
    about = gang(size, "tensorflow")
    seen = [json.loads(gangs.environment(about, place)["TF_CONFIG"]) for place in places(about)]
    assert all(one["cluster"] == seen[0]["cluster"] for one in seen)
    for place, one in zip(places(about), seen, strict=True):
        assert one["cluster"]["worker"][one["task"]["index"]] == f"{gangs.host(about, place)}:{gangs.TENSORFLOW}"


@given(size=sizes)
def test_every_process_of_jax_connects_to_the_first(size):
    about = gang(size, "jax")
    seen = [gangs.environment(about, place) for place in places(about)]
    assert {one["JAX_COORDINATOR_ADDRESS"] for one in seen} == {f"{gangs.hosts(about)[0]}:{gangs.RENDEZVOUS}"}
    assert sorted(int(one["JAX_PROCESS_ID"]) for one in seen) == list(range(size))
    assert {one["JAX_NUM_PROCESSES"] for one in seen} == {str(size)}


@given(size=sizes, slices=st.integers(1, 20))
def test_a_replica_knows_its_own_slice_by_name_and_the_others_by_number(size, slices):
    about = gang(size, "tpu", slices=slices)
    for place in places(about):
        told = gangs.environment(about, place)
        assert told["TPU_WORKER_HOSTNAMES"].split(",")[int(told["TPU_WORKER_ID"])] == gangs.host(about, place)
        assert ("MEGASCALE_SLICE_ID" in told) == (slices > 1)
        if slices > 1:
            assert told["MEGASCALE_SLICE_ID"] == place.slice and told["MEGASCALE_NUM_SLICES"] == str(slices)
            assert told["MEGASCALE_COORDINATOR_ADDRESS"] == gangs.host(about, ReplicaPosition())


@given(size=sizes, slots=st.integers(1, 8))
def test_mpiexec_waits_for_one_proxy_per_replica(size, slots):
    about = gang(size, "mpi", slots=slots)
    command = gangs.mpiexec(about)
    hosts = command[command.index("-hosts") + 1].split(",")
    assert hosts == [gangs.host(about, place) for place in places(about)]
    assert command[command.index("-n") + 1] == str(size * slots) and command[-2:] == ("python", "program.py")
    for place in places(about):
        proxy = gangs.proxy(about, place)
        assert proxy[proxy.index("--control-port") + 1] == f"{gangs.leader(about)}:{gangs.MPI}"
        assert int(proxy[-1]) == int(place.index)


def test_ranks_of_mpi_use_a_fabric_only_when_one_is_configured():
    assert gangs.environment(gang(2, "mpi"), ReplicaPosition())["UCX_TLS"] == "tcp,self"
    fabric = gang(2, "mpi", placement=Placement(resources={"rdma/hca": "1"}))
    assert gangs.environment(fabric, ReplicaPosition())["UCX_TLS"] == "rc,tcp,self"


@given(st.text(max_size=80))
def test_every_launch_name_leaves_room_for_suffixes(id):
    name = names.owner(id)
    assert DNS.fullmatch(name) and len(name) <= names.LONGEST
    assert DNS.fullmatch(f"{name}-w-9999-99999-abcde")


@given(st.text(max_size=80))
def test_the_name_of_a_gangs_leader_fits_into_the_label_of_jobset(id):
    assert len(f"{names.owner(id)}-{gangs.LEADER}-0-0.{names.network(id)}") <= 63


@given(st.text(max_size=300))
def test_every_text_becomes_a_valid_label_value(value):
    assert VALUE.fullmatch(names.label(value)) and len(names.label(value)) <= 63


@given(st.text(max_size=80), st.sampled_from(["windtunnel-{project}", "{project}", "x-{project}-of-" + "y" * 30]))
def test_every_project_has_a_valid_namespace(project, template):
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", names.namespace(template, project))


@given(st.text(max_size=70), st.text(max_size=70))
def test_different_inputs_have_different_names(one, other):
    for name in (names.owner, names.label, names.device):
        assert (name(one) == name(other)) == (one == other)
    assert (names.namespace("wt-{project}", one) == names.namespace("wt-{project}", other)) == (one == other)


@pytest.mark.parametrize("value", ["Straße 1", "straße 1", "a" * 64, "-a", "a-0123456789"])
def test_a_generated_name_cannot_be_chosen_by_a_user(value):
    """A name in the form of a generated name is generated again, so that no user can take another's name."""
    made = names.label(value)
    assert names.label(made) != made


def test_a_valid_name_is_unchanged():
    assert names.owner("s1x1x1") == "wt-s1x1x1" and names.label("car_street@1") != "car_street@1"
    assert (
        names.label("car_street") == "car_street" and names.namespace("windtunnel-{project}", "a-b") == "windtunnel-a-b"
    )


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_a_launch_of_any_project_and_id_becomes_objects(project, simulation):
    for one in manifests.launch_objects(launch(project=project, simulation_id=simulation, id=simulation), OPTIONS, ALL):
        assert DNS.fullmatch(one["metadata"]["name"])
        assert all(VALUE.fullmatch(value) for value in one["metadata"]["labels"].values())
