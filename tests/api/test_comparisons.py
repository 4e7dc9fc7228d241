"""Comparison of two simulations: the verdict, verdicts on groups, and the scenarios that differ most."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from flask.testing import FlaskClient

from core.services.platform import Platform
from tests.api.answers import problem
from tests.api.conftest import LeasingWorker, Submit
from tests.reports import report_of

STREETS = ("arterial", "crosswalk", "roundabout")
TASKS = 240

Play = Callable[..., str]


def scored(task: int, score: float | None, *, status: str = "ok", **metrics: Any) -> dict[str, Any]:
    """Return the result of a scenario of three streets in turn; ``score``: None for no number."""
    return {
        "task": task,
        "status": status,
        "scenario": {"index": task, "repeat": 0, "seed": task, "name": f"s{task}", "street": STREETS[task % 3]},
        "metrics": metrics if score is None else {"score": score, **metrics},
        "error": None if status == "ok" else "the model raised",
        "artifacts": [],
        "timing": {"seconds": 0.5},
    }


@pytest.fixture
def play(submit: Submit, worker: LeasingWorker, platform: Platform) -> Play:
    """Function that simulates scenarios of car_street with chosen results, to the end; return the simulation's id."""

    def run(result: Callable[[int], Mapping[str, Any]], tasks: int = TASKS, **fields: Any) -> str:
        id: str = submit(**{"dataset": "car_street", "scenarios": {"range": [0, tasks]}, **fields}).json["id"]
        launch = worker.launch(id)
        while True:
            lease = worker.lease(launch)
            lines = b"".join(
                json.dumps(result(task), separators=(",", ":")).encode() + b"\n"
                for task in range(lease.cursor, lease.stop)
            )
            assert platform.scheduling.leases.report(launch, report_of(lease, lease.cursor, lease.stop, lines)).accepted
            if worker.dispatch.close(id):
                break
        platform.jobs.finalization.collect(id)
        return id

    return run


def compared(client: FlaskClient, first: str, second: str, **query: Any) -> dict[str, Any]:
    response = client.get(f"/v1/simulations/{first}/comparison", query_string={"to": second, **query})
    assert response.status_code == 200, response.data
    document: dict[str, Any] = response.json
    return document


def test_simulations_of_two_versions_are_not_compared_and_it_says_which_they_are(
    client: FlaskClient, play: Play
) -> None:
    first = play(lambda task: scored(task, 50), 4)
    second = play(lambda task: scored(task, 50), 4, dataset="car_street@2")
    plans = [client.get(f"/v1/simulations/{id}").json["dataset"]["version"] for id in (first, second)]
    assert plans == ["1", "2"]
    refused = problem(client.get(f"/v1/simulations/{first}/comparison?to={second}"), 422, "invalid")
    assert "but car_street@1 and car_street@2: run one of them again" in refused["detail"]


def test_a_model_that_is_better_everywhere_is_better(client: FlaskClient, play: Play) -> None:
    first = play(lambda task: scored(task, 60 + task % 7))
    second = play(lambda task: scored(task, 40 + task % 5))
    document = compared(client, first, second)
    verdict = document["verdict"]
    assert verdict["decision"] == "better" and verdict["metric"] == "score" and verdict["claims"]["not_worse"]
    assert 0 < verdict["low"] <= verdict["mean"] <= verdict["high"]
    assert verdict["mean"] == pytest.approx(document["metrics"]["score"]["difference"])
    assert verdict["pairs"] == verdict["count"] == TASKS and verdict["design"] == "population"
    assert verdict["decided_at"] == TASKS and verdict["saving"] is None and verdict["p_better"] < 0.001
    assert "mine (first) is better than mine (second) in score" in verdict["sentence"]
    assert verdict["scale"] == {"kind": "declared", "bound": 100, "unit": "points"} and verdict["message"] is None
    assert compared(client, second, first)["verdict"]["decision"] == "worse"
    assert compared(client, first, first)["verdict"]["decision"] == "equivalent"
    assert compared(client, first, first, margin=0)["verdict"]["decision"] == "undecided"
    assert compared(client, first, first, design="exact", margin=0)["verdict"]["low"] == 0


def test_a_regression_on_one_street_is_named(client: FlaskClient, play: Play) -> None:
    first = play(lambda task: scored(task, 20 if task % 3 == 1 else 50 + task % 4))
    second = play(lambda task: scored(task, 50 + task % 4))
    streets = compared(client, first, second)["groups"]["street"]
    assert [(group["group"], group["verdict"], group["count"]) for group in streets] == [
        ("arterial", "held", 80), ("crosswalk", "regressed", 80), ("roundabout", "held", 80),
    ]  # fmt: skip
    crosswalk = streets[1]
    assert crosswalk["low"] <= crosswalk["mean"] <= crosswalk["high"] < 0
    assert (
        crosswalk["sentence"].startswith("crosswalk: regressed by more than 2 points; worse by")
        and streets[0]["smallest"] > 0
    )


def test_the_scenarios_that_differ_most_name_the_tasks_of_both(client: FlaskClient, play: Play) -> None:
    first = play(lambda task: scored(task, 100 - task) if task < 90 else scored(task, 0))
    second = play(lambda task: scored(task, 50), 100)
    document = compared(client, first, second)
    better, worse = document["scenarios"]["better"], document["scenarios"]["worse"]
    assert [item["task"] for item in better] == list(range(20))
    assert better[0] == {
        "name": "s0", "index": 0, "repeat": 0, "task": 0, "to_task": 0, "status": "ok", "to_status": "ok",
        "first": 100, "second": 50, "difference": 50,
    }  # fmt: skip
    assert [item["task"] for item in worse[:11]] == [*range(90, 100), 89]
    assert document["unpaired"] == {"here": TASKS - 100, "to": 0}


def test_a_failed_task_counts_as_the_worst_value(client: FlaskClient, play: Play) -> None:
    first = play(lambda task: scored(task, 90, status="crashed" if task % 2 else "ok"))
    second = play(lambda task: scored(task, 60))
    document = compared(client, first, second)
    assert document["verdict"]["mean"] == pytest.approx(-15) == document["metrics"]["score"]["difference"]
    worst = document["scenarios"]["worse"][0]
    assert (worst["status"], worst["first"], worst["difference"]) == ("crashed", 0, -60)


def test_a_pair_without_a_number_is_no_difference_and_no_evidence_of_equivalence(
    client: FlaskClient, play: Play
) -> None:
    first = play(lambda task: scored(task, None if task < 40 else 70))
    second = play(lambda task: scored(task, 60))
    verdict = compared(client, first, second, margin=15)["verdict"]
    assert (verdict["count"], verdict["without_value"]) == (TASKS, 40)
    assert verdict["mean"] == pytest.approx(10 * (TASKS - 40) / TASKS)
    assert verdict["claims"]["better"] and not verdict["claims"]["equivalent"]
    assert "40 of 240 pairs of tasks have no result to compare" in verdict["message"]


def test_combinations_of_a_sweep_are_one_scenario(client: FlaskClient, play: Play) -> None:
    def swept(task: int) -> dict[str, Any]:
        result = scored(task % 10, 50 + 10 * (task // 10))
        scenario = result["scenario"] | {"params": {"latency_steps": [0, 2][task // 10]}}
        return result | {"task": task, "scenario": scenario}

    first, second = (play(swept, 10, sweep={"latency_steps": [0, 2]}) for _ in range(2))
    unswept = play(lambda task: scored(task, 50), 10)
    verdict = compared(client, first, second)["verdict"]
    assert (verdict["pairs"], verdict["count"], verdict["tasks"]) == (10, 10, 20)
    for design in ("population", "exact"):
        document = compared(client, first, unswept, design=design)
        assert document["unpaired"] == {"here": 20, "to": 10} and document["verdict"]["pairs"] == 0
        assert document["verdict"]["mean"] is None and document["verdict"]["decision"] == "undecided"
        assert document["verdict"]["sentence"].startswith("No scenario has been played with both ")


@pytest.mark.parametrize("design", ["population", "exact"])
def test_simulations_without_a_result_are_compared_as_undecided(
    client: FlaskClient, submit: Submit, design: str
) -> None:
    first, second = (submit(dataset="car_street").json["id"] for _ in range(2))
    for other in (first, second):
        verdict = compared(client, first, other, design=design, margin=1)["verdict"]
        assert (verdict["decision"], verdict["pairs"], verdict["mean"]) == ("undecided", 0, None)


def test_another_metric_and_a_bound_can_be_named(client: FlaskClient, play: Play) -> None:
    first = play(lambda task: scored(task, 50, jerk_rms=1 + task % 3))
    second = play(lambda task: scored(task, 50, jerk_rms=90))
    by_sign = compared(client, first, second, metric="jerk_rms")["verdict"]
    assert by_sign["scale"]["kind"] == "sign" and by_sign["mean"] == 1 and "name a `bound`" in by_sign["message"]
    clipped = compared(client, first, second, metric="jerk_rms", bound=10)["verdict"]
    assert clipped["scale"] == {"kind": "clipped", "bound": 10, "unit": "m/s3"} and clipped["mean"] == 10
    assert "240 of the pairs" in clipped["message"]


@pytest.mark.parametrize("bound", ["1e-320", "1e-200", "1e155", "1e300"])
def test_a_bound_whose_square_is_no_number_is_refused(client: FlaskClient, play: Play, bound: str) -> None:
    id = play(lambda task: scored(task, 50), tasks=4)
    response = client.get(f"/v1/simulations/{id}/comparison?to={id}&metric=jerk_rms&bound={bound}")
    assert "1e-100 to 1e+100" in problem(response, 422, "invalid")["detail"]


def test_other_seeds_are_said_and_are_no_exact_comparison(client: FlaskClient, play: Play) -> None:
    def seeded(task: int, seed: int) -> dict[str, Any]:
        result = scored(task, 50 + (task * seed) % 7)
        return result | {"scenario": result["scenario"] | {"seed": seed}}

    first, second = play(lambda task: seeded(task, 1)), play(lambda task: seeded(task, 2))
    assert compared(client, first, second)["verdict"]["message"] == (
        f"{TASKS} of {TASKS} pairs of tasks had different seeds: what chance does on either side is among differences"
        " and flips."
    )
    assert compared(client, first, first)["verdict"]["message"] is None
    response = client.get(f"/v1/simulations/{first}/comparison?to={second}&design=exact")
    assert "the same `seed`" in problem(response, 422, "invalid")["detail"]


def test_an_exact_comparison_refutes_what_it_knows_to_be_false(client: FlaskClient, play: Play) -> None:
    id = play(lambda task: scored(task, 50), tasks=20)
    verdict = compared(client, id, id, design="exact", margin=1)["verdict"]
    assert verdict["decision"] == "equivalent"
    other = play(lambda task: scored(task, 50 + (10 if task % 3 == 0 else 0)), tasks=20)
    groups = compared(client, other, id, design="exact", margin=1)["groups"]["street"]
    assert [(group["group"], group["verdict"], group["low"]) for group in groups] == [
        ("arterial", "improved", 10.0),
        ("crosswalk", "held", 0.0),
        ("roundabout", "held", 0.0),
    ]
    assert verdict["refuted"] == {"equivalent": False, "better": True, "worse": True, "not_worse": False}


def test_a_metric_that_cannot_be_judged_is_refused(client: FlaskClient, play: Play, finished: str) -> None:
    first = play(lambda task: scored(task, 50), 10)
    path = f"/v1/simulations/{first}/comparison?to={first}"
    refused = problem(client.get(f"{path}&metric=colision"), 422, "invalid")
    assert refused["nearest"] == ["collision"] and "Did you mean collision?" in refused["detail"]
    refused = problem(client.get(f"{path}&metric=lane_changes"), 422, "invalid")
    assert "does not declare whether" in refused["detail"] and "score, " in refused["detail"]
    for query in ("bound=0", "bound=-1", "bound=nan", "bound=x", "margin=-1", "margin=100", "design=sample"):
        problem(client.get(f"{path}&{query}"), 422, "invalid")
    unranged = problem(client.get(f"{path}&metric=jerk_rms&margin=1"), 422, "invalid")
    assert "Name a `bound`" in unranged["detail"]
    document = compared(client, finished, finished)
    assert document["verdict"] is None and document["groups"] == {}, "the dataset noop has no score"


def test_the_results_of_simulations_that_have_ended_are_compared_once(
    client: FlaskClient, play: Play, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (play(lambda task: scored(task, 50 + task % 7), 20) for _ in range(2))
    document = compared(client, first, second)

    def unread(*_: Any, **__: Any) -> Any:
        raise AssertionError("the results are read again")

    monkeypatch.setattr(platform.analysis.results, "lines", unread)
    assert compared(client, first, second) == document
    with pytest.raises(AssertionError, match="500 == 200"):
        compared(client, first, second, bound=10)
    assert client.delete(f"/v1/simulations/{second}").status_code == 204
    problem(client.get(f"/v1/simulations/{first}/comparison?to={second}"), 404, "unknown-simulation")


def test_scenarios_that_broke_and_were_fixed_are_listed_with_pages(client: FlaskClient, play: Play) -> None:
    def outcome(task: int, broken: int) -> dict[str, Any]:
        return scored(task, 50, outcome="collision" if task % broken == 0 else "arrived", seconds=7.5)

    first, second = play(lambda task: outcome(task, 2)), play(lambda task: outcome(task, 3))
    flips = compared(client, first, second)["flips"]
    broke = [task for task in range(TASKS) if task % 2 == 0 and task % 3]
    fixed = [task for task in range(TASKS) if task % 2 and task % 3 == 0]
    assert flips["counts"] == {"broke": len(broke), "fixed": len(fixed)} and flips["p"] < 0.01
    assert [flip["index"] for flip in flips["broke"]] == broke[:50]
    assert flips["broke"][0] | {"name": None} == {
        "index": 2, "name": None, "repeat": 0, "params": {}, "outcome": "collision", "to_outcome": "arrived",
        "simulation": first, "task": 2, "to_simulation": second, "to_task": 2, "at": 7.5, "failures": 1,
        "to_failures": 0, "played": 1, "p": None,
        "replay": f"/compare/replay?left={first}.2&right={second}.2&at=7.5",
    }  # fmt: skip
    path = f"/v1/simulations/{first}/comparison/flips?to={second}&direction=fixed&limit=30"
    page = client.get(path).json
    assert [flip["index"] for flip in page["items"]] == fixed[:30] and page["next"] == 30
    rest = client.get(f"{path}&after=30").json
    assert [flip["index"] for flip in rest["items"]] == fixed[30:] and rest["next"] is None


def test_a_comparison_with_a_simulation_that_runs_has_not_its_one_look(
    client: FlaskClient, play: Play, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    second = play(lambda task: scored(task, 50 + task % 4), 64)
    id: str = submit(dataset="car_street", scenarios={"range": [0, 64]}).json["id"]
    launch = worker.launch(id)
    lease = worker.lease(launch)
    assert lease.stop < 64
    lines = b"".join(
        json.dumps(scored(task, 50 + task % 4), separators=(",", ":")).encode() + b"\n"
        for task in range(lease.cursor, lease.stop)
    )
    assert platform.scheduling.leases.report(launch, report_of(lease, lease.cursor, lease.stop, lines)).accepted
    verdict = compared(client, id, second)["verdict"]
    assert verdict["count"] == lease.stop and "still runs" in verdict["message"]


def test_a_value_that_stands_for_never_is_in_no_difference_and_is_counted(client: FlaskClient, play: Play) -> None:
    first = play(lambda task: scored(task, 50, min_ttc=100.0 if task % 4 == 0 else 3.0), 40)
    second = play(lambda task: scored(task, 50, min_ttc=2.0), 40)
    compared_metric = compared(client, first, second)["metrics"]["min_ttc"]
    assert (compared_metric["count"], compared_metric["difference"]) == (30, 1)
    assert (compared_metric["never"], compared_metric["to_never"]) == (10, 0)
