"""Maps of users on a running platform: registered, converted, scenarios drawn, driven, with a replay."""

import random
from pathlib import Path
from xml.etree import ElementTree

from tests.maps import extract, planning_problem, town
from tests.system.conftest import StartPlatform
from tests.system.platform_process import PlatformProcess, has_one_result_per_task
from tests.system.test_datasets import dataset_json, register, tar, upload
from tests.waiting import until


def running(program: str, argument: str) -> bool:
    """Tell whether a process of this machine runs a program with an argument."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it ended meanwhile
        if words[0].endswith(program) and any(argument in word for word in words):
            return True
    return False


def test_maps_of_three_formats_are_driven_with_scenarios_that_the_platform_draws(
    platform: PlatformProcess,
) -> None:
    maps = [
        {"file": "maps/town.xodr", "name": "town"},
        {"file": "maps/extract.osm", "name": "quarter"},
        {"file": "maps/lanes.xml", "name": "lanes"},
    ]
    description = dataset_json("car_street", scenarios="", maps=maps, generate={"count": 12, "seed": 3})
    version = register(
        platform,
        "towns",
        {
            "dataset.json": description,
            "maps/town.xodr": town(),
            "maps/extract.osm": extract(),
            "maps/lanes.xml": planning_problem(),
        },
    )
    assert (version["state"], version["tasks"], version["simulator"]) == ("ready", 25, "sumo"), version
    by_name = {entry["name"]: entry for entry in version["maps"]}
    assert [by_name[name]["format"] for name in ("town", "quarter", "lanes")] == ["opendrive", "osm", "commonroad"]
    dropped = {item["what"] for item in by_name["quarter"]["dropped"]}
    assert {"footways and paths", "tram lines", "buildings"} <= dropped, dropped
    listed = platform.get_until_answered("/v1/datasets/towns/scenarios").json()["items"]
    assert listed[0]["street"] == "town" and listed[0]["dropped"] == by_name["town"]["dropped"]
    network = platform.get_until_answered("/v1/datasets/towns/files/converted/town.net.xml").content
    assert ElementTree.fromstring(network).tag == "net"

    ended = platform.run(dataset="towns", runtime="python", model="idm")
    assert (ended["state"], ended["tasks"]["failed"]) == ("succeeded", 0), ended
    results = platform.results(ended["id"])
    assert has_one_result_per_task(results, 25)
    assert all(result["metrics"]["route_completion"] > 5.0 for result in results), results
    assert {result["scenario"]["street"] for result in results} == {"town", "quarter", "lanes"}
    for task in (0, 23, 24):
        replay = f"/v1/simulations/{ended['id']}/tasks/{task}/replay"
        until(lambda replay=replay: platform.get_until_answered(replay).status_code == 200, message="no replay")
        picture = platform.http.get(replay, headers={"Accept": "image/svg+xml"}).text
        assert picture.startswith("<svg") and "stroke" in picture
    again = platform.run(dataset="towns", runtime="python", model="idm")
    assert platform.summary(again["id"])["results_digest"] == platform.summary(ended["id"])["results_digest"]


def test_a_conversion_survives_a_kill_of_its_process(start_platform: StartPlatform) -> None:
    platform = start_platform()
    description = dataset_json(
        "car_street", scenarios="", maps=[{"file": "big.osm", "name": "big"}], generate={"count": 5}
    )
    archive = tar({"dataset.json": description, "big.osm": extract(60)})
    response = platform.http.post("/v1/datasets", json={"name": "big", "source": {"upload": upload(platform, archive)}})
    url = response.headers["Location"]
    until(
        lambda: "converting" in platform.get_until_answered(url).json().get("progress", {}).get("message", ""),
        message="the conversion does not begin",
    )
    assert platform.kill("jobs", random.Random(1)) is not None
    until(lambda: not running("netconvert", str(platform.home)), message="netconvert outlives the job")
    until(
        lambda: platform.get_until_answered(url).json()["state"] != "registering",
        90.0,
        "the registration is not resumed",
    )
    version = platform.get_until_answered(url).json()
    assert (version["state"], version["tasks"]) == ("ready", 5), version.get("reason")
