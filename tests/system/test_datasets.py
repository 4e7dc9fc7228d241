"""User datasets on a running platform: uploaded, registered and simulated, while processes are killed."""

import io
import json
import random
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from datasets.catalogue import datasets
from tests.system.conftest import StartPlatform
from tests.system.format_models import ONNX_MODELS
from tests.system.platform_process import PlatformProcess, has_one_result_per_task
from tests.waiting import until

FILES = {"readme.txt": b"three scenarios", "deep/data.bin": bytes(range(256)) * 64}


def tar(files: Mapping[str, bytes]) -> bytes:
    """Pack files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return buffer.getvalue()


def upload(platform: PlatformProcess, body: bytes) -> str:
    """Upload bytes over tus; return the id of the upload."""
    created = platform.http.post(
        "/v1/uploads",
        content=body,
        headers={
            "Tus-Resumable": "1.0.0",
            "Upload-Length": str(len(body)),
            "Content-Type": "application/offset+octet-stream",
        },
    )
    assert created.status_code == 201, created.text
    return created.headers["Location"].rpartition("/")[2]


def register(
    platform: PlatformProcess, name: str, files: Mapping[str, bytes], *, timeout: float = 60.0
) -> dict[str, Any]:
    """Register files, wait for the end and return the version."""
    response = platform.http.post(
        "/v1/datasets", json={"name": name, "source": {"upload": upload(platform, tar(files))}}
    )
    assert response.status_code == 202, response.text
    url = response.headers["Location"]
    until(
        lambda: platform.get_until_answered(url).json()["state"] != "registering",
        timeout,
        lambda: f"the dataset is not registered: {platform.get_until_answered(url).json()['progress']}",
    )
    return dict(platform.get_until_answered(url).json())


def scenarios(count: int, **members: Any) -> bytes:
    """Return a number of scenarios as NDJSON."""
    return b"".join(json.dumps({"name": f"own-{number}", **members}).encode() + b"\n" for number in range(count))


def dataset_json(extends: str, **members: Any) -> bytes:
    """Return the description of a dataset."""
    return json.dumps({"extends": extends, "scenarios": "lines.ndjson", **members}).encode()


def test_user_scenarios_are_simulated(platform: PlatformProcess) -> None:
    version = register(
        platform,
        "poles",
        FILES | {"dataset.json": dataset_json("cartpole", title="Poles"), "lines.ndjson": scenarios(7)},
    )
    assert (version["state"], version["tasks"], version["simulator"]) == ("ready", 7, "gymnasium"), version
    ended = platform.run(dataset="poles", runtime="python")
    assert (ended["state"], ended["tasks"]["done"]) == ("succeeded", 7), ended
    assert ended["dataset"] == {"name": "poles", "version": "1", "digest": version["digest"]}
    results = platform.results(ended["id"])
    assert has_one_result_per_task(results, 7)
    assert [result["scenario"]["name"] for result in results] == [f"own-{number}" for number in range(7)]
    second = platform.run(dataset="poles@1", runtime="python")
    assert platform.summary(second["id"])["results_digest"] == platform.summary(ended["id"])["results_digest"]
    events = platform.http.get(f"/v1/simulations/{ended['id']}/events", headers={"Accept": "text/event-stream"}).text
    assert '"what":"dataset"' in events.replace(" ", ""), events
    assert platform.http.delete("/v1/datasets/poles").status_code == 204
    assert platform.results(ended["id"]) == results


def test_a_dataset_is_not_tried_if_the_model_is_refused_by_the_dataset_that_it_extends(
    platform: PlatformProcess,
) -> None:
    register(platform, "own-noop", {"dataset.json": dataset_json("noop"), "lines.ndjson": scenarios(2)})
    register(platform, "own-cartpole", {"dataset.json": dataset_json("cartpole"), "lines.ndjson": scenarios(2)})
    model = (ONNX_MODELS / "lstm.onnx").read_bytes()
    platform.http.put("/v1/models/lstm", content=model, params={"filename": "lstm.onnx"}).raise_for_status()
    items = platform.http.post("/v1/models/lstm/check", timeout=300).json()["items"]
    for name in ("own-noop", "own-cartpole"):
        assert platform.http.delete(f"/v1/datasets/{name}").status_code == 204
    checks = {check["dataset"]: check for check in items}
    assert not {"fmu", "openenv"} & set(checks), "templates are not tried"
    assert {name: checks[name]["fits"] for name in ("car_street", "cartpole", "highway", "noop", "own-cartpole")} == {
        "car_street": False,
        "cartpole": True,
        "highway": False,
        "noop": False,
        "own-cartpole": True,
    }
    assert "the dataset takes float32[4]" in (reason := checks["noop"]["reason"])
    assert checks["noop"]["runtime"] == "onnx" and checks["own-noop"]["runtime"] is None, "no dry run was needed"
    assert checks["own-noop"]["reason"] == reason


@pytest.mark.parametrize(
    ("extends", "members"),
    [
        ("mujoco_hopper", {"kwargs": {"reset_noise_scale": 0.0}}),
        ("pettingzoo_tictactoe", {"others": "still"}),
    ],
)
def test_user_scenarios_of_robots_and_games_are_simulated(
    platform: PlatformProcess, extends: str, members: dict[str, Any]
) -> None:
    """Neither has randomness left, so all scenarios have the same result."""
    name = f"own-{extends.replace('_', '-')}"
    version = register(platform, name, {"dataset.json": dataset_json(extends), "lines.ndjson": scenarios(3, **members)})
    assert (version["state"], version["tasks"]) == ("ready", 3), version
    ended = platform.run(dataset=name, runtime="python")
    assert ended["state"] == "succeeded", ended
    results = platform.results(ended["id"])
    assert [result["status"] for result in results] == ["ok"] * 3
    assert results[0]["metrics"] == results[1]["metrics"] == results[2]["metrics"]


def test_user_streets_are_simulated_on_the_built_in_road_networks(platform: PlatformProcess) -> None:
    shipped = list(datasets()["car_street"].scenarios(0, 288))[::100]
    changed = [
        {name: value for name, value in scenario.items() if name != "index"} | {"time_limit": 5.0}
        for scenario in shipped
    ]
    lines = b"".join(json.dumps(scenario).encode() + b"\n" for scenario in changed)
    version = register(platform, "streets", {"dataset.json": dataset_json("car_street"), "lines.ndjson": lines})
    assert version["tasks"] == len(changed), version
    ended = platform.run(dataset="streets", runtime="python")
    assert (ended["state"], ended["tasks"]["failed"]) == ("succeeded", 0), ended
    replay = f"/v1/simulations/{ended['id']}/tasks/1/replay"
    until(lambda: platform.get_until_answered(replay).status_code == 200, message="the replay is not available")


def slow_files(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield files whose registration takes some time."""
    rng = random.Random(7)
    for number in range(count):
        yield f"part-{number % 10}/{number:05}.bin", rng.randbytes(16 << 10)


def test_a_registration_survives_a_kill_of_its_process(start_platform: StartPlatform) -> None:
    platform = start_platform()
    files = dict(slow_files(2000))
    upload_id = upload(platform, tar(files))
    response = platform.http.post("/v1/datasets", json={"name": "drives", "source": {"upload": upload_id}})
    url = response.headers["Location"]
    rng = random.Random(3)
    for _ in range(2):
        assert platform.kill("jobs", rng) is not None
        assert platform.get_until_answered("/v1/datasets/drives/versions").json()["items"][0]["state"] in {
            "registering",
            "ready",
        }
    until(
        lambda: platform.get_until_answered(url).json()["state"] != "registering",
        90.0,
        "the registration is not resumed",
    )
    version = platform.get_until_answered(url).json()
    assert (version["state"], version["file_count"]) == ("ready", 2000), version
    for path in ("part-0/00000.bin", "part-9/01999.bin"):
        assert platform.get_until_answered(f"/v1/datasets/drives/files/{path}").content == files[path]
    packs = {path.parent.name for path in (platform.home / "objects" / "packs").glob("*/*")}
    assert packs == {version["id"]}
    stored = sum(path.stat().st_size for path in (platform.home / "objects" / "packs").glob("*/*"))
    assert stored == sum(map(len, files.values())), "files of the killed attempt are not deleted"
