"""Estimates of gangs: replicas, executors that share their workers, and limits of workers and of what they have."""

from collections.abc import Iterator
from typing import Any

import pytest

from core.domain.scheduling.executor_config import ExecutorConfig, GangSupport
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.settings import Settings
from datasets.objectstore import open_store
from tests.api.people import People, own
from tests.databases import sqlite_database

CLUSTER = ExecutorConfig(
    name="cluster", kind="kubernetes", workers=16, gangs=GangSupport(unattended=True), allowed={"queue": ["teams"]}
)
LAPTOP = ExecutorConfig(name="laptop", kind="local", workers=64)
BENCH = ExecutorConfig(name="bench", kind="local", workers=2, gangs=GangSupport(crowds=True))
GANG = {"size": 8, "command": ["python", "model.py"], "communication": "torch"}
#: A model that the platform does not have yet.
UNKNOWN = {"model_reference": "file:heat.py", "scenarios": {"range": [0, 1]}}


@pytest.fixture
def platform(settings: Settings) -> Iterator[Platform]:
    """A platform with one executor on which gangs share workers, one on which they do not, and one without gangs."""
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    yield build(
        database,
        open_store(settings.objects),
        LocalNotifier(),
        PlatformOptions(home=settings.home, executor_configs=[LAPTOP, CLUSTER, BENCH], sandbox={"level": 3}),
    )
    database.close()


def limit(people: People, **limits: Any) -> None:
    assert people.ask("operator", "PUT", "/v1/projects/red/quotas", json=limits).status_code == 200


def estimate(people: People, **body: Any) -> Any:
    document = {"dataset": "program", "gang": GANG} | UNKNOWN | body
    answer = people.ask("red submitter", "POST", "/v1/estimates", json=document)
    assert answer.status_code == 200, answer.json
    return answer.json


def test_a_gang_has_all_of_its_replicas_on_the_executor_that_gives_it_most(people: People) -> None:
    assert estimate(people)["workers"] == 8
    assert estimate(people, gang=GANG | {"size": 4, "slices": 2, "communication": "none"})["workers"] == 8
    assert estimate(people, placement={"executor": "cluster"})["workers"] == 8
    assert estimate(people, placement={"executor": "bench"})["workers"] == 2, "they share what it has"


def test_an_executor_that_does_not_allow_what_is_named_gives_nothing(people: People) -> None:
    own(people, "red")
    body = {"dataset": "noop", "model": "brake", "placement": {"queue": "teams"}}
    answer = people.ask("red submitter", "POST", "/v1/estimates", json=body)
    assert answer.status_code == 200, answer.json
    assert answer.json["workers"] == 16, "the laptop, which has more, would not take it"


def test_a_gang_asks_for_a_part_of_each_limit_of_workers_and_of_what_they_have(people: People) -> None:
    limit(people, running_workers=16, resources={"cpu": 64, "memory": 64 << 30, "nvidia.com/gpu": 4})
    document = estimate(people, placement={"executor": "cluster", "cpu": 4.0, "memory": 2 << 30})
    assert document["quotas"]["running_workers"] == {"limit": 16, "used": 0, "asked": 8, "part": 0.5}
    assert document["resources"] == {
        "cpu": {"limit": 64, "used": 0, "asked": 32.0, "part": 0.5},
        "memory": {"limit": 64 << 30, "used": 0, "asked": 16 << 30, "part": 0.25},
        "nvidia.com/gpu": {"limit": 4, "used": 0, "asked": 0, "part": 0.0},
    }
    assert document["never_starts"] is None


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"running_workers": 7}, "`running_workers`: project red has 0 of 7, it needs 8"),
        ({"resources": {"cpu": 7}}, "`resources.cpu`: project red has 0 cores of 7 cores, it needs 8 cores"),
    ],
)
def test_a_gang_that_a_limit_keeps_from_ever_starting_is_told_so(
    people: People, limits: dict[str, Any], reason: str
) -> None:
    limit(people, **limits)
    assert reason in estimate(people, placement={"executor": "cluster"})["never_starts"]
    assert estimate(people, placement={"executor": "bench"})["never_starts"] is None
    assert estimate(people)["never_starts"] is None, "one executor can start it"


@pytest.mark.parametrize(
    ("executor", "workers", "reason"),
    [
        ("bench", 2, None),
        ("bench", 1, "project red has 0 of 1, it needs 2;"),
        ("cluster", 7, "project red has 0 of 7, it needs 8;"),
    ],
)
def test_a_gang_waits_for_the_workers_that_its_replicas_take_and_says_so(
    people: People, executor: str, workers: int, reason: str | None
) -> None:
    own(people, "red")
    limit(people, running_workers=workers)
    body = {"dataset": "program", "model": "brake", "scenarios": {"range": [0, 1]}, "gang": GANG}
    body["placement"] = {"executor": executor}
    made = people.ask("red submitter", "POST", "/v1/simulations", json=body)
    assert made.status_code == 201, made.json
    shown = people.ask("red viewer", "GET", f"/v1/simulations/{made.json['id']}").json["reason"]
    assert (reason in shown) if reason else ("quota" not in (shown or "")), shown


def test_what_can_do_with_fewer_workers_gets_those_that_its_limits_allow(people: People) -> None:
    own(people, "red")
    limit(people, resources={"cpu": 6})
    body: dict[str, Any] = {"dataset": "noop", "model": "brake", "placement": {"cpu": 2.0}}
    document = people.ask("red submitter", "POST", "/v1/estimates", json=body).json or {}
    assert (document["workers"], document["resources"]["cpu"]["part"]) == (3, 1.0)
    body["placement"] = {"cpu": 8.0}
    document = people.ask("red submitter", "POST", "/v1/estimates", json=body).json or {}
    assert "it needs 8 cores" in document["never_starts"]


def test_an_estimate_has_the_resources_of_the_user_too(people: People) -> None:
    assert estimate(people)["user_resources"]["cpu"] == {"limit": None, "used": 0, "asked": 8.0, "part": None}
