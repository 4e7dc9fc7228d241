"""Gangs of frameworks on one machine: the variables by which their processes meet, their packages, their threads."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.scheduling.launches import Gang, Launch
from runtimes import catalogue
from runtimes.harness.gang.gang_task import LocalGangSpec, tasks_of
from tests.unit.launch_samples import launch
from workers.executors.kubernetes.gang_pods import members_of
from workers.local_gangs import ProgramFiles, gang_packages, gang_spec_of_node, local_gang_spec
from workers.warm_runners import PreparedFolders

FRAMEWORKS = ("torch", "tensorflow", "jax")
sizes = st.integers(1, 12)


def training(size: int, communication: str) -> Launch:
    """A launch whose program is started in so many processes."""
    command = ("python", "model.py")
    gang = Gang(size=size, communication=communication, command=command)
    return launch(gang=gang, format="python", runtime="python")


def installed(folder: Path, environment: str) -> Path:
    """Make the folder of an environment of model servers, without packages; return that."""
    site = folder / "environments" / catalogue.model_server(environment).digest / "site"
    site.mkdir(parents=True)
    return site


def local_gang(size: int, communication: str) -> LocalGangSpec:
    """Return the gang as it is started on this machine."""
    with TemporaryDirectory() as name:
        for environment in ("python", "tensorflow", "jax"):
            installed(Path(name), environment)
        prepared = PreparedFolders.below(Path(name))
        spec = local_gang_spec(training(size, communication), prepared, 3, Path(name, "model"))
    assert spec is not None
    return spec


def variables(size: int, communication: str) -> list[Mapping[str, str]]:
    return [program.environ for program in local_gang(size, communication).programs]


def addresses(environ: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the hosts and ports at which a process meets the others."""
    if "TF_CONFIG" in environ:
        named = json.loads(environ["TF_CONFIG"])["cluster"]["worker"]
    elif "MASTER_ADDR" in environ:
        named = [f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"]
    else:
        named = [environ["JAX_COORDINATOR_ADDRESS"]]
    return [(host, int(port)) for host, _, port in (address.rpartition(":") for address in named)]


@given(size=sizes, communication=st.sampled_from(FRAMEWORKS))
def test_every_address_that_a_process_is_told_is_a_host_of_its_sandbox(size: int, communication: str) -> None:
    gang = local_gang(size, communication)
    assert gang.ranks == len(gang.programs) == size
    for program in gang.programs:
        assert program.environ["WINDTUNNEL_GANG_HOST"] in gang.hosts
        assert {host for host, _ in addresses(program.environ)} <= set(gang.hosts)


@given(size=sizes)
def test_processes_of_torch_share_a_machine_and_each_has_its_rank(size: int) -> None:
    found = variables(size, "torch")
    assert [environ["RANK"] for environ in found] == [str(rank) for rank in range(size)]
    assert {environ["WORLD_SIZE"] for environ in found} == {str(size)}
    assert len({(environ["MASTER_ADDR"], environ["MASTER_PORT"]) for environ in found}) == 1


@given(size=sizes)
def test_workers_of_tensorflow_on_one_machine_have_a_port_each(size: int) -> None:
    found = [json.loads(environ["TF_CONFIG"]) for environ in variables(size, "tensorflow")]
    assert [config["task"] for config in found] == [{"type": "worker", "index": rank} for rank in range(size)]
    workers = found[0]["cluster"]["worker"]
    assert all(config["cluster"] == found[0]["cluster"] for config in found)
    assert len({worker.rpartition(":")[2] for worker in workers}) == size


@given(size=sizes)
def test_processes_of_jax_have_one_coordinator_and_a_number_each(size: int) -> None:
    found = variables(size, "jax")
    assert len({environ["JAX_COORDINATOR_ADDRESS"] for environ in found}) == 1
    assert [(environ["JAX_PROCESS_ID"], environ["JAX_NUM_PROCESSES"]) for environ in found] == [
        (str(rank), str(size)) for rank in range(size)
    ]


@given(size=sizes, communication=st.sampled_from(FRAMEWORKS), offset=st.integers(0, 1000))
def test_on_several_nodes_the_variables_are_the_same_but_for_the_ports(
    size: int, communication: str, offset: int
) -> None:
    given = training(size, communication)
    members = replace(members_of(given), ports=offset)
    for index, environ in enumerate(variables(size, communication)):
        [node] = gang_spec_of_node(given, members, ProgramFiles(), 3, index).programs
        assert addresses(node.environ) == [(host, port + offset) for host, port in addresses(environ)]
        own = ("RANK", "WORLD_SIZE", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "WINDTUNNEL_GANG_INDEX")
        assert [node.environ.get(name) for name in own] == [environ.get(name) for name in own]


@pytest.mark.parametrize("communication", sorted(catalogue.FRAMEWORKS))
def test_a_program_that_declares_nothing_has_the_packages_of_its_framework_and_no_others(
    communication: str, tmp_path: Path
) -> None:
    given, prepared = training(2, communication), tmp_path / "environments"
    installed(tmp_path, "python")
    assert gang_packages(given, prepared, None) is None, "they are not installed yet"
    assert gang_packages(given, prepared, tmp_path / "own") is not None, "it needs its own alone"
    site = installed(tmp_path, catalogue.FRAMEWORKS[communication])
    assert gang_packages(given, prepared, None) == [site]
    own = gang_packages(given, prepared, tmp_path / "own")
    assert own is not None and all((tmp_path / "own") in path.parents for path in own)


def test_a_program_of_torch_has_what_it_declares(tmp_path: Path) -> None:
    site = installed(tmp_path, "python")
    assert gang_packages(training(2, "torch"), tmp_path / "environments", None) == [site]
    assert "torch" not in catalogue.communications()


@given(ranks=sizes, processors=st.integers(1, 256))
def test_every_rank_may_have_the_threads_that_a_framework_starts_on_its_processors(ranks: int, processors: int) -> None:
    assert tasks_of(ranks, processors) >= ranks * (110 + 8 * processors)  # TensorFlow: 110 on two processors
    assert tasks_of(ranks + 1, processors) > tasks_of(ranks, processors)
    assert tasks_of(ranks, processors + 1) > tasks_of(ranks, processors)
