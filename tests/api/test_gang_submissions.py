"""Submissions of gangs: launched on executors that support gangs, otherwise refused with the reason."""

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.admission import FreeCapacity
from core.domain.scheduling.executor_config import ExecutorConfig, GangSupport
from core.domain.scheduling.launches import Gang
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.services.scheduling.dispatch import Dispatch
from core.settings import Settings
from datasets.objectstore import open_store
from server import composition as root
from tests.api.answers import MODEL
from tests.archives import zipped
from tests.databases import sqlite_database
from tests.dispatching import last_submitted

CLUSTER = ExecutorConfig(name="cluster", kind="kubernetes", workers=4, gangs=GangSupport(unattended=True))
LAPTOP = ExecutorConfig(name="laptop", kind="local", workers=64)
BENCH = ExecutorConfig(name="bench", kind="local", workers=2, gangs=GangSupport(crowds=True))


@pytest.fixture
def platform(settings: Settings) -> Iterator[Platform]:
    """A platform with two executors, one of which supports gangs."""
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    yield build(
        database,
        open_store(settings.objects),
        LocalNotifier(),
        PlatformOptions(
            home=settings.home,
            executor_configs=[LAPTOP, CLUSTER],
            sandbox={"level": 3},
            own_environments=["cluster"],
        ),
    )
    database.close()


@pytest.fixture
def client(platform: Platform, settings: Settings) -> FlaskClient:
    platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
    return root.create_flask(platform, settings, {"level": 3, "missing": []}).test_client()


def submit_gang(client: FlaskClient, **changes: Any) -> Any:
    gang = {"size": 2, "command": ["python", "model.py"], "communication": "torch"}
    document = {"dataset": "program", "model": "mine", "scenarios": {"range": [0, 3]}, "gang": gang}
    return client.post("/v1/simulations", json=document | changes)


def test_a_gang_is_launched_only_on_executors_that_support_gangs(client: FlaskClient, platform: Platform) -> None:
    response = submit_gang(client, params={"steps": 5, "mesh": "fine"}, sweep={"dt": [0.1, 0.2]})
    assert response.status_code == 201, response.json
    assert (response.json["tasks"]["total"], response.json["workers"]) == (6, 2)
    dispatch = Dispatch(
        platform.database,
        platform.notifier,
        executor_configs=[LAPTOP, CLUSTER],
        runner_api_url="http://x",
    )
    idle = [FreeCapacity(LAPTOP, LAPTOP.workers), FreeCapacity(CLUSTER, CLUSTER.workers)]
    assert {executor for _, executor in dispatch.snapshot().queue.admit(idle, time.time())} == {"cluster"}
    assert dispatch.admit(last_submitted(dispatch), "cluster")
    launch = dispatch.launch(last_submitted(dispatch))
    assert launch is not None and launch.workers == 2
    assert launch.gang == Gang(size=2, command=("python", "model.py"), communication="torch")


def test_the_program_of_a_gang_may_be_a_file_of_no_format_of_models(client: FlaskClient) -> None:
    def form(**changes: str) -> Any:
        file = (io.BytesIO(b"#!/bin/sh\nexit 0\n"), "heat")
        gang = json.dumps({"size": 2, "command": ["./model"]})
        data = {"model": file, "dataset": "program", "scenarios": "0-2", "gang": gang, **changes}
        return client.post("/v1/simulations", data=data, content_type="multipart/form-data")

    sent = form()
    assert sent.status_code == 201 and sent.json["model"]["format"] == "gang_program", sent.json
    refused = form(dataset="noop", gang="null")
    assert refused.status_code == 422 and "gang_program" in refused.json["detail"]


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"gang": None}, "is for gangs"),
        ({"dataset": "noop"}, "is not a dataset for gangs"),
        ({"workers": 2}, "neither a dry run nor"),
        ({"dry_run": True}, "neither a dry run nor"),
        (
            {"gang": {"size": 3, "slices": 2, "command": ["x"]}},
            "No executor has capacity for a gang of 6 replicas; the maximum is 4",
        ),
        (
            {"gang": {"size": 2, "slices": 2, "communication": "mpi", "command": ["x"]}},
            "`gang.slices` are for `none` and `tpu`; with `mpi`, use a larger `size`.",
        ),
        (
            {"gang": {"size": 2, "slots": 2, "communication": "jax", "command": ["x"]}},
            "`gang.slots` are for `none` and `mpi` and `torch` and `packaged`; with `jax`, use a larger `size`.",
        ),
        ({"placement": {"executor": "laptop"}}, "No executor here starts such a gang"),
        ({"params": {"mesh": [1, 2]}}, "takes a number, a truth value or a text"),
        ({"params": {"n": 10**400}}, "The parameter 'n' takes a number that a float has room for"),
        ({"sweep": {"n": [1, -(10**400)]}}, "The parameter 'n' takes a number that a float has room for"),
    ],
)
def test_a_submission_that_a_gang_cannot_run_is_refused_with_the_reason(
    client: FlaskClient, changes: dict[str, Any], fragment: str
) -> None:
    refused = submit_gang(client, **changes)
    assert refused.status_code == 422 and fragment in refused.json["detail"], refused.json


@pytest.mark.parametrize(
    "gang",
    [
        {"size": 2},
        {"size": 0, "command": ["x"]},
        {"size": 2, "command": []},
        {"size": 2, "command": ["x"], "colour": 1},
    ],
)
def test_an_invalid_gang_is_refused(client: FlaskClient, gang: dict[str, Any]) -> None:
    assert submit_gang(client, gang=gang).status_code == 422


@pytest.mark.parametrize("member", ["command", "build"])
@pytest.mark.parametrize("words", [[""], ["", "x"]])
def test_a_command_that_names_no_program_is_refused(client: FlaskClient, member: str, words: list[str]) -> None:
    refused = submit_gang(client, gang={"size": 2, "command": ["x"]} | {member: words})
    assert refused.status_code == 422, refused.json
    assert f"`gang.{member}` begins with an empty word" in refused.json["detail"], refused.json


def test_the_size_of_a_gang_cannot_be_changed(client: FlaskClient) -> None:
    id = submit_gang(client).json["id"]
    refused = client.patch(f"/v1/simulations/{id}", json={"workers": 3})
    assert (refused.status_code, refused.json["type"]) == (409, "/problems/unsupported")


@pytest.mark.parametrize("member", [{"image": "registry.example/solver:1"}, {"operator": "trainer"}])
def test_a_gang_without_a_runner_is_refused_where_no_executor_could_start_it(
    settings: Settings, member: dict[str, str]
) -> None:
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    bench = ExecutorConfig(name="bench", kind="local", workers=2, gangs=GangSupport(crowds=True, packaged=True))
    options = PlatformOptions(home=settings.home, executor_configs=[bench], sandbox={"level": 3})
    platform = build(database, open_store(settings.objects), LocalNotifier(), options)
    platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
    client = root.create_flask(platform, settings, {"level": 3, "missing": []}).test_client()
    refused = submit_gang(client, gang={"size": 1, "command": ["x"]} | member, scenarios={"range": [0, 1]})
    assert refused.status_code == 422 and "an `operator` needs Kubernetes" in refused.json["detail"], refused.json
    larger = submit_gang(client, gang={"size": 3, "command": ["x"]})
    assert larger.status_code == 201, larger.json  # its replicas share processors
    database.close()


@pytest.fixture
def bench_client(settings: Settings) -> Iterator[FlaskClient]:
    """A client of a platform with an executor that runs gangs on one machine."""
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    bench = ExecutorConfig(name="bench", kind="local", workers=2, gangs=GangSupport(crowds=True, packaged=True))
    options = PlatformOptions(home=settings.home, executor_configs=[bench], sandbox={"level": 3})
    platform = build(database, open_store(settings.objects), LocalNotifier(), options)
    yield root.create_flask(platform, settings, {"level": 3, "missing": []}).test_client()
    database.close()


def test_a_packaged_dataset_needs_neither_a_model_nor_a_gang(bench_client: FlaskClient) -> None:
    sweep = {"temperature": [1, 2, 3]}
    response = bench_client.post("/v1/simulations", json={"dataset": "lammps_melt", "sweep": sweep})
    assert response.status_code == 201, response.json
    assert (response.json["tasks"]["total"], response.json["runtime"]["name"]) == (3, "package")
    assert response.json["spec"]["gang"]["size"] == 2
    assert response.json["spec"]["gang"]["communication"] == "packaged"


def test_members_of_a_gang_count_before_those_of_its_case(bench_client: FlaskClient) -> None:
    document = {"dataset": "lammps_melt", "gang": {"size": 4}}
    gang = bench_client.post("/v1/simulations", json=document).json["spec"]["gang"]
    assert (gang["size"], gang["command"][0]) == (4, "lmp")


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        ('{"packages": ["lammps"], "command": []}', "command"),
        ('{"packages": ["LAMMPS"], "command": ["lmp"]}', "each is a Debian package"),
        (None, "no package.json at its top"),
    ],
)
def test_a_case_that_cannot_be_read_is_refused_with_the_member(
    bench_client: FlaskClient, manifest: str | None, reason: str
) -> None:
    files = {"in.melt": b"run 0"} | ({"package.json": manifest.encode()} if manifest else {})
    form = {"dataset": "program", "runtime": "package", "model": (io.BytesIO(zipped(files)), "case.zip")}
    response = bench_client.post("/v1/simulations", data=form)
    assert response.status_code == 422
    assert reason in response.json["detail"]


def test_the_launcher_of_packages_is_for_cases_alone(bench_client: FlaskClient) -> None:
    gang = {"size": 1, "command": ["x"], "communication": "packaged"}
    form = {"dataset": "program", "gang": json.dumps(gang), "model": (io.BytesIO(MODEL), "model.py")}
    response = bench_client.post("/v1/simulations", data=form)
    assert (response.status_code, "for a packaged case alone" in response.json["detail"]) == (422, True)


def test_a_packaged_case_is_refused_where_no_executor_runs_it(client: FlaskClient) -> None:
    response = client.post("/v1/simulations", json={"dataset": "cantilever"})
    assert response.status_code == 422
    assert "`cluster`: a packaged simulator runs on executors of the kinds `local`" in response.json["detail"]


def test_a_dataset_that_brings_its_program_needs_no_model(client: FlaskClient) -> None:
    def submit(**fields: Any) -> Any:
        return client.post("/v1/simulations", json={"dataset": "heat"} | fields)

    sent = submit(sweep={"grid": [16, 32]}, placement={"executor": "cluster"})
    assert sent.status_code == 201, sent.json
    for refused, fragment in (
        (submit(model="mine"), "heat runs a program of its own: leave the model out. `program` runs yours."),
        (submit(gang={"size": 4, "command": ["x"]}), "`gang.command` of heat is the dataset's: only `size`"),
    ):
        assert refused.status_code == 422 and fragment in refused.json["detail"], refused.json


def test_the_program_of_a_dataset_is_run_again_by_a_retry(bench_client: FlaskClient) -> None:
    client = bench_client
    sent = client.post("/v1/simulations", json={"dataset": "heat", "gang": {"size": 4}}).json
    refused = client.post("/v1/simulations", json={"dataset": "heat", "sweep": {"grid": [4]}}).json
    assert "The parameter 'grid' lies in 8..512" in refused["detail"], refused
    assert sent["model"]["name"] == "heat_stencil" and sent["spec"]["gang"]["communication"] == "mpi", sent
    assert client.post(f"/v1/simulations/{sent['id']}/cancel").status_code in {200, 202}
    again = client.post(f"/v1/simulations/{sent['id']}/retry")
    assert again.status_code == 201 and again.json["spec"]["gang"] == sent["spec"]["gang"], again.json
    assert (again.json["spec"]["gang"]["size"], again.json["model"]) == (4, sent["model"])


@pytest.mark.parametrize("declared", [False, True])
def test_a_training_has_the_packages_of_its_framework_unless_it_declares_its_own(
    bench_client: FlaskClient, declared: bool
) -> None:
    program = b"# /// script\n# dependencies = ['jax']\n# ///\n" if declared else b""
    gang = {"size": 2, "communication": "jax", "command": ["python", "model.py"]}
    form = {
        "dataset": "program",
        "scenarios": "0",
        "gang": json.dumps(gang),
        "model": (io.BytesIO(program + MODEL), "model.py"),
    }
    response = bench_client.post("/v1/simulations", data=form)
    assert response.status_code == 201, response.json
    found = bench_client.get(f"/v1/simulations/{response.json['id']}").json["provenance"].get("communication")
    assert (found is None) == declared and (declared or found["name"] == "jax")
