"""User datasets on a running platform: uploaded, registered and simulated, while processes are killed."""

import io
import json
import random
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any

from datasets.catalogue import datasets
from tests.system.conftest import StartPlatform
from tests.system.platform_process import PlatformProcess, whole
from tests.waiting import until

FILES = {"readme.txt": b"three of our own", "deep/data.bin": bytes(range(256)) * 64}


def tar(files: Mapping[str, bytes]) -> bytes:
    """Pack files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return packed.getvalue()


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


def register(platform: PlatformProcess, name: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Register files, wait for the end and return the version."""
    answer = platform.http.post("/v1/datasets", json={"name": name, "source": {"upload": upload(platform, tar(files))}})
    assert answer.status_code == 202, answer.text
    where = answer.headers["Location"]
    until(lambda: platform.get_until_answered(where).json()["state"] != "registering", message="it is not registered")
    return dict(platform.get_until_answered(where).json())


def scenarios(count: int, **members: Any) -> bytes:
    """Return a number of scenarios as NDJSON."""
    return b"".join(json.dumps({"name": f"own-{at}", **members}).encode() + b"\n" for at in range(count))


def described(extends: str, **more: Any) -> bytes:
    """Return the description of a dataset."""
    return json.dumps({"extends": extends, "scenarios": "lines.ndjson", **more}).encode()


def test_user_scenarios_are_simulated(platform: PlatformProcess) -> None:
    version = register(
        platform,
        "poles",
        FILES | {"dataset.json": described("cartpole", title="Poles"), "lines.ndjson": scenarios(7)},
    )
    assert (version["state"], version["tasks"], version["simulator"]) == ("ready", 7, "gymnasium"), version
    ended = platform.run(dataset="poles", runtime="python")
    assert (ended["state"], ended["tasks"]["done"]) == ("succeeded", 7), ended
    assert ended["dataset"] == {"name": "poles", "version": "1", "digest": version["digest"]}
    results = platform.results(ended["id"])
    assert whole(results, 7)
    assert [result["scenario"]["name"] for result in results] == [f"own-{at}" for at in range(7)]
    again = platform.run(dataset="poles@1", runtime="python")
    assert platform.summary(again["id"])["results_digest"] == platform.summary(ended["id"])["results_digest"]
    events = platform.http.get(f"/v1/simulations/{ended['id']}/events", headers={"Accept": "text/event-stream"}).text
    assert '"what":"dataset"' in events.replace(" ", ""), events
    assert platform.http.delete("/v1/datasets/poles").status_code == 204
    assert platform.results(ended["id"]) == results


def test_user_streets_are_simulated_on_the_built_in_road_networks(platform: PlatformProcess) -> None:
    shipped = list(datasets()["car_street"].scenarios(0, 288))[::100]
    own = [
        {name: value for name, value in scenario.items() if name != "index"} | {"time_limit": 5.0}
        for scenario in shipped
    ]
    lines = b"".join(json.dumps(scenario).encode() + b"\n" for scenario in own)
    version = register(platform, "streets", {"dataset.json": described("car_street"), "lines.ndjson": lines})
    assert version["tasks"] == len(own), version
    ended = platform.run(dataset="streets", runtime="python")
    assert (ended["state"], ended["tasks"]["failed"]) == ("succeeded", 0), ended
    replay = f"/v1/simulations/{ended['id']}/tasks/1/replay"
    until(lambda: platform.get_until_answered(replay).status_code == 200, message="no replay comes")


def bodies(count: int) -> Iterator[tuple[str, bytes]]:
    """Yield files whose registration takes some time."""
    chance = random.Random(7)
    for at in range(count):
        yield f"part-{at % 10}/{at:05}.bin", chance.randbytes(16 << 10)


def test_a_registration_survives_a_kill_of_its_process(start_platform: StartPlatform) -> None:
    platform = start_platform()
    files = dict(bodies(2000))
    sent = upload(platform, tar(files))
    answer = platform.http.post("/v1/datasets", json={"name": "drives", "source": {"upload": sent}})
    where = answer.headers["Location"]
    chance = random.Random(3)
    for _ in range(2):
        assert platform.kill("jobs", chance) is not None
        assert platform.get_until_answered("/v1/datasets/drives/versions").json()["items"][0]["state"] in {
            "registering",
            "ready",
        }
    until(lambda: platform.get_until_answered(where).json()["state"] != "registering", 90.0, "it is not taken up again")
    version = platform.get_until_answered(where).json()
    assert (version["state"], version["file_count"]) == ("ready", 2000), version
    for path in ("part-0/00000.bin", "part-9/01999.bin"):
        assert platform.get_until_answered(f"/v1/datasets/drives/files/{path}").content == files[path]
    packs = {path.parent.name for path in (platform.home / "objects" / "packs").glob("*/*")}
    assert packs == {version["id"]}
    held = sum(path.stat().st_size for path in (platform.home / "objects" / "packs").glob("*/*"))
    assert held == sum(map(len, files.values())), "what an attempt that died had written is still there"
