"""Answers of simulations: the score over all tasks and the failures, the same while they run and after the end."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from core.domain.results.simulation_answer import answer_of
from core.domain.results.statistics import merged, sketched
from core.services.datasets.catalogue import find_dataset
from core.services.platform import Platform
from runtimes.harness.evaluator.result_batch import failure_sketch, sketch
from tests.api.conftest import LeasingWorker, Submit
from tests.api.test_comparisons import Play, scored
from tests.api.test_comparisons import play as play
from tests.dispatching import unended
from tests.reports import report_of

STREET: Mapping[str, Any] = find_dataset("car_street").definition


def driven(task: int) -> dict[str, Any]:
    """Return the result of a task: of 36, twelve crash, twelve collide and one is late."""
    outcome = ("collision", "arrived", "timeout" if task == 5 else "arrived")[task % 3]
    status = "crashed" if task % 3 == 1 else "ok"
    return scored(task, 60.0 + task, status=status, outcome=outcome)


def answer(client: FlaskClient, id: str) -> Any:
    return client.get(f"/v1/simulations/{id}").json["answer"]


def test_a_task_that_is_not_ok_counts_in_the_score_with_the_worst_value(client: FlaskClient, play: Play) -> None:
    id = play(driven, 36)
    found = answer(client, id)
    assert found["score"] == {
        "metric": "score", "title": "Driving score", "unit": "%", "better": "higher",
        "mean": pytest.approx(24 * 77.5 / 36, rel=1e-5), "low": pytest.approx(39.2, abs=0.1),
        "high": pytest.approx(64.1, abs=0.1), "tasks": 36, "not_ok": 12, "left_out": 0, "worst": 0.0, "ok_mean": 77.5,
    }  # fmt: skip
    summary = client.get(f"/v1/simulations/{id}/summary").json
    assert summary["metrics"]["score"]["mean_penalised"] == pytest.approx(found["score"]["mean"], rel=1e-5)


def test_failures_are_those_that_are_not_ok_and_those_of_the_dataset_by_outcome(
    client: FlaskClient, play: Play
) -> None:
    id = play(driven, 36)
    assert answer(client, id)["failures"] == {
        "count": 25, "tasks": 36, "share": pytest.approx(25 / 36), "not_ok": 12, "metric": "outcome",
        "outcomes": {"collision": 12, "stranded": 0, "timeout": 1},
    }  # fmt: skip
    sampled = client.get(f"/v1/simulations/{id}/sensitivity?metric=failed").json
    assert (sampled["failed"], sampled["sampled"]) == (25, 36)
    assert client.get("/v1/simulations").json["items"][0]["answer"] == answer(client, id)


def test_the_answer_is_the_same_quantity_while_it_runs_and_after_the_end(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    id = submit(dataset="car_street", scenarios={"range": [0, 36]}).json["id"]
    assert answer(client, id) is None
    launch = worker.launch(id)
    while True:
        lease = worker.lease(launch)
        results = [driven(task) for task in range(lease.cursor, lease.stop)]
        ok = [result["metrics"] for result in results if result["status"] == "ok"]
        counts = {name: sum(metrics["outcome"] == name for metrics in ok) for name in STREET["failure"]["in"]}
        report = report_of(
            lease,
            lease.cursor,
            lease.stop,
            b"".join(json.dumps(result, separators=(",", ":")).encode() + b"\n" for result in results),
            sketch=sketch(ok) | failure_sketch(counts, len(ok)),
        )
        assert platform.scheduling.leases.report(launch, report).accepted
        dispatch = worker.dispatch
        dispatch.tick(unended(dispatch), 1e9)
        if client.get(f"/v1/simulations/{id}").json["tasks"]["done"] == 36:
            break
    running = client.get(f"/v1/simulations/{id}").json
    assert running["state"] == "running" and running["metrics"].keys() == {"score"}
    worker.dispatch.close(id)
    platform.jobs.finalization.collect(id)
    ended = answer(client, id)
    assert running["answer"]["failures"] == ended["failures"] and ended["failures"]["count"] == 25
    for name in ("mean", "low", "high"):
        assert running["answer"]["score"][name] == pytest.approx(ended["score"][name], rel=1e-4)


def test_a_simulation_that_an_earlier_version_has_ended_has_an_answer(
    client: FlaskClient, play: Play, platform: Platform
) -> None:
    id = play(driven, 36)
    before = answer(client, id)

    def without_failures(c: Any) -> None:
        summary = json.loads(c.scalar(text("SELECT summary FROM simulations WHERE id=:id"), {"id": id}))
        del summary["failures"]
        stored = {"id": id, "summary": json.dumps(summary)}
        c.execute(text("UPDATE simulations SET headline=NULL, summary=:summary WHERE id=:id"), stored)

    platform.database.write(without_failures)
    assert answer(client, id) == before


def test_a_score_whose_dataset_has_no_worst_value_leaves_failed_tasks_out(client: FlaskClient) -> None:
    definition = {"metrics": [{"name": "x", "better": "higher"}], "score": {"metric": "x"}}
    statistics = {"x": {"count": 6, "mean": 3.0, "std": 1.0}}
    found = answer_of(definition, done=10, failed=4, metrics=statistics, failures=None, alone=True)
    assert found is not None and found["failures"]["count"] == 4
    score = found["score"]
    assert (score["mean"], score["tasks"], score["not_ok"], score["left_out"]) == (3.0, 6, 0, 4)


def test_a_dataset_without_a_score_has_failures_only(client: FlaskClient, finished: str) -> None:
    assert answer(client, finished) == {
        "score": None,
        "failures": {"count": 2, "tasks": 20, "share": 0.1, "not_ok": 2, "metric": None, "outcomes": {}},
    }


def test_an_interval_over_tasks_is_not_given_for_several_tasks_of_a_scenario(client: FlaskClient) -> None:
    statistics = {"score": {"count": 24, "mean": 30.0, "std": 1.0}}
    known: dict[str, Any] = {"done": 40, "failed": 16, "metrics": statistics, "failures": {}}
    together = answer_of(STREET, **known, alone=False)
    assert together is not None and together["score"]["mean"] == 18.0
    assert together["score"]["low"] is None and together["score"]["high"] is None
    alone = answer_of(STREET, **known, alone=True)
    assert alone is not None and alone["score"]["low"] < 18.0 < alone["score"]["high"]
    few = answer_of(STREET, **known | {"failed": 4, "done": 28}, alone=True)
    assert few is not None and few["score"]["mean"] > 18.0 and few["score"]["low"] is None


def test_a_score_whose_mean_is_not_known_is_not_taken_for_zero() -> None:
    statistics = {"score": {"count": 6, "mean": None, "std": None}}
    found = answer_of(STREET, done=40, failed=34, metrics=statistics, failures={}, alone=True)
    assert found is not None and found["score"] is None and found["failures"]["count"] == 34


def test_an_interval_of_the_summary_takes_precedence() -> None:
    statistics = {"score": {"count": 6, "mean": 30.0, "low_penalised": 12.0, "high_penalised": 23.0}}
    known: dict[str, Any] = {"done": 10, "metrics": statistics, "failures": {}, "alone": False}
    found = answer_of(STREET, failed=4, **known)
    assert found is not None and (found["score"]["low"], found["score"]["high"]) == (12.0, 23.0)


@given(st.lists(st.floats(0, 100), max_size=30), st.integers(0, 30))
def test_the_score_is_the_mean_of_all_values_with_the_worst_for_the_others(scores: list[float], failed: int) -> None:
    metrics = sketched_score(scores)
    found = answer_of(
        STREET, done=len(scores) + failed, failed=failed, metrics=metrics, failures=dict.fromkeys("ab", 0), alone=True
    )
    if not scores and not failed:
        assert found is None
        return
    assert found is not None
    every = [*scores, *[0.0] * failed]
    assert found["score"]["mean"] == pytest.approx(sum(every) / len(every), rel=1e-4, abs=1e-4)
    assert found["failures"]["count"] == failed


def sketched_score(scores: list[float]) -> dict[str, dict[str, Any]]:
    sums: dict[str, list[float]] = {}
    merged([sketch([{"score": score} for score in scores])], sums)
    return sketched(sums)
