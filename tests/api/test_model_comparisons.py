"""Comparisons of models: batches, verdicts that hold, models that join, failures, cancellation and requests."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from common.errors import StoreUnavailable
from core.domain.access.scopes import LOCAL_CALLER
from core.services.due_jobs import DueJobs
from core.services.platform import Platform
from core.store import comparisons as store
from runtimes.harness.evaluator.tasks import TaskPlan
from tests.api.answers import problem
from tests.api.conftest import LeasingWorker
from tests.reports import report_of

#: Returns the score of a model (by its name) in a scenario (by its index); None for a task that crashes.
Scores = Callable[[str, int], float | None]


@dataclass
class Runs:
    """Plays the simulations of comparisons with chosen scores, as runners and the job `compare` do."""

    client: FlaskClient
    platform: Platform
    worker: LeasingWorker
    scenarios: list[dict[str, Any]]
    played: list[tuple[str, int]] = field(default_factory=list)

    def create(self, *models: str, **members: Any) -> str:
        response = self.request(*models, **members)
        assert response.status_code == 201, response.data
        return str(response.json["id"])

    def request(self, *models: str, headers: Mapping[str, str] | None = None, **members: Any) -> TestResponse:
        body = {"models": models, "dataset": "car_street"} | members
        return self.client.post("/v1/comparisons", json=body, headers=headers)

    def get(self, id: str) -> dict[str, Any]:
        response = self.client.get(f"/v1/comparisons/{id}")
        assert response.status_code == 200, response.data
        document: dict[str, Any] = response.json
        return document

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        response = self.client.post(f"/v1/comparisons/{path}", json=body or None)
        assert response.status_code == 202, response.data
        document: dict[str, Any] = response.json
        return document

    def due(self) -> list[str]:
        return DueJobs(self.platform.database).of("compare")

    def advance(self, id: str) -> None:
        self.platform.jobs.comparison_batches.advance(id)

    def waiting(self, id: str) -> list[str]:
        """Return the simulations of a comparison that are queued."""
        with self.platform.database.read() as c:
            return [play.simulation_id for play in store.simulations_of(c, [id]) if play.simulation_state == "queued"]

    def play(self, simulation: str, scores: Scores) -> None:
        """Run one simulation to its end."""
        described = self.platform.submissions.simulations.get(LOCAL_CALLER, simulation)
        indexes, tasks = described.spec["scenarios"]["tasks"], described.tasks.total
        launch = self.worker.launch(simulation)
        while True:
            lease = self.worker.lease(launch)
            lines = b"".join(
                self._line(described.model.name, task, indexes, described.spec, scores)
                for task in range(lease.cursor, lease.stop)
            )
            assert self.platform.scheduling.leases.report(
                launch, report_of(lease, lease.cursor, lease.stop, lines)
            ).accepted
            if self.worker.dispatch.close(simulation):
                break
        self.platform.jobs.finalization.collect(simulation)
        self.played.append((described.model.name, tasks))

    def _line(self, model: str, task: int, indexes: list[int], spec: Mapping[str, Any], scores: Scores) -> bytes:
        combination, position = divmod(task, len(indexes) * spec["repeat"])
        repeat, position = divmod(position, len(indexes))
        index = indexes[position]
        score = scores(model, index)
        scenario = self.scenarios[index] | {"index": index, "repeat": repeat, "seed": index}
        if spec["sweep"]:
            [(name, values)] = spec["sweep"].items()
            scenario["params"] = {name: values[combination]}
        result = {
            "task": task,
            "status": "crashed" if score is None else "ok",
            "scenario": scenario,
            "metrics": {} if score is None else {"score": score},
            "error": "the model raised" if score is None else None,
            "artifacts": [],
            "timing": {"seconds": 0.5},
        }
        return json.dumps(result, separators=(",", ":")).encode() + b"\n"

    def finish(self, id: str, scores: Scores) -> dict[str, Any]:
        """Run a comparison to its end."""
        while True:
            assert id in self.due(), "a comparison whose simulations have ended is due"
            self.advance(id)
            if self.get(id)["state"] != "running":
                return self.get(id)
            waiting = self.waiting(id)
            assert waiting and id not in self.due(), "a comparison waits for its simulations"
            for simulation in waiting:
                self.play(simulation, scores)


@pytest.fixture
def runs(client: FlaskClient, platform: Platform, worker: LeasingWorker) -> Iterator[Runs]:
    for name, source in (("new", b"a"), ("old", b"b"), ("other", b"c")):
        body = b"class Model:\n    def act(self, observation):\n        return 0  # " + source + b"\n"
        put = client.put(f"/v1/models/{name}?filename=model.py", data=body)
        assert put.status_code == 201, put.data
    pages = [
        client.get(f"/v1/datasets/car_street/scenarios?limit=200&after={after}").json["items"] for after in (0, 200)
    ]
    yield Runs(client, platform, worker, [scenario for page in pages for scenario in page])


def better(model: str, index: int) -> float:
    """The model `new` is better by 20 of 100 points; scenarios differ by 10."""
    return (60 if model == "new" else 40) + index % 11


def equal(model: str, index: int) -> float:
    return 50.0 + index % 11


def test_a_comparison_stops_when_its_verdict_holds_and_says_what_it_saved(runs: Runs) -> None:
    id = runs.create("new", "old")
    [model] = (comparison := runs.finish(id, better))["models"]
    assert (comparison["state"], model["state"]) == ("finished", "finished")
    verdict = model["verdict"]
    assert (verdict["decision"], verdict["metric"], verdict["design"]) == ("better", "score", "population")
    assert verdict["mean"] == pytest.approx(20) and 0 < verdict["low"] < 20 < verdict["high"]
    assert verdict["count"] == model["played"] < 144 and verdict["decided_at"] <= verdict["count"]
    saving = verdict["saving"]
    assert saving["played"] == verdict["count"] and saving["pairs"] == 288 == comparison["scenarios"]
    assert saving["share"] == pytest.approx(1 - verdict["count"] / 288) and "were saved" in saving["sentence"]
    assert "new is better than old in score by 20" in verdict["sentence"]
    assert "random sample" in verdict["claim"] and (verdict["margin"], comparison["margin_from"]) == (2, "default")
    assert sum(tasks for name, tasks in runs.played if name == "old") == verdict["count"]
    assert [look["count"] for look in model["looks"]][-1] == verdict["count"]


def test_both_models_play_the_same_batches_and_each_scenario_once(runs: Runs, platform: Platform) -> None:
    comparison = runs.finish(runs.create("new", "old", scenarios={"range": [100, 160]}), equal)
    sides = [
        [
            platform.submissions.simulations.get(LOCAL_CALLER, play["id"]).spec["scenarios"]["tasks"]
            for play in side["simulations"]
        ]
        for side in (comparison["reference"], comparison["models"][0])
    ]
    assert sides[0] == sides[1]
    assert sorted(index for batch in sides[0] for index in batch) == list(range(100, 160))
    assert all(len(before) <= len(after) for before, after in pairwise(sides[0][:-1]))
    provenance = [
        platform.submissions.simulations.get(LOCAL_CALLER, side["simulations"][0]["id"]).provenance
        for side in comparison["models"]
    ]
    assert provenance[0].dataset.digest == comparison["dataset"]["digest"]


def test_an_exact_list_that_was_played_to_its_end_is_decided_by_its_mean(runs: Runs) -> None:
    comparison = runs.finish(
        runs.create("new", "old", scenarios={"range": [0, 50]}, design="exact", margin=0),
        lambda model, index: 50.0 + (index % 7 == 0 and model == "new"),
    )
    verdict = comparison["models"][0]["verdict"]
    assert verdict["count"] == 50 and verdict["decision"] == "better"
    assert verdict["low"] == verdict["mean"] == verdict["high"] == pytest.approx(8 / 50)


def test_simulations_have_the_names_of_the_models_where_another_model_has_the_same_content(
    client: FlaskClient, runs: Runs
) -> None:
    client.put("/v1/models/copy?filename=model.py", data=client.get("/v1/models/new/content").data)
    runs.finish(runs.create("new", "old"), better)
    assert {model for model, _ in runs.played} == {"new", "old"}


def test_the_label_of_a_comparison_is_not_given(client: FlaskClient, runs: Runs) -> None:
    body = {"models": ["new", "old"], "dataset": "car_street", "labels": {"comparison": "mine"}}
    assert "`comparison`" in problem(client.post("/v1/comparisons", json=body), 422, "invalid")["detail"]


def test_equal_models_end_equivalent_and_without_a_margin_undecided(runs: Runs) -> None:
    comparison = runs.finish(runs.create("new", "old", error_rate=0.1), equal)
    verdict = comparison["models"][0]["verdict"]
    assert verdict["decision"] == "equivalent" and verdict["claims"]["not_worse"] and verdict["count"] < 288
    assert (
        "equivalent to old in score within 2 points" in verdict["sentence"] and "90 % interval" in verdict["sentence"]
    )
    without = runs.finish(runs.create("new", "old", margin=0), equal)["models"][0]["verdict"]
    assert (without["decision"], without["count"], without["margin"]) == ("undecided", 288, 0)
    assert without["smallest"] > 0 and "would be shown with 80 % power" in without["sentence"]


def test_a_comparison_ends_at_not_worse_only_if_its_request_says_so(runs: Runs) -> None:
    def slightly_better(model: str, index: int) -> float:
        return 50.0 + index % 11 + (model == "new") * (index % 5 - 1.4)

    members: dict[str, Any] = {"margin": 3.9, "bound": 20}
    plain = runs.finish(runs.create("new", "old", **members), slightly_better)["models"][0]["verdict"]
    until = runs.finish(runs.create("new", "old", until="not_worse", **members), slightly_better)
    verdict = until["models"][0]["verdict"]
    assert until["until"] == "not_worse" and verdict["claims"]["not_worse"]
    assert verdict["count"] < plain["count"] and verdict["decision"] == "not_worse"


def test_several_models_share_an_error_rate_if_they_are_asked_to(runs: Runs) -> None:
    one = runs.create("new", "other", "old", scenarios={"range": [0, 20]})
    verdict = runs.finish(one, equal)["models"][0]["verdict"]
    assert verdict["error_rate"] == 0.05 and "at least one of their verdicts is wrong" in verdict["message"]
    family = runs.create("new", "other", "old", family=True, scenarios={"range": [0, 20]})
    verdict = runs.finish(family, equal)["models"][0]["verdict"]
    assert verdict["error_rate"] == 0.025 and "all 2 models together" in verdict["message"]


def test_the_seeds_of_models_follow_from_scenarios_in_all_batches(runs: Runs, platform: Platform) -> None:
    """By the number of the task, which begins again in each batch, 288 scenarios shared 54 streams of noise."""
    comparison = runs.finish(runs.create("new", "old", repeat=2, scenarios={"range": [0, 60]}), equal)
    seeds: list[dict[tuple[int, int], int]] = []
    for side in (comparison["models"][0], comparison["reference"]):
        of_side = {}
        for play in side["simulations"]:
            plan = TaskPlan(platform.submissions.simulations.get(LOCAL_CALLER, play["id"]).provenance.play.tasks)
            for task in range(plan.count):
                located = plan.locate(task)
                of_side[located.index, located.repeat] = plan.model_server_seed(task)
        assert len(set(of_side.values())) == len(of_side) == 2 * comparison["models"][0]["verdict"]["count"]
        seeds.append(of_side)
    assert seeds[0] == seeds[1], "both sides of a pair have the same"


def test_flips_of_a_comparison_are_counted_while_it_runs_and_listed_in_pages(runs: Runs) -> None:
    id = runs.create("new", "old", play_all=True, scenarios={"range": [0, 60]})
    model = runs.finish(id, crashing)["models"][0]
    assert model["flips"]["counts"] == {"broke": 60, "fixed": 0} and len(model["flips"]["broke"]) == 50
    flip = model["flips"]["broke"][0]
    assert (flip["outcome"], flip["to_outcome"]) == ("crashed", "ok") and flip["simulation"] in flip["replay"]
    page = runs.client.get(f"/v1/comparisons/{id}/flips?limit=1000").json
    assert page["items"][:50] == model["flips"]["broke"] and len(page["items"]) == 60 and page["next"] is None
    assert runs.client.get(f"/v1/comparisons/{id}/flips?direction=fixed").json["items"] == []
    problem(runs.client.get(f"/v1/comparisons/{id}/flips?model=1"), 422, "invalid")


def test_a_group_in_which_the_new_model_is_worse_has_regressed(runs: Runs) -> None:
    def worse_at_dense(model: str, index: int) -> float:
        return 50.0 - 40 * (model == "new" and runs.scenarios[index]["density"] == "dense")

    comparison = runs.finish(runs.create("new", "old", play_all=True), worse_at_dense)
    model = comparison["models"][0]
    assert model["verdict"]["decision"] == "worse" and model["verdict"]["count"] == 288
    verdicts = {group["group"]: group["verdict"] for group in model["groups"]["density"]}
    assert verdicts == {"dense": "regressed", "medium": "held", "sparse": "held"}
    worst = model["scenarios"]["worse"][0]
    assert worst["difference"] == -40 and runs.scenarios[worst["index"]]["density"] == "dense"
    task = runs.client.get(f"/v1/simulations/{worst['simulation']}/results?from={worst['task']}&limit=1")
    assert json.loads(task.data)["scenario"]["index"] == worst["index"]
    assert worst["to_simulation"] in [play["id"] for play in comparison["reference"]["simulations"]]


def test_several_models_are_compared_with_one_reference_that_is_played_once(runs: Runs) -> None:
    def scores(model: str, index: int) -> float:
        return {"new": 90.0, "other": 50.5, "old": 50.0}[model] + index % 3

    comparison = runs.finish(runs.create("new", "old", "other", reference="old"), scores)
    assert [model["name"] for model in comparison["models"]] == ["new", "other"]
    assert comparison["reference"]["name"] == "old"
    counts = [model["verdict"]["count"] for model in comparison["models"]]
    assert counts[0] < counts[1] == 288, "each model stops when its own verdict holds"
    assert sum(tasks for name, tasks in runs.played if name == "new") == counts[0]
    assert sum(tasks for name, tasks in runs.played if name == "old") == 288


def test_a_model_joins_a_finished_comparison_without_playing_the_old_ones_again(runs: Runs) -> None:
    id = runs.create("new", "old")
    before = runs.finish(id, better)
    runs.played.clear()
    joined = runs.post(f"{id}/models", models=["other"])
    assert joined["state"] == "running" and joined["models"][0] == before["models"][0]
    after = runs.finish(id, lambda model, index: better(model, index) - 20 * (model == "other"))
    assert after["models"][0] == before["models"][0], "results of a finished comparison never change"
    assert after["models"][1]["verdict"]["decision"] == "worse"
    played = after["models"][1]["verdict"]["count"]
    assert sum(tasks for name, tasks in runs.played if name == "other") == played
    again = max(0, played - before["models"][0]["verdict"]["count"])
    assert sum(tasks for name, tasks in runs.played if name == "old") == again
    assert not [name for name, _ in runs.played if name == "new"]


def test_a_verdict_does_not_depend_on_interruptions(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = runs.finish(runs.create("new", "old", seed=3), better)
    id = runs.create("new", "old", seed=3)
    accept = runs.platform.submissions.simulations.accept
    calls = 0

    def killed(*arguments: Any, **members: Any) -> Any:
        nonlocal calls
        calls += 1
        result = accept(*arguments, **members)
        if calls % 2:
            raise SystemExit("killed after a submission")
        return result

    monkeypatch.setattr(runs.platform.submissions.simulations, "accept", killed)
    while runs.get(id)["state"] == "running":
        try:
            runs.advance(id)
        except SystemExit:
            runs.platform.database.write(lambda c: store.change(c, id, claim=None, claim_until=0.0))  # it expires
            continue
        for simulation in runs.waiting(id):
            runs.play(simulation, better)
    disturbed = runs.get(id)
    assert disturbed["models"][0]["verdict"] == undisturbed["models"][0]["verdict"]
    assert disturbed["models"][0]["groups"] == undisturbed["models"][0]["groups"]
    batches = [play["batch"] for play in disturbed["reference"]["simulations"]]
    assert batches == sorted(set(batches)), "a batch has one simulation for each model"


def test_a_mistake_of_the_platform_is_the_reason_until_it_is_mended(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = runs.create("new", "old")
    with monkeypatch.context() as broken:
        broken.setattr(runs.platform.submissions.simulations, "accept", lambda *_, **__: 1 / 0)
        runs.advance(id)
    comparison = runs.get(id)
    assert (comparison["state"], comparison["reason"]) == (
        "running",
        "cannot go on: an internal error, which the log of jobs has",
    )
    runs.platform.database.write(lambda c: store.change(c, id, not_before=0.0))
    assert runs.finish(id, better)["models"][0]["verdict"]["decision"] == "better"


def crashing(model: str, index: int) -> float | None:
    return None if model == "new" else 50.0


def test_a_model_that_crashes_is_worse_not_failed(runs: Runs) -> None:
    comparison = runs.finish(runs.create("new", "old"), crashing)
    [model] = comparison["models"]
    assert (model["state"], model["verdict"]["decision"]) == ("finished", "worse")
    worst = model["scenarios"]["worse"][0]
    assert (worst["status"], worst["to_status"]) == ("crashed", "ok")


def test_repetitions_and_combinations_of_a_scenario_are_one_pair(runs: Runs) -> None:
    id = runs.create("new", "old", repeat=2, sweep={"latency_steps": [0, 2]}, scenarios={"range": [0, 60]})
    comparison = runs.finish(id, better)
    verdict = comparison["models"][0]["verdict"]
    assert verdict["pairs"] == 60 and verdict["mean"] == pytest.approx(20)
    assert sum(tasks for name, tasks in runs.played if name == "new") == 4 * verdict["count"]


def test_a_cancelled_simulation_fails_its_model_and_a_retry_goes_on_where_it_stopped(
    runs: Runs, platform: Platform
) -> None:
    id = runs.create("new", "old", scenarios={"range": [0, 40]})
    runs.advance(id)
    for simulation in runs.waiting(id):
        runs.play(simulation, equal)
    runs.advance(id)
    first = runs.get(id)["models"][0]["verdict"]
    [*_, stopped] = [play["id"] for play in runs.get(id)["models"][0]["simulations"]]
    platform.submissions.simulations.cancel(LOCAL_CALLER, stopped)
    for simulation in runs.waiting(id):
        runs.play(simulation, equal)
    runs.advance(id)
    comparison = runs.get(id)
    [model] = comparison["models"]
    assert (comparison["state"], model["state"]) == ("failed", "failed")
    assert stopped in model["reason"] and "cancelled" in model["reason"] and f"{id}/retry" in comparison["reason"]
    assert model["verdict"] == first, "what was played is kept"
    runs.played.clear()
    assert runs.post(f"{id}/retry")["state"] == "running"
    after = runs.finish(id, equal)
    assert after["models"][0]["verdict"]["count"] == 40
    assert sum(tasks for name, tasks in runs.played if name == "old") == 40 - 16 - 16
    problem(runs.client.post(f"/v1/comparisons/{id}/retry"), 409, "illegal-transition")


def test_a_cancelled_comparison_cancels_its_simulations_and_can_be_deleted(runs: Runs, platform: Platform) -> None:
    id = runs.create("new", "old")
    runs.advance(id)
    waiting = runs.waiting(id)
    problem(runs.client.delete(f"/v1/comparisons/{id}"), 409, "not-finished")
    assert runs.post(f"{id}/cancel")["state"] == "cancelling"
    problem(runs.client.post(f"/v1/comparisons/{id}/models", json={"models": ["other"]}), 409, "illegal-transition")
    runs.advance(id)
    platform.database.write(lambda c: store.change(c, id, not_before=0.0))
    runs.advance(id)
    comparison = runs.get(id)
    assert comparison["state"] == comparison["models"][0]["state"] == "cancelled"
    assert {platform.submissions.simulations.get(LOCAL_CALLER, simulation).state for simulation in waiting} == {
        "cancelled"
    }
    assert runs.client.delete(f"/v1/comparisons/{id}").status_code == 204
    problem(runs.client.get(f"/v1/comparisons/{id}"), 404, "unknown-comparison")
    problem(runs.client.get(f"/v1/simulations/{waiting[0]}"), 404, "unknown-simulation")


def test_what_a_comparison_needs_cannot_be_deleted(runs: Runs) -> None:
    id = runs.create("new", "old", scenarios={"range": [0, 20]})
    refused = problem(runs.client.delete("/v1/models/new"), 409, "in-use")
    assert refused["comparison"] == id
    comparison = runs.finish(id, equal)
    played = comparison["reference"]["simulations"][0]["id"]
    refused = problem(runs.client.delete(f"/v1/simulations/{played}"), 409, "in-use")
    assert refused["comparison"] == id and "delete the comparison" in refused["detail"]
    assert runs.client.delete("/v1/models/new").status_code == 204, "it has ended"


def test_a_comparison_goes_on_after_an_outage_of_the_object_store(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    id = runs.create("new", "old")
    runs.advance(id)
    for simulation in runs.waiting(id):
        runs.play(simulation, better)

    def absent(*_: Any) -> Any:
        raise StoreUnavailable("the object store does not answer")

    with monkeypatch.context() as outage:
        outage.setattr(runs.platform.analysis.results, "lines", absent)
        runs.advance(id)
    waiting = runs.get(id)
    assert waiting["state"] == "running" and "does not answer" in waiting["reason"] and id not in runs.due()
    runs.platform.database.write(lambda c: store.change(c, id, not_before=0.0))
    finished = runs.finish(id, better)
    assert finished["models"][0]["verdict"]["decision"] == "better" and finished["reason"] is None


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"models": ["new"]}, "models"),
        ({"models": ["new", "new@1"]}, "new and new@1 are the same model"),
        ({"models": ["new", "othr"]}, "Did you mean other?"),
        ({"models": ["new", "old"], "reference": "other"}, "`reference` is one of the `models`: new, old."),
        ({"models": ["new", "old"], "metric": "scor"}, "Did you mean score?"),
        ({"models": ["new", "old"], "metric": "lane_changes"}, "better direction: score"),
        ({"models": ["new", "old"], "error_rate": 0}, "error_rate"),
        ({"models": ["new", "old"], "margin": 100}, "`margin` of `score` must be below 100 %"),
        ({"models": ["new", "old"], "metric": "jerk_rms", "margin": 1}, "Name a `bound`"),
        ({"models": ["new", "old"], "metric": "jerk_rms", "until": "not_worse"}, "`until`: not_worse needs a `margin`"),
        ({"models": ["new", "old"], "until": "worse"}, "until"),
        ({"models": ["new", "old"], "design": "exact", "method": "normal"}, "`exact` has no sample"),
        ({"models": ["new", "old"], "scenarios": {"range": [0, 1]}}, "at least two scenarios"),
        ({"models": ["new", "old"], "scenarios": {"tasks": [1, 2, 1]}}, "twice"),
        ({"models": ["new", "old"], "dataset": "car_stret"}, "Did you mean car_street?"),
        ({"models": ["new", "old"], "dataset": "noop"}, "Name a `metric`: the dataset has no score."),
        ({"models": ["new", "old"], "runtimes": {"nwe": "python"}}, "`runtimes` names 'nwe'"),
        ({"models": ["new", "old"], "model": "new"}, "Unknown field"),
        ({"models": ["new", "old"], "worlds": 65}, "worlds: Write a whole number from 1 to 64, or auto."),
    ],
)
def test_a_request_that_can_never_run_names_what_is_wrong(runs: Runs, body: dict[str, Any], detail: str) -> None:
    response = runs.client.post("/v1/comparisons", json={"dataset": "car_street"} | body)
    assert response.status_code in (404, 422) and response.mimetype == "application/problem+json", response.data
    assert detail in json.dumps(response.json, ensure_ascii=False), response.json
    assert runs.client.get("/v1/comparisons").json == {"items": [], "next": None}


@pytest.mark.parametrize(("members", "worlds"), [({}, "auto"), ({"worlds": 4}, 4)])
def test_the_simulations_of_a_comparison_have_its_number_of_worlds(
    runs: Runs, platform: Platform, members: Mapping[str, Any], worlds: int | str
) -> None:
    runs.advance(id := runs.create("new", "old", **members))
    plays = [play["id"] for model in runs.get(id)["models"] for play in model["simulations"]]
    stored = [platform.submissions.simulations.get(LOCAL_CALLER, play) for play in plays]
    assert stored and {simulation.spec["worlds"] for simulation in stored} == {worlds}
    assert {simulation.provenance.play.worlds for simulation in stored} == {members.get("worlds")}


def test_a_model_that_is_in_a_comparison_cannot_join_it_again(runs: Runs) -> None:
    id = runs.create("new", "old")
    refused = runs.client.post(f"/v1/comparisons/{id}/models", json={"models": ["new@1"]})
    assert "same model" in problem(refused, 422, "invalid")["detail"]
    problem(runs.client.post(f"/v1/comparisons/{id}/models", json={"models": []}), 422, "invalid")


def test_a_repeated_request_with_the_same_key_creates_one_comparison(runs: Runs) -> None:
    headers = {"Idempotency-Key": "k"}
    first = runs.request("new", "old", headers=headers)
    again = runs.request("new", "old", headers=headers)
    assert again.status_code == 201 and again.headers["Idempotency-Replayed"] == "true"
    assert again.json["id"] == first.json["id"] and first.headers["Location"].endswith(first.json["id"])
    problem(runs.request("new", "other", headers=headers), 422, "idempotency-mismatch")
    assert len(runs.client.get("/v1/comparisons").json["items"]) == 1


def test_the_list_has_the_newest_first_with_verdicts_and_is_filtered(runs: Runs) -> None:
    finished = runs.create("new", "old", labels={"branch": "main"})
    runs.finish(finished, better)
    running = runs.create("new", "other")
    page = runs.client.get("/v1/comparisons?limit=1").json
    assert [item["id"] for item in page["items"]] == [running] and page["next"] == running
    [item] = runs.client.get(f"/v1/comparisons?after={page['next']}").json["items"]
    assert item["id"] == finished and item["labels"] == {"branch": "main"}
    assert item["models"][0]["verdict"]["decision"] == "better" and "groups" not in item["models"][0]
    by_state = runs.client.get("/v1/comparisons?state=finished&dataset=car_street").json["items"]
    assert [item["id"] for item in by_state] == [finished]
    problem(runs.client.get("/v1/comparisons?state=ended"), 422, "invalid")


def test_events_tell_each_batch_and_the_end(runs: Runs) -> None:
    id = runs.create("new", "old")
    runs.finish(id, better)
    stream = runs.client.get(f"/v1/comparisons/{id}/events").data.decode()
    types = [line.removeprefix("event: ") for line in stream.splitlines() if line.startswith("event: ")]
    assert types[0] == "state" and types[-2:] == ["model", "state"] and set(types[1:-2]) == {"batch"}
    assert '"decision":"better"' in stream and '"state":"finished"' in stream
    last = len(types)
    assert runs.client.get(f"/v1/comparisons/{id}/events", headers={"Last-Event-ID": str(last)}).status_code == 204


def test_the_simulations_of_a_comparison_have_its_id_as_a_label(runs: Runs) -> None:
    id = runs.create("new", "old", labels={"branch": "main"})
    runs.advance(id)
    listed = runs.client.get(f"/v1/simulations?label=comparison={id}").json["items"]
    assert len(listed) == 2 and all(item["labels"]["branch"] == "main" for item in listed)
