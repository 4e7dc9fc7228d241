"""Outputs of simulations: files of a program become models and datasets at the end, once, and failures are said."""

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from common.errors import StoreUnavailable
from core.domain.access.scopes import LOCAL_CALLER
from core.services.platform import Platform
from core.settings import Settings
from server import composition as root
from tests.api.answers import MODEL, problem
from tests.api.programs import OTHER, Programs, bench_platform, digest_of
from tests.databases import sqlite_database


@pytest.fixture
def platform(settings: Settings) -> Iterator[Platform]:
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    yield bench_platform(settings.home, database)
    database.close()


@pytest.fixture
def programs(platform: Platform, settings: Settings) -> Programs:
    platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
    return Programs(root.create_flask(platform, settings, {"level": 3, "missing": []}).test_client(), platform)


POLICY = {"model": {"file": "out/policy.py", "as": "model", "name": "trained", "tags": ["newest"]}}


def test_a_file_becomes_a_model_with_its_provenance(programs: Programs) -> None:
    simulation = programs.run(POLICY, [{"out/policy.py": OTHER, "notes.txt": b"other"}])
    made = simulation["outputs"]["model"]
    assert simulation["state"] == "succeeded" and simulation["reason"] is None
    assert (made["as"], made["task"], made["digest"], made["error"]) == ("model", 0, digest_of(OTHER), None)
    model = programs.client.get(f"/v1/models/{made['reference']}").json
    assert (model["id"], model["name"], model["format"], model["tags"]) == (made["id"], "trained", "python", ["newest"])
    assert model["source"] == {"simulation": simulation["id"], "task": 0, "file": "out/policy.py"}
    assert programs.client.get("/v1/models/trained/content").data == OTHER


def test_equal_files_of_several_tasks_are_one_model(programs: Programs) -> None:
    simulation = programs.run(POLICY, [{}, {"out/policy.py": OTHER}, {"out/policy.py": OTHER}])
    assert simulation["outputs"]["model"]["task"] == 1
    assert len(programs.client.get("/v1/models?name=trained").json["items"]) == 1


@pytest.mark.parametrize(
    ("left", "failed", "fragment"),
    [
        ([{}], [], "has left a file 'out/policy.py'"),
        ([{"out/policy.py": OTHER}, {"other": b"1"}], [0], "No task that is ok has left"),
        ([{"out/policy.py": OTHER}, {"out/policy.py": MODEL}], [], "left different files"),
        ([{"out/policy.py": b"#" * ((1 << 20) + 1)}], [], "at most 1,048,576 bytes"),
        ([{"out/policy.py": b""}], [], "empty"),
    ],
)
def test_a_file_that_cannot_become_a_model_is_said_and_nothing_is_lost(
    programs: Programs, left: list[dict[str, bytes]], failed: list[int], fragment: str
) -> None:
    simulation = programs.run(POLICY, left, failed=failed)
    assert simulation["state"] == "succeeded" and fragment in simulation["outputs"]["model"]["error"]
    assert simulation["reason"].startswith("not every output was made: model: ")
    listed = programs.client.get(f"/v1/simulations/{simulation['id']}/artifacts").json["items"]
    assert [item["name"] for item in listed] == [name for files in left for name in files]
    assert programs.client.get("/v1/models?name=trained").json["items"] == []


def test_finalization_that_is_interrupted_makes_one_model(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    id = programs.submit(POLICY).json["id"]
    programs.play(id, [{"out/policy.py": OTHER}])

    def interrupted(*_: Any, **__: Any) -> None:
        raise StoreUnavailable

    with monkeypatch.context() as patched, pytest.raises(StoreUnavailable):
        patched.setattr("core.store.simulations.move", interrupted)
        programs.platform.jobs.finalization.collect(id)
    assert len(programs.client.get("/v1/models?name=trained").json["items"]) == 1
    assert programs.collect(id)["outputs"]["model"]["error"] is None
    assert len(programs.client.get("/v1/models?name=trained").json["items"]) == 1


def packed(**files: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name.replace("__", ".")), text)
    return content.getvalue()


DATASET = {"worlds": {"file": "worlds.zip", "as": "dataset"}}


def test_an_archive_becomes_a_dataset_and_the_simulation_ends_once_it_is_ready(programs: Programs) -> None:
    description = {"title": "Two", "description": "Two streets.", "extends": "noop", "scenarios": "tasks.jsonl"}
    archive = packed(dataset__json=json.dumps(description), tasks__jsonl='{"index": 0}\n{"index": 1}\n')
    simulation = programs.run(DATASET, [{"worlds.zip": archive}])
    assert simulation["state"] == "running" and "registered as a dataset" in simulation["reason"]
    for _ in range(2):  # an attempt that was killed is repeated
        programs.collect(simulation["id"])
    registering = programs.client.get("/v1/datasets/worlds/versions").json["items"]
    assert len(registering) == 1
    with programs.platform.database.read() as c:
        id = c.exec_driver_sql("SELECT id FROM dataset_versions WHERE project='default'").scalar_one()
    programs.platform.jobs.dataset_registration.register(id)
    ended = programs.collect(simulation["id"])
    made = ended["outputs"]["worlds"]
    assert ended["state"] == "succeeded", ended["reason"]
    dataset = programs.client.get(f"/v1/datasets/{made['reference']}").json
    assert (made["id"], made["name"], dataset["digest"]) == (id, "worlds", made["reference"])
    assert dataset["state"] == "ready"


def test_an_archive_that_is_no_dataset_is_said(programs: Programs) -> None:
    simulation = programs.run(DATASET, [{"worlds.zip": b"not an archive"}])
    with programs.platform.database.read() as c:
        id = c.exec_driver_sql("SELECT id FROM dataset_versions WHERE project='default'").scalar_one()
    programs.platform.jobs.dataset_registration.register(id)
    ended = programs.collect(simulation["id"])
    assert ended["state"] == "succeeded"
    assert "cannot be registered" in ended["outputs"]["worlds"]["error"]


@pytest.mark.parametrize(
    ("outputs", "fragment"),
    [
        ({"model": {"file": "a", "as": "model", "name": "idm"}}, "ships with the platform"),
        ({"data": {"file": "a", "as": "dataset", "name": "car_street"}}, "built-in dataset"),
        ({"model": {"file": "a", "as": "model", "format": "onyx"}}, "no format 'onyx'"),
        ({"model": {"file": "../a", "as": "model"}}, "`outputs.model.file`: write the path in $WINDTUNNEL_OUTPUT"),
        ({"model": {"file": "a", "as": "model", "task": 99}}, "there is no task 99; there are"),
    ],
)
def test_an_output_that_can_never_be_made_is_refused_at_once(programs: Programs, outputs: Any, fragment: str) -> None:
    refused = programs.submit(outputs)
    assert refused.status_code == 422 and fragment in refused.json["detail"], refused.json


def test_only_programs_have_outputs(programs: Programs) -> None:
    document = {"dataset": "noop", "model": "mine", "outputs": POLICY}
    refused = problem(programs.client.post("/v1/simulations", json=document), 422, "invalid")
    assert "add a `gang`" in refused["detail"]
    wrong = programs.submit({"model": {"file": "a", "as": "weights"}})
    assert wrong.status_code == 422 and "outputs.model.as" in wrong.json["errors"][0], wrong.json


def test_all_results_become_a_dataset_that_a_program_reads(programs: Programs) -> None:
    declared = {"runs": {"as": "dataset", "name": "my-runs", "tags": ["newest"]}}
    submitted = programs.submit(declared, 3)
    id = submitted.json["id"]
    programs.play(id, [{"field.txt": b"a"}, {}, {"deep/field.txt": b"c"}], failed=[1])
    assert programs.collect(id)["state"] == "running"  # the dataset is being registered
    programs.platform.jobs.dataset_registration.register(
        programs.client.get("/v1/datasets/my-runs/versions").json["items"][0]["id"]
    )
    simulation = programs.collect(id)
    assert simulation["state"] == "succeeded", simulation
    made = simulation["outputs"]["runs"]
    assert (made["as"], made["file"], made["task"], made["error"]) == ("dataset", None, None, None)
    files = programs.client.get("/v1/datasets/my-runs@newest/files").json["items"]
    assert [file["path"] for file in files] == [
        "artifacts/0/field.txt",
        "artifacts/2/deep/field.txt",
        "results.ndjson",
    ]
    lines = programs.client.get("/v1/datasets/my-runs/files/results.ndjson").data
    assert lines == programs.client.get(f"/v1/simulations/{id}/results").data
    program = {"dataset": made["reference"], "model": "mine", "scenarios": {"range": [0, 1]}}
    refused = problem(programs.client.post("/v1/simulations", json=program), 422, "not-playable")
    assert "a program with a `gang` reads them" in refused["detail"]
    gang = {"size": 1, "command": ["python", "model.py"]}
    assert programs.client.post("/v1/simulations", json=program | {"gang": gang}).status_code == 201
    assert problem(programs.client.delete("/v1/datasets/my-runs"), 409, "in-use")
