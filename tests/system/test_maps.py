"""Maps of users on a running platform: registered, converted, scenarios drawn, driven, with a replay."""

from xml.etree import ElementTree

from tests.maps import extract, town
from tests.system.platform_process import PlatformProcess, has_one_result_per_task
from tests.system.test_datasets import dataset_json, register
from tests.waiting import until


def test_an_opendrive_map_and_an_openstreetmap_extract_are_driven_with_scenarios_that_the_platform_draws(
    platform: PlatformProcess,
) -> None:
    maps = [{"file": "maps/town.xodr", "name": "town"}, {"file": "maps/extract.osm", "name": "quarter"}]
    description = dataset_json("car_street", scenarios="", maps=maps, generate={"count": 12, "seed": 3})
    version = register(
        platform,
        "towns",
        {"dataset.json": description, "maps/town.xodr": town(), "maps/extract.osm": extract()},
    )
    assert (version["state"], version["tasks"], version["simulator"]) == ("ready", 24, "sumo"), version
    by_name = {entry["name"]: entry for entry in version["maps"]}
    assert [by_name[name]["format"] for name in ("town", "quarter")] == ["opendrive", "osm"]
    dropped = {item["what"] for item in by_name["quarter"]["dropped"]}
    assert {"footways and paths", "tram lines", "buildings"} <= dropped, dropped
    listed = platform.get_until_answered("/v1/datasets/towns/scenarios").json()["items"]
    assert listed[0]["street"] == "town" and listed[0]["dropped"] == by_name["town"]["dropped"]
    network = platform.get_until_answered("/v1/datasets/towns/files/converted/town.net.xml").content
    assert ElementTree.fromstring(network).tag == "net"

    ended = platform.run(dataset="towns", runtime="python", model="idm")
    assert (ended["state"], ended["tasks"]["failed"]) == ("succeeded", 0), ended
    results = platform.results(ended["id"])
    assert has_one_result_per_task(results, 24)
    assert all(result["metrics"]["route_completion"] > 5.0 for result in results), results
    assert {result["scenario"]["street"] for result in results} == {"town", "quarter"}
    for task in (0, 23):
        replay = f"/v1/simulations/{ended['id']}/tasks/{task}/replay"
        until(lambda replay=replay: platform.get_until_answered(replay).status_code == 200, message="no replay")
        picture = platform.http.get(replay, headers={"Accept": "image/svg+xml"}).text
        assert picture.startswith("<svg") and "stroke" in picture
    again = platform.run(dataset="towns", runtime="python", model="idm")
    assert platform.summary(again["id"])["results_digest"] == platform.summary(ended["id"])["results_digest"]
