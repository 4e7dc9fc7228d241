"""Departed submitters: a comparison or a pipeline of who has left submits nothing, says so, and is taken over."""

import pytest

from core.services.platform import Platform
from tests.api.people import MODEL, People

TYPE = {"Content-Type": "text/x-python"}


@pytest.mark.parametrize("kind", ["comparisons", "pipelines"])
def test_the_work_of_who_has_left_ends_with_the_next_step_and_goes_on_for_who_takes_it(
    people: People, platform: Platform, kind: str
) -> None:
    for name in ("brake", "other"):
        sent = people.ask("red maintainer", "PUT", f"/v1/models/{name}", data=MODEL + name.encode(), headers=TYPE)
        assert sent.status_code == 201, sent.json
    invitation = people.ask("operator", "POST", "/v1/users", json={"name": "ada"}).json["invitation"]
    member = people.ask("operator", "PUT", "/v1/projects/red/members/ada", json={"role": "submitter"})
    assert member.status_code in (200, 201, 204), member.json
    redeemed = people.ask("", "POST", "/v1/users/ada/tokens", json={"invitation": invitation, "name": "first"})
    assert redeemed.status_code == 201, redeemed.json
    body = {
        "comparisons": {"dataset": "car_street", "models": ["brake", "other"]},
        "pipelines": {"steps": [{"name": "only", "submission": {"dataset": "noop", "model": "brake"}}]},
    }[kind]
    created = people.ask(redeemed.json["token"], "POST", f"/v1/{kind}", json=body)
    assert created.status_code == 201, created.json
    id = created.json["id"]
    assert people.ask("operator", "DELETE", "/v1/users/ada").status_code == 204
    advance = {
        "comparisons": platform.jobs.comparison_batches.advance,
        "pipelines": platform.pipelines.pipeline_steps.advance,
    }[kind]
    advance(id)
    ended = people.ask("red viewer", "GET", f"/v1/{kind}/{id}")
    assert ended.json["state"] == "failed" and ended.json["submitted_by"] == "ada"
    assert "ada may not submit in red any more. Who may can try it again" in ended.text
    assert people.ask("red viewer", "GET", "/v1/simulations").json["items"] == []
    taken = people.ask("red maintainer", "POST", f"/v1/{kind}/{id}/retry")
    assert taken.status_code == 202 and taken.json["submitted_by"] not in ("ada", None), taken.json
    advance(id)
    found = people.ask("red viewer", "GET", "/v1/simulations").json["items"]
    assert {item["submitted_by"] for item in found} == {taken.json["submitted_by"]}
    assert people.ask("red viewer", "GET", f"/v1/{kind}/{id}").json["state"] == "running"
