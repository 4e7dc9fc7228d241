"""Registration of maps with the real netconvert, confined: what is accepted, what is refused, and with which words."""

import gzip
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.rendering import scenario_map
from core.domain.access.scopes import LOCAL_CALLER
from core.notifications.local_notifier import LocalNotifier
from core.services.datasets.map_conversion import MapLimits
from core.services.platform import Platform, PlatformOptions, build
from core.store.database import Database
from datasets.objectstore.filesystem import FilesystemStore
from runtimes import catalogue, environments
from runtimes.converters.confined_converter import ConverterLimits
from tests.archives import tar
from tests.cached import ENVIRONMENTS
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL
from tests.maps import extract, planning_problem, town
from tests.waiting import until

LIMITS = MapLimits()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Maps do not depend on the database engine."""
    database = sqlite_database(tmp_path / "platform.db")
    yield database
    database.close()


def platform_of(database: Database, home: Path, limits: MapLimits = LIMITS) -> Platform:
    """Return a platform whose netconvert is installed."""
    environments.prepare(catalogue.converters()["netconvert"], ENVIRONMENTS, lambda message, fraction: None)
    home.mkdir(exist_ok=True)
    if not (home / "environments").exists():
        (home / "environments").symlink_to(ENVIRONMENTS)
    options = PlatformOptions(home=home, executor_configs=[LOCAL], sandbox={}, maps=limits)
    return build(database, FilesystemStore(home / "objects"), LocalNotifier(), options)


@pytest.fixture
def platform(database: Database, tmp_path: Path) -> Platform:
    return platform_of(database, tmp_path)


def request_version(platform: Platform, files: Mapping[str, bytes], **described: Any) -> str:
    """Request a version with maps; return its id."""
    description = {"extends": "car_street", "generate": {"count": 6}} | described
    body = tar({"dataset.json": json.dumps(description).encode(), **files}, "w")
    upload = platform.files.uploads.create(LOCAL_CALLER, len(body))
    platform.files.uploads.append(LOCAL_CALLER, upload.id, 0, iter([body]))
    return str(platform.catalogue.datasets.register(LOCAL_CALLER, "towns", {"upload": upload.id})["id"])


def register(platform: Platform, source: bytes, path: str = "town.xodr", **described: Any) -> dict[str, Any]:
    """Register one map and return the version when it has ended."""
    described = {"maps": [{"file": path, "name": "town"}]} | described
    id = request_version(platform, {path: source}, **described)
    platform.jobs.dataset_registration.register(id)
    assert not list((platform.jobs.dataset_registration._scratch).glob("map-*")), "a conversion left its folder"
    return platform.catalogue.datasets.get(LOCAL_CALLER, id)


def reason(version: Mapping[str, Any]) -> str:
    """Return why a registration failed."""
    assert version["state"] == "failed", version
    return str(version["reason"])


def test_equal_maps_are_the_same_version_with_equal_networks_and_scenarios(platform: Platform) -> None:
    first = register(platform, town())
    assert (first["state"], first["tasks"]) == ("ready", 6), first
    second = register(platform, town())
    assert (second["version"], second["digest"]) == (first["version"], first["digest"])
    with_seed = register(platform, town(), generate={"count": 6, "seed": 1})
    assert (with_seed["version"], with_seed["tasks"]) == ("2", 6)
    files = {entry["path"]: entry["digest"] for entry in platform.catalogue.datasets.files(LOCAL_CALLER, "towns@1")[0]}
    others = {entry["path"]: entry["digest"] for entry in platform.catalogue.datasets.files(LOCAL_CALLER, "towns@2")[0]}
    assert files["converted/town.net.xml"] == others["converted/town.net.xml"]
    assert files["converted/scenarios.ndjson"] != others["converted/scenarios.ndjson"]
    assert files.keys() == {"dataset.json", "town.xodr"} | {
        f"converted/{name}" for name in ("report.json", "scenarios.ndjson", "town.net.xml")
    }
    stored = {key for kind in ("packs/", "manifests/") for key in platform.store.list(kind)}
    assert len([key for key in stored if key.startswith("manifests/")]) == 4, "the first manifests are removed"


def test_what_a_map_loses_is_said_with_counts_and_examples(platform: Platform) -> None:
    version = register(platform, town())
    report = version["maps"][0]
    assert (report["format"], report["edges"], report["traffic_lights"], report["scenarios"]) == ("opendrive", 8, 1, 6)
    dropped = {item["what"]: item for item in report["dropped"]}
    assert dropped["pavements"] == {"what": "pavements", "count": 8, "examples": ["road 0", "road 0", "road 1"]}
    assert dropped["slopes: the street is flat"]["count"] == 4
    scenario = platform.catalogue.datasets.scenarios(LOCAL_CALLER, "towns")[0][0]
    assert (scenario["street"], scenario["dropped"]) == ("town", report["dropped"])


def test_an_extract_may_be_compressed_and_its_loss_is_said(platform: Platform) -> None:
    version = register(platform, gzip.compress(extract()), "quarter.osm.gz")
    assert version["state"] == "ready", version
    assert {item["what"] for item in version["maps"][0]["dropped"]} >= {"tram lines", "buildings", "pavements"}


def test_a_network_that_was_converted_is_a_map_too(platform: Platform) -> None:
    register(platform, town())
    network = b"".join(
        platform.catalogue.datasets.file(LOCAL_CALLER, "towns", "converted/town.net.xml").read(0, 1 << 20)
    )
    version = register(platform, network, "own.net.xml")
    assert (version["state"], version["maps"][0]["format"], version["maps"][0]["edges"]) == ("ready", "sumo", 8)


def test_own_scenarios_name_roads_of_the_map(platform: Platform) -> None:
    register(platform, town())
    drawn = platform.catalogue.datasets.scenarios(LOCAL_CALLER, "towns")[0][0]
    line = {name: value for name, value in drawn.items() if name != "dropped"}
    described = {"maps": [{"file": "town.xodr", "name": "town"}], "scenarios": "lines.ndjson", "generate": None}
    body = {"town.xodr": town(), "lines.ndjson": json.dumps(line).encode()}
    id = request_version(platform, body, **described)
    platform.jobs.dataset_registration.register(id)
    assert (
        platform.catalogue.datasets.get(LOCAL_CALLER, id)["state"],
        platform.catalogue.datasets.get(LOCAL_CALLER, id)["tasks"],
    ) == ("ready", 1)
    for change, expected in (
        ({"route": ["nowhere"]}, "no road nowhere"),
        ({"route": [line["route"][0], "x"]}, "is not connected"),
        ({"street": "village"}, "one of town, signal_grid"),
        ({"pedestrians": 3}, "no pedestrians"),
    ):
        id = request_version(platform, body | {"lines.ndjson": json.dumps(line | change).encode()}, **described)
        platform.jobs.dataset_registration.register(id)
        assert expected in reason(platform.catalogue.datasets.get(LOCAL_CALLER, id)), change


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "lol"}">' for n in range(10))
HOSTILE = {
    "billion laughs": (
        f"<?xml version='1.0'?><!DOCTYPE osm [{LAUGHS}]><osm>&l9;</osm>".encode(),
        "declares a document type",
    ),
    "an external entity": (
        b'<!DOCTYPE osm [<!ENTITY x SYSTEM "file:///etc/passwd">]><osm>&x;</osm>',
        "declares a document type",
    ),
    "deep nesting": (b"<osm>" + b"<a>" * 100, "nested more than"),
    "no XML": (b"hello", "is not XML"),
    "an unfinished file": (town()[:-20], "is not XML"),
    "another format": (b"<html/>", "its root element is <html>"),
    "a protocol buffer": (b"\x00\x00\x00\x0d\x0a\x09OSMHeader", "osmium cat"),
    "a zip archive": (b"PK\x03\x04", "zip archive"),
    "damaged gzip": (gzip.compress(town())[:-200], "ends too early"),
    "an empty map": (b"<osm/>", "netconvert"),
    "left-hand traffic": (town(rule="LHT"), "right-hand traffic"),
    "gigantic numbers": (town().replace(b'length="200.0"', b'length="1e300"'), "cannot be converted"),
    "no numbers": (town().replace(b'length="200.0"', b'length="nan"'), "cannot be converted"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_or_wrong_map_ends_as_failed_with_the_reason(platform: Platform, kind: str) -> None:
    source, expected = HOSTILE[kind]
    text = reason(register(platform, source, "town.xml"))
    assert expected in text and "The map town (" in text, text


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ({"maps": [{"file": "town.xodr", "name": "../town"}]}, "is not a name of a map"),
        ({"maps": [{"file": "../town.xodr", "name": "town"}]}, "leads out"),
        ({"maps": [{"file": "other.xodr", "name": "town"}]}, "there is no file"),
        ({"maps": [{"file": "town.xodr", "name": "arterial"}]}, "is built in"),
        ({"maps": [{"file": "town.xodr", "name": "town"}] * 2}, "two maps"),
        ({"maps": [{"file": "town.xodr", "name": "town", "format": "osm"}]}, "correct or omit `format`"),
        ({"maps": [{"file": "town.xodr", "name": "town", "options": "x"}]}, "cannot be read"),
        ({"extends": "cartpole", "maps": [{"file": "town.xodr", "name": "town"}]}, "extend car_street"),
        ({"maps": [{"file": "town.xodr", "name": "town"}], "generate": {"count": 200_000}}, "generate.count"),
        ({"maps": [{"file": "town.xodr", "name": "town"}], "scenarios": "a.ndjson"}, "not both"),
    ],
)
def test_a_wrong_description_is_refused(platform: Platform, described: dict[str, Any], expected: str) -> None:
    assert expected in reason(register(platform, town(), **described))


def test_files_in_the_platforms_own_folder_are_refused(platform: Platform) -> None:
    files = {"town.xodr": town(), "Converted/town.net.xml": b"<net/>"}
    id = request_version(platform, files, maps=[{"file": "town.xodr", "name": "town"}])
    platform.jobs.dataset_registration.register(id)
    assert "writes the folder converted/" in reason(platform.catalogue.datasets.get(LOCAL_CALLER, id))


def test_a_map_without_a_route_of_useful_length_is_refused(platform: Platform) -> None:
    version = register(platform, town(length=30.0))
    assert "no route of 100 m" in reason(version)


def test_limits_of_the_operator_are_named(database: Database, tmp_path: Path) -> None:
    small = platform_of(database, tmp_path, replace(LIMITS, largest=2000))
    assert "WINDTUNNEL_MAX_MAP)" in reason(register(small, town()))
    assert "WINDTUNNEL_MAX_MAP)" in reason(register(small, gzip.compress(b" " * 1_000_000), "town.xodr.gz"))
    few = platform_of(database, tmp_path, replace(LIMITS, edges=7))
    assert "WINDTUNNEL_MAX_MAP_EDGES" in reason(register(few, town()))


def test_netconvert_is_ended_when_it_takes_too_long_or_too_much_memory(database: Database, tmp_path: Path) -> None:
    hasty = platform_of(database, tmp_path, replace(LIMITS, converter=ConverterLimits(seconds=0.05)))
    assert "took more than" in reason(register(hasty, extract(40), "town.osm"))
    poor = platform_of(database, tmp_path, replace(LIMITS, converter=ConverterLimits(memory=64 << 20)))
    assert "MiB of memory" in reason(register(poor, extract(60), "town.osm"))


def test_a_version_that_is_deleted_during_its_conversion_ends_the_conversion(platform: Platform) -> None:
    id = request_version(platform, {"town.osm": extract(80)}, maps=[{"file": "town.osm", "name": "town"}])
    job = threading.Thread(target=platform.jobs.dataset_registration.register, args=(id,))
    job.start()
    until(
        lambda: (
            "converting" in platform.catalogue.datasets.get(LOCAL_CALLER, id).get("progress", {}).get("message", "")
        ),
        message="the conversion does not begin",
    )
    platform.catalogue.datasets.delete(LOCAL_CALLER, id)
    job.join(30)
    assert not job.is_alive()
    assert not list((platform.jobs.dataset_registration._scratch).glob("map-*"))


def test_a_commonroad_file_is_a_map_and_a_scenario_for_each_planning_problem(platform: Platform) -> None:
    version = register(platform, planning_problem(), "lanes.xml")
    assert (version["state"], version["tasks"], version["maps"][0]["format"]) == ("ready", 1, "commonroad"), version
    scenario = platform.catalogue.datasets.scenarios(LOCAL_CALLER, "towns")[0][0]
    assert (scenario["name"], scenario["vehicles"], scenario["start"]["lane"]) == ("town-7", 2, 0)
    assert scenario["start"] == {"lane": 0, "pos": pytest.approx(20.0, abs=1.0), "speed": 15.0}
    dropped = {item["what"]: item["count"] for item in scenario["dropped"]}
    assert dropped["static obstacles"] == 1 and dropped["times of goals"] == 1
    assert any(what.startswith("recorded motions of obstacles") and count == 2 for what, count in dropped.items())


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (planning_problem(start=-500.0), "is not on a road"),
        (planning_problem(goal='<position><lanelet ref="99"/></position>'), "cannot be read"),
        (planning_problem(start=float("nan")), "too far away"),
        (planning_problem().replace(b"<x>1200.0</x>", b"<x>west</x>"), "cannot be read"),
        (b"<commonRoad/>", "it has 0 lanelets"),
        (planning_problem().replace(b"<exact>0.0</exact>", b"<exact>inf</exact>"), "cannot be read"),
    ],
)
def test_a_commonroad_file_without_a_drive_is_refused(platform: Platform, source: bytes, expected: str) -> None:
    assert expected in reason(register(platform, source, "lanes.xml"))


def test_scenarios_on_an_own_map_are_drawn_without_a_simulation(platform: Platform) -> None:
    assert register(platform, town(), generate={"count": 20, "seed": 0})["state"] == "ready"
    for index in range(20):
        scenario, outline = platform.catalogue.scenario_maps.find(LOCAL_CALLER, "towns", index)
        assert scenario["street"] == "town" and set(scenario["route"]) <= set(outline.lanes)
        assert scenario["name"] in scenario_map.svg(scenario, outline)
