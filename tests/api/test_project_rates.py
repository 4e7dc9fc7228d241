"""Rates and streams of projects: who has his share is refused with 429 and a time, and others go on."""

from dataclasses import replace

from werkzeug.test import TestResponse

from core.services.platform import Platform
from core.settings import Settings
from server import composition as root
from tests.api.people import People, own


def test_a_project_that_asks_too_fast_waits_and_others_do_not(
    people: People, platform: Platform, settings: Settings
) -> None:
    slow = replace(settings, multi_user=True, project_rate=1, project_burst=5)
    slowed = People(root.create_flask(platform, slow, {"level": 3, "missing": []}), people.tokens)
    answers = [slowed.ask("red viewer", "GET", "/v1/models") for _ in range(20)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert {answer.status_code for answer in answers} == {200, 429} and len(refused) >= 10
    problem = refused[0].json or {}
    assert problem["type"] == "/problems/too-many-requests" and "project red" in problem["detail"]
    assert refused[0].headers["Retry-After"] == "1"
    assert slowed.ask("red submitter", "GET", "/v1/models").status_code == 429, "they share it"
    assert slowed.ask("blue viewer", "GET", "/v1/models").status_code == 200
    assert slowed.ask("blue viewer", "GET", "/v1/projects/red/usage").status_code == 404, "it is not his to use up"
    assert slowed.ask("", "GET", "/healthz").status_code == 200


def test_a_user_leaves_streams_to_others(people: People) -> None:
    owned = {project: own(people, project)["simulation"] for project in ("red", "blue")}
    kept: list[TestResponse] = []

    def follow(who: str) -> TestResponse:
        answer = people.ask(
            who,
            "GET",
            f"/v1/simulations/{owned[who.partition(' ')[0]]}/events",
            headers={"Accept": "text/event-stream"},
        )
        kept.append(answer)
        return answer

    try:  # the platform of these tests has four streams
        assert follow("red viewer").status_code == 200
        refused = follow("red submitter")
        assert refused.status_code == 429 or follow("red maintainer").status_code == 429
        assert "too-many-requests" in kept[-1].text and kept[-1].headers["Retry-After"] == "5"
        assert follow("blue viewer").status_code == 200
    finally:
        for answer in kept:
            answer.close()
    assert follow("red viewer").status_code == 200
    kept[-1].close()
