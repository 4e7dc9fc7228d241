"""Shares by HTTP: what a project shares is read and simulated in another, is never changed there, and ends at once."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from common.errors import NotFound
from core.domain.access.scopes import Scope, work_of
from core.domain.submissions.provenance import dataset_of
from core.notifications.local_notifier import LocalNotifier
from core.services.datasets.scenario_specs import ScenarioSpecs
from core.services.platform import Platform
from core.store import datasets as dataset_store
from core.store import simulations as simulation_store
from tests.api.conftest import LeasingWorker
from tests.api.people import MODEL, People, own
from tests.archives import LINES, MINE, tar

FILES = {"dataset.json": json.dumps(MINE).encode(), "lines.ndjson": LINES}
TEXT = {"Content-Type": "text/x-python"}
OTHER = MODEL + b"# other\n"


def put(people: People, who: str, name: str, content: bytes = MODEL) -> Any:
    made = people.ask(who, "PUT", f"/v1/models/{name}", data=content, headers=TEXT)
    assert made.status_code == 201, made.text
    return made.json


def share(people: People, path: str, reader: str = "blue", owner: str = "red") -> None:
    answer = people.ask(f"{owner} maintainer", "PUT", f"/v1/{path}/shares/{reader}")
    assert answer.status_code == 204, answer.text


def unshare(people: People, path: str, reader: str = "blue", owner: str = "red") -> None:
    assert people.ask(f"{owner} maintainer", "DELETE", f"/v1/{path}/shares/{reader}").status_code == 204


def get(people: People, path: str, who: str = "blue viewer") -> Any:
    answer = people.ask(who, "GET", path)
    answer.get_data()
    answer.close()  # of a stream, for the next one
    return answer


@pytest.fixture
def register(people: People, platform: Platform) -> Callable[..., Any]:
    """Function that registers a dataset that extends car_street, and returns it."""

    def register_files(who: str, name: str, files: Any = FILES) -> Any:
        body = tar(files)
        tus = {"Tus-Resumable": "1.0.0", "Content-Type": "application/offset+octet-stream", "Upload-Offset": "0"}
        made = people.ask(
            who, "POST", "/v1/uploads", headers={"Tus-Resumable": "1.0.0", "Upload-Length": str(len(body))}
        )
        address = made.headers["Location"]
        assert people.ask(who, "PATCH", address, data=body, headers=tus).status_code == 204
        source = {"upload": address.rpartition("/")[2]}
        asked = people.ask(who, "POST", "/v1/datasets", json={"name": name, "source": source})
        assert asked.status_code == 202, asked.text
        notifier = platform.notifier
        assert isinstance(notifier, LocalNotifier)
        while notifier.jobs:
            job, id = notifier.jobs.popleft()
            if job == "register":
                platform.jobs.dataset_registration.register(id)
        version = people.ask(who, "GET", asked.headers["Location"]).json
        assert version["state"] == "ready", version
        return version

    return register_files


# -- models


def test_a_shared_model_has_the_same_name_in_paths_and_bodies(people: People) -> None:
    made = put(people, "red submitter", "brake")
    for reference in ("brake", "red/brake", made["id"], made["digest"], f"red/brake@{made['digest']}"):
        assert get(people, f"/v1/models/{reference}").status_code == 404
    share(people, "models/brake")
    for reference in (
        *("brake", "red/brake", "red%2Fbrake", "red/brake@1", "red/brake@latest", "brake@1"),
        *(made["id"], made["digest"], f"red/brake@{made['digest']}"),
    ):
        found = get(people, f"/v1/models/{reference}")
        assert found.status_code == 200 and found.json["name"] == "red/brake", reference
        assert get(people, f"/v1/models/{reference}/content").data == MODEL
    assert get(people, "/v1/models/red/brake", "red viewer").json["name"] == "brake"
    for reference in ("brake", "red/brake", "red/brake@1"):
        body = {"dataset": "noop", "model": reference}
        submitted = people.ask("blue submitter", "POST", "/v1/simulations", json=body)
        assert submitted.status_code == 201, submitted.text
        assert submitted.json["model"]["name"] == "red/brake"
    listed = get(people, "/v1/simulations?model=red/brake").json["items"]
    assert len(listed) >= 3


def test_a_name_is_ones_own_first(people: People) -> None:
    put(people, "red submitter", "brake")
    share(people, "models/brake")
    put(people, "blue submitter", "brake", OTHER)
    assert get(people, "/v1/models/brake/content").data == OTHER
    assert get(people, "/v1/models/blue/brake/content").data == OTHER
    assert get(people, "/v1/models/red/brake/content").data == MODEL


def test_a_name_that_several_share_is_refused_with_the_names_to_choose_from(people: People) -> None:
    people.ask("operator", "POST", "/v1/projects", json={"name": "green"})
    put(people, "red submitter", "brake")
    made = people.ask("operator", "PUT", "/v1/models/brake?project=green", data=OTHER, headers=TEXT)
    assert made.status_code == 201
    share(people, "models/brake")
    assert people.ask("operator", "PUT", "/v1/models/brake/shares/blue?project=green").status_code == 204
    refused = get(people, "/v1/models/brake")
    assert refused.status_code == 422 and "green/brake or red/brake" in refused.text
    assert get(people, "/v1/models/green/brake/content").data == OTHER


def test_a_version_is_shared_alone(people: People) -> None:
    put(people, "red submitter", "brake")
    put(people, "red submitter", "brake", OTHER)
    tag = people.ask("red submitter", "PUT", "/v1/models/brake/tags/gold", json={"version": "1"})
    assert tag.status_code == 200
    share(people, "models/brake@gold")
    assert get(people, "/v1/models/red/brake/content").data == MODEL
    assert get(people, "/v1/models/red/brake@gold/content").data == MODEL
    assert get(people, "/v1/models/red/brake@2").status_code == 404
    assert get(people, "/v1/models/red/brake").json["tags"] == ["gold"]
    put(people, "red submitter", "brake", OTHER + b"#")
    assert get(people, "/v1/models/red/brake").json["version"] == 1
    share(people, "models/brake")
    assert get(people, "/v1/models/red/brake").json["version"] == 3


def test_what_is_shared_is_not_changed_by_its_readers(people: People) -> None:
    put(people, "red submitter", "brake")
    share(people, "models/brake")
    for method, path, options in (
        ("DELETE", "/v1/models/red/brake", {}),
        ("DELETE", "/v1/models/brake", {}),
        ("PUT", "/v1/models/red/brake/shares/green", {}),
        ("PUT", "/v1/models/brake/shares/green", {}),
        ("DELETE", "/v1/models/red/brake/shares/blue", {}),
        ("PUT", "/v1/models/red/brake", {"data": OTHER, "headers": TEXT}),
        ("PUT", "/v1/models/brake/tags/gold", {"json": {"version": "1"}}),
    ):
        answer = people.ask("blue maintainer", method, path, **options)
        assert answer.status_code in (403, 404, 422), (method, path, answer.text)
    assert get(people, "/v1/models/red/brake", "red viewer").json["tags"] == []
    assert get(people, "/v1/models/red/brake/content").data == MODEL
    for who in ("red viewer", "red submitter"):
        assert people.ask(who, "PUT", "/v1/models/brake/shares/blue").status_code == 403


def test_an_ended_share_is_as_if_it_had_never_been(people: People) -> None:
    put(people, "red submitter", "brake")
    before = get(people, "/v1/models/red/brake")
    share(people, "models/brake")
    share(people, "models/brake")
    unshare(people, "models/brake")
    after = get(people, "/v1/models/red/brake")
    assert after.status_code == 404 and after.data == before.data
    again = people.ask("red maintainer", "DELETE", "/v1/models/brake/shares/blue")
    assert again.status_code == 404 and "/v1/shares" in again.text
    refused = people.ask("blue submitter", "POST", "/v1/simulations", json={"dataset": "noop", "model": "red/brake"})
    assert refused.status_code == 422 and "unknown-model" in refused.text


def test_a_name_that_is_given_again_is_not_shared(people: People) -> None:
    put(people, "red submitter", "brake")
    share(people, "models/brake")
    assert people.ask("red submitter", "DELETE", "/v1/models/brake").status_code == 204
    put(people, "red submitter", "brake", OTHER)
    assert get(people, "/v1/models/red/brake").status_code == 404


def test_a_simulation_goes_on_whose_model_its_owner_deletes(
    people: People, platform: Platform, worker: LeasingWorker
) -> None:
    put(people, "red submitter", "brake")
    share(people, "models/brake")
    run = people.ask("blue submitter", "POST", "/v1/simulations", json={"dataset": "noop", "model": "red/brake"}).json
    unshare(people, "models/brake")
    assert people.ask("red submitter", "DELETE", "/v1/models/brake").status_code == 204
    used = get(people, "/v1/projects/red/quotas", "red viewer").json["stored_bytes"]["used"]
    assert used == 0, "its owner is charged no more, although the bytes stay for the simulation"
    assert platform.access.quotas.recount() == 0
    assert platform.files.models.remove_orphans() == 0
    launch = worker.launch(run["id"])
    assert b"".join(platform.store.get("models/" + run["model"]["digest"].removeprefix("sha256:"))) == MODEL
    worker.finish_unseen(launch)
    platform.jobs.finalization.collect(run["id"])
    ended = get(people, f"/v1/simulations/{run['id']}").json
    assert ended["state"] == "succeeded" and ended["model"]["name"] == "red/brake"
    archive = get(people, f"/v1/simulations/{run['id']}/archive")
    assert archive.status_code == 200 and MODEL not in archive.data, "it is not shared any more"
    assert people.ask("blue submitter", "DELETE", f"/v1/simulations/{run['id']}").status_code == 204
    platform.jobs.deletion.remove(run["id"])
    assert platform.files.models.remove_orphans() == 1, "nothing refers to the bytes any more"
    with pytest.raises(NotFound):
        platform.store.size("models/" + run["model"]["digest"].removeprefix("sha256:"))


def test_an_archive_has_a_shared_model_while_that_is_shared(
    people: People, platform: Platform, worker: LeasingWorker
) -> None:
    put(people, "red submitter", "brake")
    share(people, "models/brake")
    run = people.ask("blue submitter", "POST", "/v1/simulations", json={"dataset": "noop", "model": "red/brake"}).json
    worker.finish_unseen(worker.launch(run["id"]))
    platform.jobs.finalization.collect(run["id"])
    path = f"/v1/simulations/{run['id']}/archive"
    shared = get(people, path)
    assert shared.status_code == 200 and MODEL in shared.data
    unshare(people, "models/brake")
    after = get(people, path)
    assert after.status_code == 200 and MODEL not in after.data and after.headers["ETag"] != shared.headers["ETag"]
    assert int(after.headers["Content-Length"]) == len(after.data)
    assert after.data == get(people, f"{path}?model=false").data
    put(people, "blue submitter", "mine")
    assert get(people, path).data == shared.data, "the same content is its own now"


def test_an_archive_has_ones_own_model_after_its_name_was_deleted(
    people: People, platform: Platform, worker: LeasingWorker
) -> None:
    id = own(people, "red")["simulation"]
    worker.finish_unseen(worker.launch(id))
    platform.jobs.finalization.collect(id)
    assert people.ask("red submitter", "DELETE", "/v1/models/brake").status_code == 204
    assert MODEL in get(people, f"/v1/simulations/{id}/archive", "red viewer").data


def test_a_run_with_a_shared_model_is_retried_while_that_is_shared(
    people: People, platform: Platform, worker: LeasingWorker
) -> None:
    put(people, "red submitter", "brake")
    share(people, "models/brake")
    body = {"dataset": "noop", "model": "red/brake"}
    run = people.ask("blue submitter", "POST", "/v1/simulations", json=body).json
    worker.finish_unseen(worker.launch(run["id"]))
    platform.jobs.finalization.collect(run["id"])
    retry = {"method": "POST", "path": f"/v1/simulations/{run['id']}/retry", "json": {"only_failed": False}}
    again = people.ask("blue submitter", **retry)
    assert again.status_code == 201 and again.json["model"] == run["model"], again.text
    unshare(people, "models/brake")
    refused = people.ask("blue submitter", **retry)
    assert refused.status_code in (409, 422), refused.text


def test_the_bytes_of_what_is_shared_are_charged_to_its_owner(people: People) -> None:
    put(people, "red submitter", "brake")
    share(people, "models/brake")
    people.ask("blue submitter", "POST", "/v1/simulations", json={"dataset": "noop", "model": "red/brake"})
    uses = {name: get(people, f"/v1/projects/{name}/quotas", f"{name} viewer").json for name in ("red", "blue")}
    assert uses["red"]["stored_bytes"]["used"] == len(MODEL) and uses["blue"]["stored_bytes"]["used"] == 0


# -- datasets


def test_a_shared_dataset_is_simulated_and_kept_until_the_end(
    people: People, platform: Platform, worker: LeasingWorker, register: Callable[..., Any]
) -> None:
    made = register("red submitter", "drives")
    put(people, "blue submitter", "mine")
    assert get(people, "/v1/datasets/red/drives").status_code == 404
    share(people, "datasets/drives")
    for path in ("", "/versions", "/files", "/scenarios", "/files/dataset.json"):
        for reference in ("red/drives", "drives", made["id"]):
            if reference != made["id"] or path not in ("/versions",):
                assert get(people, f"/v1/datasets/{reference}{path}").status_code == 200, (reference, path)
    assert get(people, "/v1/datasets/red/drives").json["name"] == "red/drives"
    assert get(people, "/v1/datasets/red/drives/versions").json["items"][0]["name"] == "red/drives"
    body = {"dataset": "red/drives", "model": "mine", "runtime": "python", "scenarios": {"range": [0, 2]}}
    run = people.ask("blue submitter", "POST", "/v1/simulations", json=body)
    assert run.status_code == 201, run.text
    id = run.json["id"]
    assert run.json["dataset"]["name"] == "red/drives"
    for method, path in (("DELETE", "/v1/datasets/red/drives"), ("PUT", "/v1/datasets/drives/tags/gold")):
        answer = people.ask("blue maintainer", method, path, json={"version": "1"})
        assert answer.status_code in (403, 404), answer.text
    assert people.ask("red submitter", "DELETE", "/v1/datasets/drives").status_code == 204
    assert get(people, "/v1/datasets/red/drives").status_code == 404
    assert platform.catalogue.datasets.garbage.collect(grace=-1) == 0
    with platform.database.read() as c:
        row = simulation_store.find(c, Scope("blue"), id)
    played = dataset_of(row.provenance)
    kept = platform.catalogue.datasets.kept_entries(work_of("blue"), played)
    assert "dataset.json" in [entry.path for entry in kept]
    assert specs(platform).labels(work_of("blue"), played, 0) != {}
    assert people.ask("blue submitter", "POST", f"/v1/simulations/{id}/cancel").status_code in (200, 202)
    platform.jobs.finalization.collect(id)
    assert platform.catalogue.datasets.garbage.collect(grace=-1) > 0


def specs(platform: Platform) -> ScenarioSpecs:
    return ScenarioSpecs(platform.database, platform.store, platform.catalogue.datasets._sources)


def test_pages_of_ones_own_versions_do_not_go_on_with_those_of_others(
    people: People, register: Callable[..., Any]
) -> None:
    register("red submitter", "drives")
    share(people, "datasets/drives")
    own_version = register("blue submitter", "drives", FILES | {"more.txt": b"x"})
    first = get(people, "/v1/datasets/drives/versions?limit=1").json
    assert [item["id"] for item in first["items"]] == [own_version["id"]]
    assert get(people, f"/v1/datasets/drives/versions?after={own_version['id']}").json["items"] == []


# -- simulations


def test_a_shared_simulation_is_read_with_all_that_it_has_and_not_changed(
    people: People, platform: Platform, worker: LeasingWorker
) -> None:
    id = own(people, "red")["simulation"]
    launch = worker.launch(id)
    worker.finish_unseen(launch, artifacts={(0, "note.txt", "text/plain"): b"hello"})
    platform.jobs.finalization.collect(id)
    paths = [
        *("", "/summary", "/results", "/events", "/logs", "/archive", "/artifacts", "/provenance"),
        *("/results/0", "/artifacts/0/note.txt", "/sweep", "/distributions"),
    ]
    paths = [f"/v1/simulations/{id}{path}" for path in paths]
    owners = {path: get(people, path, "red viewer") for path in paths}
    assert sum(answer.status_code == 200 for answer in owners.values()) >= 7, {p: a.status for p, a in owners.items()}
    assert {get(people, path).status_code for path in paths} == {404}
    share(people, f"simulations/{id}")
    archive = f"/v1/simulations/{id}/archive"
    assert MODEL in owners[archive].data
    owners[archive] = get(people, f"{archive}?model=false", "red viewer")  # the model is not shared with it
    for path, answer in owners.items():
        seen = get(people, path)
        assert (seen.status_code, seen.data) == (answer.status_code, answer.data), path
    assert get(people, "/v1/simulations").json["items"] == []
    for method, path in (
        ("DELETE", ""),
        ("POST", "/cancel"),
        ("POST", "/retry"),
        ("PATCH", ""),
        ("PUT", "/shares/green"),
        ("DELETE", "/shares/blue"),
    ):
        body = {"json": {"workers": 2}} if method == "PATCH" else {}
        answer = people.ask("blue maintainer", method, f"/v1/simulations/{id}{path}", **body)
        assert answer.status_code in (403, 404), (method, path, answer.text)
    unshare(people, f"simulations/{id}")
    assert {path: get(people, path).text for path in paths if get(people, path).status_code != 404} == {}


# -- lists and ends


def test_both_projects_list_a_share_and_no_other_does(people: People) -> None:
    put(people, "red submitter", "brake")
    share(people, "models/brake")
    [given] = get(people, "/v1/shares", "red viewer").json["items"]
    [received] = get(people, "/v1/shares").json["items"]
    assert given == received
    assert (received["owner"], received["reference"], received["kind"]) == ("red", "red/brake", "models")
    people.ask("operator", "POST", "/v1/projects", json={"name": "green"})
    assert people.ask("operator", "GET", "/v1/shares?project=green").json["items"] == []


@pytest.mark.parametrize(
    ("path", "reader", "status"),
    [
        ("models/brake", "nowhere", 404),
        ("models/brake", "red", 422),
        ("models/nothing", "blue", 404),
        ("models/blue/brake", "blue", 404),
        ("models/sine", "blue", 404),
        ("datasets/noop", "blue", 404),
        ("simulations/01jz8w0k5qv3r1m9c2t7x4b6ne", "blue", 404),
    ],
)
def test_only_what_is_ones_own_is_shared_with_a_project_that_is(
    people: People, path: str, reader: str, status: int
) -> None:
    put(people, "red submitter", "brake")
    put(people, "blue submitter", "brake")
    answer = people.ask("red maintainer", "PUT", f"/v1/{path}/shares/{reader}")
    assert answer.status_code == status, answer.text


def test_a_removed_project_has_no_shares(people: People, platform: Platform) -> None:
    put(people, "red submitter", "brake")
    share(people, "models/brake")
    assert people.ask("operator", "POST", "/v1/projects/red/close").status_code == 200
    assert get(people, "/v1/models/red/brake").status_code == 200  # what it has can be read until it is deleted
    assert people.ask("operator", "DELETE", "/v1/projects/red").status_code == 204
    platform.access.project_ends.sweep()
    assert get(people, "/v1/models/red/brake").status_code == 404
    assert get(people, "/v1/shares").json["items"] == []
    with platform.database.read() as c:
        assert dataset_store.names(c, Scope("red")) == []


# -- lists


def listed(people: People, path: str, who: str = "blue viewer") -> list[str]:
    """Return the names of all pages of a list, of two items each."""
    names: list[str] = []
    after = ""
    while True:
        page = get(people, f"/v1/{path}{'&' if '?' in path else '?'}limit=2{after}", who).json
        names += [item["name"] for item in page["items"]]
        if page["next"] is None:
            return names
        after = f"&after={page['next']}"


def test_the_list_of_models_that_are_shared_has_all_of_them_on_its_pages_and_no_other(people: People) -> None:
    people.ask("operator", "POST", "/v1/projects", json={"name": "green"})
    for name in ("brake", "drive", "park", "secret"):
        put(people, "red submitter", name)
    green = people.ask("operator", "PUT", "/v1/models/brake?project=green", data=OTHER, headers=TEXT)
    assert green.status_code == 201
    put(people, "blue submitter", "own")
    put(people, "red submitter", "drive", OTHER)
    assert listed(people, "models?shared=true") == []
    share(people, "models/brake")
    share(people, "models/drive@1")
    share(people, "models/park")
    assert people.ask("operator", "PUT", "/v1/models/brake/shares/blue?project=green").status_code == 204
    assert listed(people, "models?shared=true") == ["green/brake", "red/park", "red/drive", "red/brake"]
    assert listed(people, "models?shared=true&name=brake") == ["green/brake", "red/brake"]
    assert listed(people, "models?shared=true&name=red/brake") == ["red/brake"]
    assert listed(people, "models?baseline=false") == ["own"]
    assert listed(people, "models?shared=true&baseline=true") == []
    assert listed(people, "models?shared=true", "red viewer") == []
    people.ask("red submitter", "PUT", "/v1/models/drive/tags/gold", json={"version": "1"})
    [drive] = get(people, "/v1/models?shared=true&name=drive").json["items"]
    assert (drive["version"], drive["tags"]) == (1, ["gold"])
    assert get(people, f"/v1/models/{drive['name']}").status_code == 200
    unshare(people, "models/drive@1")
    assert listed(people, "models?shared=true&name=drive") == []


def test_the_list_of_datasets_that_are_shared_has_each_at_the_latest_version_that_is(
    people: People, register: Callable[..., Any]
) -> None:
    for name in ("streets", "ways", "yards"):
        register("red submitter", name)
    register("red submitter", "ways", {**FILES, "more.txt": b"more"})
    register("blue submitter", "own")
    assert listed(people, "datasets?shared=true") == []
    for reference in ("streets", "ways@1", "yards"):
        share(people, f"datasets/{reference}")
    assert listed(people, "datasets?shared=true") == ["red/streets", "red/ways", "red/yards"]
    by_name = {item["name"]: item for item in get(people, "/v1/datasets?shared=true").json["items"]}
    assert by_name["red/ways"]["version"] == "1"
    share(people, "datasets/ways")
    by_name = {item["name"]: item for item in get(people, "/v1/datasets?shared=true").json["items"]}
    assert by_name["red/ways"]["version"] == "2"
    assert not [name for name in listed(people, "datasets") if "/" in name]
    unshare(people, "datasets/yards")
    assert listed(people, "datasets?shared=true") == ["red/streets", "red/ways"]
    assert listed(people, "datasets?shared=true", "red viewer") == []
