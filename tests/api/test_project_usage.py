"""Usage of projects: sums by anything, as JSON and CSV, for those who may read the project."""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from core.domain.usage.usage_sums import Prices
from core.services.platform import Platform
from core.store.tables import usage_intervals
from tests.api.people import People, own

#: 2026-11-29T00:00:00Z
SUNDAY = 1_795_910_400.0
HOUR = 3_600_000


def interval(**changes: Any) -> dict[str, Any]:
    """Return a row: ada's two workers of a core for an hour, from Sunday's last half hour on."""
    return {
        "launch_id": "l1",
        "number": 1,
        "project": "red",
        "user": "ada",
        "simulation_id": "s1",
        "kind": "simulation",
        "labels": '{"team":"a"}',
        "executor": "local",
        "workers": 2,
        "millicores": 1000,
        "mebibytes": 2048,
        "gpus": 1,
        "until_at": SUNDAY + 86_400.0 + 1800.0,
        "milliseconds": HOUR,
        "open": 0,
        "estimated": 0,
        "lost": 0,
    } | changes


@pytest.fixture
def prices(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Prices:
    prices = Prices(core=Fraction("0.5"), gibibyte=Fraction("0.01"), gpu=Fraction(3), currency="EUR")
    monkeypatch.setattr(platform.operations.usage_reports, "_prices", prices)
    monkeypatch.setattr(platform.submissions.estimates, "_prices", prices)
    return prices


@pytest.fixture
def used(people: People, platform: Platform) -> Iterator[People]:
    rows = [
        interval(),
        interval(launch_id="l2", user="bob", simulation_id="s2", labels="{}", workers=1, lost=1),
        interval(launch_id="l3", simulation_id="s3", kind="dry-run", until_at=SUNDAY + 7200.0, estimated=1),
        interval(launch_id="l4", project="blue", user="eve"),
    ]
    platform.database.write(lambda c: [c.execute(usage_intervals.insert(), row) for row in rows] and None)
    yield people


def usage(people: People, query: str = "", who: str = "red viewer", project: str = "red", **options: Any) -> Any:
    answer = people.ask(who, "GET", f"/v1/projects/{project}/usage{query}", **options)
    assert answer.status_code == 200, answer.json
    return answer


def test_a_day_has_the_part_of_an_interval_before_midnight(used: People) -> None:
    document = usage(used, "?by=day").json
    assert [(item["day"], item["core_hours"]) for item in document["items"]] == [
        ("2026-11-29", 1.0 + 0.5 + 2.0),
        ("2026-11-30", 1.0 + 0.5),
    ]
    assert document["total"]["core_hours"] == 5.0 and document["total"]["core_seconds"] == 18_000.0
    assert document["total"]["gpu_seconds"] == 18_000.0 and document["total"]["gib_seconds"] == 36_000.0
    assert (document["total"]["lost_core_seconds"], document["total"]["estimated_core_seconds"]) == (3600.0, 7200.0)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("user", {("ada",): 4.0, ("bob",): 1.0}),
        ("kind", {("simulation",): 3.0, ("dry-run",): 2.0}),
        ("simulation", {("s1",): 2.0, ("s2",): 1.0, ("s3",): 2.0}),
        ("label:team", {("a",): 4.0, ("",): 1.0}),
        ("label:nothing", {("",): 5.0}),
        ("label,project", {('{"team":"a"}', "red"): 4.0, ("{}", "red"): 1.0}),
        ("executor,user", {("local", "ada"): 4.0, ("local", "bob"): 1.0}),
    ],
)
def test_sums_are_of_the_groups_that_are_named_in_their_order(
    used: People, by: str, expected: dict[tuple[str, ...], float]
) -> None:
    document = usage(used, f"?by={by}").json
    names = document["by"]
    assert {tuple(item[name] for name in names): item["core_hours"] for item in document["items"]} == expected


def test_only_what_lies_between_the_moments_counts(used: People) -> None:
    assert usage(used, "?since=2026-11-30").json["total"]["core_hours"] == 1.5
    assert usage(used, "?until=2026-11-30").json["total"]["core_hours"] == 3.5
    assert usage(used, "?since=2026-11-30T00:15:00Z&until=2026-11-30T00:20:00Z").json["total"]["core_hours"] == 0.25
    assert usage(used, "?since=2026-11-30T01:15:00%2B01:00").json["total"]["core_hours"] == 0.75
    assert usage(used, "?since=2027-01-01&by=user").json["items"] == []


def test_time_that_the_platform_lost_is_free(used: People, prices: Prices) -> None:
    document = usage(used, "?by=user").json
    assert document["currency"] == "EUR"
    # 2 workers for an hour, twice: a core, 2 GiB and a GPU each
    assert [item["cost"] for item in document["items"]] == [4 * (0.5 + 2 * 0.01 + 3), 0.0]
    assert document["total"]["cost"] == pytest.approx(14.08)


def test_time_that_the_platform_lost_may_have_its_price(
    used: People, prices: Prices, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform.operations.usage_reports, "_prices", replace(prices, lost=True))
    assert usage(used).json["total"]["cost"] == pytest.approx(5 * 3.52)


def test_without_prices_there_is_no_cost(used: People) -> None:
    assert usage(used).json["total"]["cost"] is None


@pytest.mark.parametrize("headers", [{}, {"Accept": "text/csv"}])
def test_csv_has_a_line_for_each_sum(used: People, prices: Prices, headers: dict[str, str]) -> None:
    answer = usage(used, "?by=day,user" + ("" if headers else "&format=csv"), headers=headers)
    assert answer.content_type == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [(row["day"], row["user"]) for row in rows] == [
        ("2026-11-29", "ada"),
        ("2026-11-29", "bob"),
        ("2026-11-30", "ada"),
        ("2026-11-30", "bob"),
    ]
    assert sum(float(row["core_seconds"]) for row in rows) == usage(used).json["total"]["core_seconds"]


def test_who_may_read_a_project_reads_its_usage_and_nobody_else(used: People) -> None:
    for who in ("red viewer", "red submitter", "red maintainer", "operator"):
        assert usage(used, who=who).json["total"]["core_hours"] == 5.0
    assert usage(used, who="operator", project="blue").json["total"]["core_hours"] == 2.0
    assert used.ask("blue maintainer", "GET", "/v1/projects/red/usage").status_code == 404
    assert used.ask("", "GET", "/v1/projects/red/usage").status_code == 401


@pytest.mark.parametrize(
    "query",
    ["by=colour", "by=day,day", "by=label:", "since=yesterday", "since=2026-13-01", "until=2026-11-30T99:00Z", "of=x"],
)
def test_what_cannot_be_summed_up_is_refused(used: People, query: str) -> None:
    assert used.ask("red viewer", "GET", f"/v1/projects/red/usage?{query}").status_code == 422


def test_bounds_in_the_wrong_order_are_refused(used: People) -> None:
    answer = used.ask("red viewer", "GET", "/v1/projects/red/usage?since=2026-11-30&until=2026-11-29")
    assert answer.status_code == 422 and "after" in answer.json["detail"]


def test_without_accounts_it_is_the_usage_of_the_only_project(client: Any, platform: Platform) -> None:
    platform.database.write(lambda c: c.execute(usage_intervals.insert(), interval(project="default")) and None)
    assert client.get("/v1/projects/default/usage?by=day").json["total"]["core_hours"] == 2.0


def test_an_operator_sums_up_all_projects_also_those_that_are_gone(used: People) -> None:
    for method, path in (("POST", "/v1/projects/blue/close"), ("DELETE", "/v1/projects/blue")):
        assert used.ask("operator", method, path).status_code < 300
    document = used.ask("operator", "GET", "/v1/usage?by=project").json
    assert [(item["project"], item["core_hours"]) for item in document["items"]] == [("blue", 2.0), ("red", 5.0)]
    assert document["total"]["core_hours"] == 7.0 and document["project"] == ""
    assert used.ask("red maintainer", "GET", "/v1/usage").status_code == 403


# -- estimates


def estimate(people: People, **body: Any) -> Any:
    answer = people.ask("red submitter", "POST", "/v1/estimates", json={"dataset": "noop", "model": "brake"} | body)
    assert answer.status_code == 200, answer.json
    return answer.json


def succeeded(people: People, platform: Platform, **usage: Any) -> str:
    """Let a simulation of ten tasks have succeeded; return its id."""
    body = {"dataset": "noop", "model": "brake", "scenarios": {"range": [0, 10]}}
    id = str(people.ask("red submitter", "POST", "/v1/simulations", json=body).json["id"])

    def end(c: Any) -> None:
        c.exec_driver_sql(f"UPDATE simulations SET state='succeeded', summary='{{}}', ended_at=1 WHERE id='{id}'")
        c.execute(usage_intervals.insert(), interval(launch_id=id, simulation_id=id, **usage))

    platform.database.write(end)
    return id


def test_an_estimate_of_what_never_ran_invents_nothing(people: People) -> None:
    own(people, "red")
    document = estimate(people, scenarios={"range": [0, 40]}, repeat=2)
    assert (document["tasks"], document["basis"]["kind"]) == (80, "none")
    assert document["core_hours"] is None and document["cost"] is None and document["seconds"] is None


def test_an_estimate_is_of_what_tasks_of_the_same_model_took(
    people: People, platform: Platform, prices: Prices
) -> None:
    own(people, "red")
    succeeded(people, platform)  # 2 workers for an hour, 10 tasks
    succeeded(people, platform, lost=1)
    document = estimate(people, scenarios={"range": [0, 50]}, workers=2, placement={"cpu": 4.0})
    assert document["basis"] == {"kind": "model", "simulations": 2, "tasks": 20, "core_seconds_per_task": 4 * 360.0}
    assert document["core_hours"] == 50 * 4 * 360 / 3600
    assert document["cost"] == pytest.approx(5 * (4 * 0.5 + 2 * 0.01))
    assert document["seconds"] == 50 * 360 / document["workers"]


def test_an_estimate_of_another_model_rests_on_the_dataset(people: People, platform: Platform) -> None:
    own(people, "red")
    succeeded(people, platform)
    content = b"class Model:\n    def act(self, observation):\n        return [1.0]\n"
    headers = {"Content-Type": "text/x-python"}
    assert people.ask("red submitter", "PUT", "/v1/models/other", data=content, headers=headers).status_code == 201
    assert estimate(people, model="other")["basis"]["kind"] == "dataset"
    later = {"model_reference": "https://example.com/model.py", "runtime": "python"}
    answer = people.ask("red submitter", "POST", "/v1/estimates", json={"dataset": "noop", **later})
    assert answer.status_code == 200 and answer.json["basis"]["kind"] == "dataset"
    upload = {"upload": "01jz8w0k5qv3r1m9c2t7x4b6ne", "dataset": "noop"}
    assert people.ask("red submitter", "POST", "/v1/estimates", json=upload).json["basis"]["kind"] == "dataset"
    assert estimate(people, dataset="cartpole", model="cartpole")["basis"]["kind"] == "none"


def test_an_estimate_rests_on_the_own_project_alone(people: People, platform: Platform) -> None:
    own(people, "red")
    own(people, "blue")
    succeeded(people, platform)
    body = {"dataset": "noop", "model": "brake"}
    assert people.ask("blue submitter", "POST", "/v1/estimates", json=body).json["basis"]["kind"] == "none"


def test_an_estimate_shows_the_part_of_each_quota(people: People) -> None:
    own(people, "red")
    limits = {"tasks": 100, "running_workers": 4}
    assert people.ask("operator", "PUT", "/v1/projects/red/quotas", json=limits).status_code == 200
    quotas = estimate(people, scenarios={"range": [0, 40]}, workers=1)["quotas"]
    used = quotas["tasks"]["used"]
    assert quotas["tasks"] == {"limit": 100, "used": used, "asked": 40, "part": 0.4}
    assert quotas["running_workers"] == {"limit": 4, "used": 0, "asked": 1, "part": 0.25}
    assert quotas["queued_simulations"]["asked"] == 1 and quotas["queued_simulations"]["part"] is None
    assert quotas["stored_bytes"]["asked"] is None


def test_an_estimate_stores_nothing_and_refuses_what_a_submission_refuses(people: People) -> None:
    own(people, "red")
    before = people.ask("red viewer", "GET", "/v1/simulations").json
    estimate(people)
    assert people.ask("red viewer", "GET", "/v1/simulations").json == before
    unknown = people.ask("red submitter", "POST", "/v1/estimates", json={"dataset": "noop", "model": "nothing"})
    assert unknown.status_code in (404, 422), unknown.json
    assert people.ask("red viewer", "POST", "/v1/estimates", json={"dataset": "noop"}).status_code == 403
    assert people.ask("red submitter", "POST", "/v1/estimates", json={"dataset": "noop", "x": 1}).status_code == 422


def test_without_accounts_there_are_estimates_too(client: Any) -> None:
    answer = client.post("/v1/estimates", json={"dataset": "noop", "runtime": "python"})
    assert answer.status_code == 200, answer.json
    assert answer.json["user_quotas"] == {} and answer.json["quotas"]["tasks"]["limit"] is None
