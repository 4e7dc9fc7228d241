"""Environment variables of a gang's replicas, and names that Kubernetes accepts."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.scheduling.communications import COMMUNICATIONS, mpi, tensorflow
from core.domain.scheduling.communications.members import FROM_LABELS, RENDEZVOUS, ReplicaPosition
from core.domain.scheduling.launches import Placement
from tests.unit.launch_samples import ALL, OPTIONS, gang, launch
from workers.executors.kubernetes import manifests, names
from workers.executors.kubernetes.gang_pods import members_of

DNS = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
sizes = st.integers(1, 40)


def replica_positions(launch):
    """Return every replica of a gang, slice by slice."""
    gang_options = members_of(launch).gang
    return [
        ReplicaPosition(slice=str(slice), index=str(index))
        for slice in range(gang_options.slices)
        for index in range(gang_options.size)
    ]


def expanded(value, position):
    """Return a value with its variable references expanded, as the kubelet does."""
    return value.replace("$(WINDTUNNEL_GANG_SLICE)", position.slice).replace("$(WINDTUNNEL_GANG_INDEX)", position.index)


@given(size=sizes, communication=st.sampled_from(list(COMMUNICATIONS)), slots=st.integers(1, 8))
def test_placeholders_are_filled_for_each_replica(size, communication, slots):
    gang_launch = gang(size, communication, slots=slots if COMMUNICATIONS[communication].slotted else 1)
    template = members_of(gang_launch).environment(FROM_LABELS)
    for position in replica_positions(gang_launch):
        environment = members_of(gang_launch).environment(position)
        assert {name: expanded(value, position) for name, value in template.items()} == environment
    hostnames = [members_of(gang_launch).host(position) for position in replica_positions(gang_launch)]
    assert tuple(hostnames) == tuple(members_of(gang_launch).hosts())
    assert len(set(hostnames)) == size


@given(size=sizes)
def test_every_rank_of_torch_has_the_same_master_and_its_own_rank(size):
    gang_launch = gang(size, "torch")
    environments = [members_of(gang_launch).environment(position) for position in replica_positions(gang_launch)]
    assert (
        {environment["MASTER_ADDR"] for environment in environments}
        == {environment["PET_MASTER_ADDR"] for environment in environments}
        == {members_of(gang_launch).hosts()[0]}
    )
    assert sorted(int(environment["RANK"]) for environment in environments) == list(range(size))
    assert {environment["WORLD_SIZE"] for environment in environments} == {str(size)}
    assert all(environment["NODE_RANK"] == environment["PET_NODE_RANK"] for environment in environments)


def test_torch_ranks_are_left_to_torchrun_if_a_replica_has_several_processes():
    environment = members_of(gang(2, "torch", slots=4)).environment(ReplicaPosition())
    assert environment["PET_NPROC_PER_NODE"] == "4" and "RANK" not in environment and "WORLD_SIZE" not in environment


@given(size=sizes)
def test_every_worker_of_tensorflow_reads_the_same_cluster(size):
    gang_launch = gang(size, "tensorflow")
    configs = [
        json.loads(members_of(gang_launch).environment(position)["TF_CONFIG"])
        for position in replica_positions(gang_launch)
    ]
    assert all(config["cluster"] == configs[0]["cluster"] for config in configs)
    for position, config in zip(replica_positions(gang_launch), configs, strict=True):
        assert (
            config["cluster"]["worker"][config["task"]["index"]]
            == f"{members_of(gang_launch).host(position)}:{tensorflow.PORT + int(position.index)}"
        )


@given(size=sizes)
def test_every_process_of_jax_connects_to_the_first_replica(size):
    gang_launch = gang(size, "jax")
    environments = [members_of(gang_launch).environment(position) for position in replica_positions(gang_launch)]
    assert {environment["JAX_COORDINATOR_ADDRESS"] for environment in environments} == {
        f"{members_of(gang_launch).hosts()[0]}:{RENDEZVOUS}"
    }
    assert sorted(int(environment["JAX_PROCESS_ID"]) for environment in environments) == list(range(size))
    assert {environment["JAX_NUM_PROCESSES"] for environment in environments} == {str(size)}


@given(size=sizes, slices=st.integers(1, 20))
def test_a_tpu_replica_has_the_hostnames_of_its_own_slice_and_the_number_of_slices(size, slices):
    gang_launch = gang(size, "tpu", slices=slices)
    for position in replica_positions(gang_launch):
        environment = members_of(gang_launch).environment(position)
        assert environment["TPU_WORKER_HOSTNAMES"].split(",")[int(environment["TPU_WORKER_ID"])] == members_of(
            gang_launch
        ).host(position)
        assert ("MEGASCALE_SLICE_ID" in environment) == (slices > 1)
        if slices > 1:
            assert environment["MEGASCALE_SLICE_ID"] == position.slice and environment["MEGASCALE_NUM_SLICES"] == str(
                slices
            )
            assert environment["MEGASCALE_COORDINATOR_ADDRESS"] == members_of(gang_launch).host(ReplicaPosition())


@given(size=sizes, slots=st.integers(1, 8))
def test_mpiexec_waits_for_a_proxy_of_each_replica(size, slots):
    gang_launch = gang(size, "mpi", slots=slots)
    command = mpi.COMMUNICATION.lead(members_of(gang_launch))
    hosts = command[command.index("-hosts") + 1].split(",")
    assert hosts == [members_of(gang_launch).host(position) for position in replica_positions(gang_launch)]
    assert command[command.index("-n") + 1] == str(size * slots)
    for position in replica_positions(gang_launch):
        proxy = mpi.COMMUNICATION.follow(members_of(gang_launch), position)
        assert proxy[proxy.index("--control-port") + 1] == f"{members_of(gang_launch).leader}:{mpi.PORT}"
        assert int(proxy[-1]) == int(position.index)


def test_ranks_of_mpi_use_a_fabric_only_if_it_is_configured():
    assert members_of(gang(2, "mpi")).environment(ReplicaPosition())["UCX_TLS"] == "tcp,self"
    fabric = gang(2, "mpi", placement=Placement(resources={"rdma/hca": "1"}))
    assert members_of(fabric).environment(ReplicaPosition())["UCX_TLS"] == "rc,tcp,self"


@given(st.text(max_size=80))
def test_every_launch_name_leaves_room_for_suffixes(id):
    name = names.owner(id)
    assert DNS.fullmatch(name) and len(name) <= names.LONGEST
    assert DNS.fullmatch(f"{name}-w-9999-99999-abcde")


@given(st.text(max_size=80))
def test_the_name_of_a_gangs_leader_fits_into_the_label_of_jobset(id):
    assert len(members_of(replace(gang(), id=id)).leader) <= 63


@given(st.text(max_size=300))
def test_every_text_becomes_a_valid_label_value(value):
    assert VALUE.fullmatch(names.label(value)) and len(names.label(value)) <= 63


@given(st.text(max_size=80), st.sampled_from(["windtunnel-{project}", "{project}", "x-{project}-of-" + "y" * 30]))
def test_every_project_has_a_valid_namespace(project, template):
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", names.namespace(template, project))


@given(st.text(max_size=70), st.text(max_size=70))
def test_different_inputs_have_different_names(first, second):
    for name in (names.owner, names.label, names.device):
        assert (name(first) == name(second)) == (first == second)
    assert (names.namespace("wt-{project}", first) == names.namespace("wt-{project}", second)) == (first == second)


@pytest.mark.parametrize("value", ["Straße 1", "straße 1", "a" * 64, "-a", "a-0123456789"])
def test_a_generated_name_cannot_be_chosen_by_a_user(value):
    """A name in the form of a generated name is generated again, so that no user can choose it for another user."""
    generated = names.label(value)
    assert names.label(generated) != generated


def test_a_valid_name_is_unchanged():
    assert names.owner("s1x1x1") == "wt-s1x1x1" and names.label("car_street@1") != "car_street@1"
    assert (
        names.label("car_street") == "car_street" and names.namespace("windtunnel-{project}", "a-b") == "windtunnel-a-b"
    )


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_a_launch_of_any_project_and_id_has_objects_with_valid_names(project, simulation):
    for document in manifests.launch_objects(
        launch(project=project, simulation_id=simulation, id=simulation), OPTIONS, ALL
    ):
        assert DNS.fullmatch(document["metadata"]["name"])
        assert all(VALUE.fullmatch(value) for value in document["metadata"]["labels"].values())
