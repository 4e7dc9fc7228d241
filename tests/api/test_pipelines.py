"""Pipelines: steps in their order, outputs as inputs, equal steps, failures, retries, cancellation, and kills."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from common.errors import StoreUnavailable
from core.domain.access.audit import AuditFilter
from core.domain.access.scopes import LOCAL_CALLER, PLATFORM
from core.services.platform import Platform
from core.settings import Settings
from core.store import audit
from server import composition as root
from tests.api.answers import MODEL, problem
from tests.api.programs import OTHER, Programs, bench_platform
from tests.databases import sqlite_database

#: What a step of a program leaves, by the name of the step.
Left = Mapping[str, Sequence[Mapping[str, bytes]]]

GANG = {"size": 1, "command": ["python", "model.py"]}
ONE = {"range": [0, 1]}
TRAIN = {
    "name": "train",
    "submission": {
        "dataset": "program",
        "model": "mine",
        "scenarios": ONE,
        "gang": GANG,
        "outputs": {"policy": {"file": "policy.py", "as": "model", "name": "trained"}},
    },
}
EVALUATE = {
    "name": "evaluate",
    "submission": {"dataset": "noop", "model": {"from": "train", "output": "model"}, "scenarios": {"range": [0, 2]}},
}
COMPARE = {
    "name": "compare",
    "after": ["evaluate"],
    "comparison": {
        "dataset": "cartpole",
        "models": [{"from": "train", "output": "policy"}, "mine"],
        "scenarios": {"range": [0, 8]},
    },
}
POLICY: Left = {"train": [{"policy.py": OTHER}]}


def plain(name: str, **changes: Any) -> dict[str, Any]:
    submission = {"dataset": "noop", "model": "mine", "scenarios": ONE, "seed": sum(name.encode()) * 1000 + len(name)}
    return {"name": name, "submission": submission, **changes}


@pytest.fixture
def platform(settings: Settings) -> Iterator[Platform]:
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    yield bench_platform(settings.home, database)
    database.close()


class Pipelines(Programs):
    """Requests pipelines, and plays what they submit."""

    def create(self, *steps: Any, **members: Any) -> str:
        created = self.client.post("/v1/pipelines", json={"steps": steps, **members})
        assert created.status_code == 201, created.json
        return str(created.json["id"])

    def get(self, id: str) -> Any:
        return self.client.get(f"/v1/pipelines/{id}").json

    def states(self, id: str) -> dict[str, str]:
        return {step["name"]: step["state"] for step in self.get(id)["steps"]}

    def advance(self, id: str) -> Any:
        """Run the pipeline's job, once its claim and its pause are over; return the pipeline."""
        self.platform.database.write(
            lambda c: c.exec_driver_sql("UPDATE pipelines SET claim=NULL, claim_until=0, not_before=0")
        )
        self.platform.pipelines.pipeline_steps.advance(id)
        return self.get(id)

    def end(self, simulation: str, left: Sequence[Mapping[str, bytes]] = (), *, failed: bool = False) -> None:
        """Play a simulation to its end; if it failed, no task is ok."""
        total = self.client.get(f"/v1/simulations/{simulation}").json["tasks"]["total"]
        self.play(simulation, left or [{}] * total, range(total) if failed else ())
        self.collect(simulation)

    def follow(self, id: str, left: Left | None = None, *, failing: Sequence[str] = ()) -> Any:
        """Play a pipeline to its end; steps in ``failing`` fail. Return it."""
        for _ in range(100):
            pipeline = self.advance(id)
            if pipeline["state"] in ("succeeded", "failed", "cancelled"):
                return pipeline
            for step in pipeline["steps"]:
                if step["state"] == "running" and step["comparison_id"]:
                    self.end_comparison(step["comparison_id"])
                elif step["state"] == "running":
                    self.end(step["simulation_id"], (left or {}).get(step["name"], ()), failed=step["name"] in failing)
        raise AssertionError(f"the pipeline does not end: {pipeline}")

    def end_comparison(self, id: str) -> None:
        batches = self.platform.jobs.comparison_batches
        while True:
            self.platform.database.write(
                lambda c: c.exec_driver_sql("UPDATE comparisons SET claim=NULL, claim_until=0, not_before=0")
            )
            batches.advance(id)
            comparison = self.client.get(f"/v1/comparisons/{id}").json
            if comparison["state"] != "running":
                return
            sides = [comparison["reference"], *comparison["models"]]
            for simulation in {each["id"]: each for side in sides for each in side["simulations"]}.values():
                if simulation["state"] not in ("succeeded", "failed"):
                    self.end(simulation["id"])


@pytest.fixture
def pipelines(platform: Platform, settings: Settings) -> Pipelines:
    platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
    return Pipelines(root.create_flask(platform, settings, {"level": 3, "missing": []}).test_client(), platform)


def test_what_a_step_makes_is_the_input_of_the_next_ones_by_digest(pipelines: Pipelines) -> None:
    id = pipelines.create(COMPARE, EVALUATE, TRAIN, name="nightly", labels={"branch": "main"})
    assert pipelines.states(id) == {"compare": "waiting", "evaluate": "waiting", "train": "ready"}
    ended = pipelines.follow(id, POLICY)
    assert (ended["state"], ended["reason"], ended["name"]) == ("succeeded", None, "nightly"), ended
    by_name = {step["name"]: step for step in ended["steps"]}
    assert by_name["compare"]["after"] == ["evaluate", "train"]
    made = by_name["train"]["outputs"]["policy"]
    simulation = pipelines.client.get(f"/v1/simulations/{by_name['evaluate']['simulation_id']}").json
    assert simulation["model"]["digest"] == made["digest"] and simulation["model"]["name"] == "trained"
    assert simulation["labels"] == {"pipeline": id, "step": "evaluate"}
    comparison = pipelines.client.get(f"/v1/comparisons/{by_name['compare']['comparison_id']}").json
    assert comparison["models"][0]["digest"] == made["digest"] and comparison["labels"]["pipeline"] == id
    assert ended["counts"] == {"succeeded": 3}


def test_a_step_whose_model_was_deleted_runs_again_and_a_step_that_needs_it_says_so(pipelines: Pipelines) -> None:
    first = pipelines.create(TRAIN, EVALUATE)
    assert pipelines.follow(first, POLICY)["state"] == "succeeded"
    assert pipelines.client.delete("/v1/models/trained").status_code == 204
    again = pipelines.client.post(f"/v1/pipelines/{first}/retry", json={"from": "evaluate"})
    assert again.status_code == 202, again.json
    failed = pipelines.follow(first)
    assert "the model 'trained' that step 'train' made was deleted; run the pipeline again `from`" in failed["reason"]
    second = pipelines.create(TRAIN, EVALUATE)
    assert pipelines.follow(second, POLICY)["state"] == "succeeded"
    assert pipelines.states(second)["train"] == "succeeded"


def test_a_file_of_no_format_is_the_program_of_a_step_with_a_gang(pipelines: Pipelines) -> None:
    made = {**TRAIN, "submission": {**TRAIN["submission"], "outputs": {}}}
    program = {"from": "train", "output": "bin/solver"}
    run = {"name": "run", "submission": {"dataset": "program", "model": program, "scenarios": ONE, "gang": GANG}}
    id = pipelines.create(made, run)
    assert pipelines.follow(id, {"train": [{"bin/solver": b"no known format"}]})["state"] == "succeeded"
    simulation = pipelines.client.get(f"/v1/simulations/{pipelines.get(id)['steps'][1]['simulation_id']}").json
    assert (simulation["model"]["name"], simulation["model"]["format"]) == ("solver", "gang_program")
    played = {"name": "play", "submission": {"dataset": "noop", "model": program}}
    failed = pipelines.follow(pipelines.create(made, played), {"train": [{"bin/solver": b"no known format"}]})
    assert failed["state"] == "failed" and "`outputs` of that step may declare it, with a `format`" in failed["reason"]


def test_a_file_that_no_output_declares_is_a_model_by_its_name(pipelines: Pipelines) -> None:
    left = {**TRAIN, "submission": {**TRAIN["submission"], "outputs": {}}}
    reference = {"from": "train", "output": "deep/other.py"}
    evaluate = {"name": "evaluate", "submission": {"dataset": "noop", "model": reference, "scenarios": ONE}}
    ended = pipelines.follow(pipelines.create(left, evaluate), {"train": [{"deep/other.py": OTHER}]})
    assert ended["state"] == "succeeded", ended["reason"]
    missing = {**evaluate, "submission": {**evaluate["submission"], "model": {**reference, "output": "none.py"}}}
    failed = pipelines.follow(pipelines.create(left, missing, fresh=True), {"train": [{"deep/other.py": OTHER}]})
    assert failed["state"] == "failed" and "has left a file 'none.py'" in failed["steps"][1]["reason"]


def test_steps_that_are_equal_to_complete_ones_are_skipped_unless_they_are_fresh(pipelines: Pipelines) -> None:
    first = pipelines.follow(pipelines.create(TRAIN, EVALUATE, COMPARE), POLICY)
    second = pipelines.follow(pipelines.create(TRAIN, EVALUATE, COMPARE))
    assert second["state"] == "succeeded"
    for before, step in zip(first["steps"], second["steps"], strict=True):
        assert step["state"] == "skipped" and f"pipeline {first['id']}" in step["reason"]
        for member in ("simulation_id", "comparison_id", "outputs", "digest"):
            assert step[member] == before[member], member
    fresh = pipelines.follow(pipelines.create({**TRAIN, "fresh": True}, EVALUATE), POLICY)
    assert [step["state"] for step in fresh["steps"]] == ["succeeded", "skipped"]  # it made the same bytes
    other = pipelines.follow(pipelines.create({**TRAIN, "fresh": True}, EVALUATE), {"train": [{"policy.py": MODEL}]})
    assert [step["state"] for step in other["steps"]] == ["succeeded", "succeeded"]
    all_fresh = pipelines.create(TRAIN, EVALUATE, fresh=True)
    assert [step["state"] for step in pipelines.follow(all_fresh, POLICY)["steps"]] == ["succeeded", "succeeded"]


def test_a_step_is_not_equal_to_one_whose_simulation_was_deleted(pipelines: Pipelines) -> None:
    first = pipelines.follow(pipelines.create(plain("a")))
    assert pipelines.client.delete(f"/v1/simulations/{first['steps'][0]['simulation_id']}").status_code == 204
    second = pipelines.follow(pipelines.create(plain("a")))
    assert second["steps"][0]["state"] == "succeeded"


def test_what_waits_for_a_failed_step_is_not_run_and_the_rest_is(pipelines: Pipelines) -> None:
    id = pipelines.create(TRAIN, EVALUATE, COMPARE, plain("other"))
    ended = pipelines.follow(id, failing=["train"])
    assert ended["state"] == "failed"
    assert "step 'train' has failed" in ended["reason"] and f"/v1/pipelines/{id}/retry" in ended["reason"]
    states = {"train": "failed", "evaluate": "not_run", "compare": "not_run", "other": "succeeded"}
    assert pipelines.states(id) == states
    assert "step 'train' is not complete" in ended["steps"][2]["reason"]


def test_a_step_without_one_of_its_outputs_has_failed(pipelines: Pipelines) -> None:
    ended = pipelines.follow(pipelines.create(TRAIN, EVALUATE), {"train": [{"notes.txt": b"nothing else"}]})
    assert (ended["state"], ended["steps"][1]["state"]) == ("failed", "not_run")
    assert "policy: No task that is ok has left a file 'policy.py'" in ended["steps"][0]["reason"]


def test_a_step_is_tried_again_as_often_as_it_says(pipelines: Pipelines) -> None:
    id = pipelines.create(plain("a", retries=2))
    seen: list[str] = []
    for outcome in (True, True, False):
        step = pipelines.advance(id)["steps"][0]
        seen.append(step["simulation_id"])
        pipelines.end(step["simulation_id"], failed=outcome)
    ended = pipelines.advance(id)
    assert (ended["state"], ended["steps"][0]["attempt"], len(set(seen))) == ("succeeded", 3, 3)
    failed = pipelines.follow(pipelines.create(plain("b", retries=1)), failing=["b"])
    assert (failed["steps"][0]["state"], failed["steps"][0]["attempt"]) == ("failed", 2)


def test_a_failed_pipeline_goes_on_where_it_stopped(pipelines: Pipelines) -> None:
    id = pipelines.create(plain("first"), TRAIN, EVALUATE)
    before = pipelines.follow(id, failing=["train"])
    assert pipelines.client.post(f"/v1/pipelines/{id}/retry").status_code == 202
    assert pipelines.states(id) == {"first": "succeeded", "train": "ready", "evaluate": "waiting"}
    ended = pipelines.follow(id, POLICY)
    assert ended["state"] == "succeeded"
    assert ended["steps"][0]["simulation_id"] == before["steps"][0]["simulation_id"]
    refused = problem(pipelines.client.post(f"/v1/pipelines/{id}/retry"), 409, "illegal-transition")
    assert "name the step `from`" in refused["detail"]


def test_a_step_runs_again_with_those_after_it_which_are_skipped_for_equal_inputs(pipelines: Pipelines) -> None:
    id = pipelines.create(TRAIN, EVALUATE, plain("other"))
    before = pipelines.follow(id, POLICY)["steps"]
    again = pipelines.client.post(f"/v1/pipelines/{id}/retry", json={"from": "train"})
    assert [step["state"] for step in again.json["steps"]] == ["ready", "waiting", "succeeded"]
    after = pipelines.follow(id, {"train": [{"policy.py": MODEL}]})["steps"]
    assert after[0]["simulation_id"] != before[0]["simulation_id"]
    assert after[1]["state"] == "succeeded" and after[2]["simulation_id"] == before[2]["simulation_id"]
    assert pipelines.client.post(f"/v1/pipelines/{id}/retry", json={"from": "train"}).status_code == 202
    equal = pipelines.follow(id, {"train": [{"policy.py": MODEL}]})["steps"]
    assert [step["state"] for step in equal] == ["succeeded", "skipped", "succeeded"]
    assert equal[1]["simulation_id"] == after[1]["simulation_id"] and "its earlier run" in equal[1]["reason"]
    assert pipelines.client.post(f"/v1/pipelines/{id}/retry", json={"from": "train", "fresh": True}).status_code == 202
    fresh = pipelines.follow(id, {"train": [{"policy.py": MODEL}]})["steps"]
    assert [step["state"] for step in fresh] == ["succeeded"] * 3
    unknown = pipelines.client.post(f"/v1/pipelines/{id}/retry", json={"from": "trian"})
    assert "has no step 'trian'" in problem(unknown, 422, "invalid")["detail"]


def test_a_pipeline_that_runs_is_cancelled_with_what_it_submitted(pipelines: Pipelines) -> None:
    id = pipelines.create(TRAIN, EVALUATE)
    running = pipelines.advance(id)["steps"][0]
    problem(pipelines.client.delete(f"/v1/pipelines/{id}"), 409, "not-finished")
    problem(pipelines.client.post(f"/v1/pipelines/{id}/retry"), 409, "illegal-transition")
    cancelled = pipelines.client.post(f"/v1/pipelines/{id}/cancel")
    assert (cancelled.status_code, cancelled.json["state"]) == (202, "cancelling")
    pipelines.advance(id)
    assert pipelines.client.get(f"/v1/simulations/{running['simulation_id']}").json["state"] == "cancelled"
    ended = pipelines.advance(id)
    assert (ended["state"], pipelines.states(id)) == ("cancelled", {"train": "cancelled", "evaluate": "cancelled"})
    assert pipelines.client.post(f"/v1/pipelines/{id}/cancel").json["state"] == "cancelled"
    assert pipelines.client.post(f"/v1/pipelines/{id}/retry").status_code == 202
    assert pipelines.follow(id, POLICY)["state"] == "succeeded"
    problem(pipelines.client.post(f"/v1/pipelines/{id}/cancel"), 409, "illegal-transition")


def acts_of_jobs(pipelines: Pipelines) -> list[tuple[str, str, str, list[str]]]:
    """The entries of the audit log, the oldest first: act, project, subject, and what was affected."""
    with pipelines.platform.database.read() as c:
        rows = audit.page(c, PLATFORM, AuditFilter(), after=None, limit=100)
    return [(row.act, row.project, row.subject, json.loads(row.affected or "[]")) for row in reversed(rows)]


def test_the_audit_log_has_what_jobs_submit_and_cancel_for_a_pipeline_and_a_comparison(pipelines: Pipelines) -> None:
    pipelines.platform.files.models.add(LOCAL_CALLER, (OTHER,), filename="model.py", name="other")
    compared = {"dataset": "cartpole", "models": ["other", "mine"], "scenarios": {"range": [0, 8]}}
    id = pipelines.create({"name": "compare", "comparison": compared})
    comparison = pipelines.advance(id)["steps"][0]["comparison_id"]
    pipelines.platform.jobs.comparison_batches.advance(comparison)
    [made, *submitted] = acts_of_jobs(pipelines)
    assert made == ("create_comparison", "default", f"pipelines/{id}", [f"comparisons/{comparison}"])
    shown = pipelines.client.get(f"/v1/comparisons/{comparison}").json
    sides = (shown["reference"], *shown["models"])
    simulations = {f"simulations/{one['id']}" for side in sides for one in side["simulations"]}
    assert len(submitted) == len(simulations) == 2
    assert {act[:3] for act in submitted} == {("create_simulation", "default", f"comparisons/{comparison}")}
    assert {one for act in submitted for one in act[3]} == simulations
    pipelines.client.post(f"/v1/pipelines/{id}/cancel")
    for _ in range(3):
        pipelines.advance(id)
        pipelines.platform.database.write(
            lambda c: c.exec_driver_sql("UPDATE comparisons SET claim=NULL, claim_until=0, not_before=0")
        )
        pipelines.platform.jobs.comparison_batches.advance(comparison)
    assert pipelines.get(id)["state"] == "cancelled"
    cancelled = acts_of_jobs(pipelines)[3:]
    assert [act[:3] for act in cancelled] == [
        ("cancel_comparison", "default", f"pipelines/{id}"),
        ("cancel_simulation", "default", f"comparisons/{comparison}"),
    ]
    assert {one for act in cancelled for one in act[3]} == {f"comparisons/{comparison}"} | simulations


def test_a_deleted_pipeline_leaves_what_it_submitted(pipelines: Pipelines) -> None:
    id = pipelines.create(plain("a"))
    step = pipelines.follow(id)["steps"][0]
    assert pipelines.client.delete(f"/v1/pipelines/{id}").status_code == 204
    problem(pipelines.client.get(f"/v1/pipelines/{id}"), 404, "unknown-pipeline")
    assert pipelines.client.get(f"/v1/simulations/{step['simulation_id']}").status_code == 200


def test_a_simulation_that_is_deleted_before_its_step_has_seen_its_end_fails_the_step(pipelines: Pipelines) -> None:
    id = pipelines.create(plain("a"))
    simulation = pipelines.advance(id)["steps"][0]["simulation_id"]
    pipelines.end(simulation)
    assert pipelines.client.delete(f"/v1/simulations/{simulation}").status_code == 204
    ended = pipelines.advance(id)
    assert ended["state"] == "failed" and "was deleted" in ended["reason"]


def test_lists_have_pages_and_states_and_no_steps(pipelines: Pipelines) -> None:
    ids = [pipelines.create(plain(name)) for name in "abc"]
    pipelines.follow(ids[0])
    page = pipelines.client.get("/v1/pipelines?limit=2").json
    assert [item["id"] for item in page["items"]] == [ids[2], ids[1]] and "steps" not in page["items"][0]
    rest = pipelines.client.get(f"/v1/pipelines?limit=2&after={page['next']}").json
    assert ([item["id"] for item in rest["items"]], rest["next"]) == ([ids[0]], None)
    ended = pipelines.client.get("/v1/pipelines?state=succeeded&state=failed").json["items"]
    assert [(item["id"], item["counts"]) for item in ended] == [(ids[0], {"succeeded": 1})]


def test_events_name_each_state_of_each_step_until_the_end(pipelines: Pipelines) -> None:
    id = pipelines.create(plain("a"), plain("b", after=["a"]))
    pipelines.follow(id)
    events = pipelines.platform.pipelines.pipelines.events.read(LOCAL_CALLER, id)
    told = [(event.type, event.body.get("step", ""), event.body["state"]) for event in events]
    assert told == [
        ("state", "", "running"),
        ("step", "a", "running"),
        ("step", "a", "succeeded"),
        ("step", "b", "ready"),
        ("step", "b", "running"),
        ("step", "b", "succeeded"),
        ("state", "", "succeeded"),
    ]
    stream = pipelines.client.get(f"/v1/pipelines/{id}/events")
    assert stream.data.count(b"event: step") == 5
    assert pipelines.client.get(f"/v1/pipelines/{id}/events?after={len(told)}").status_code == 204


def test_an_idempotency_key_creates_one_pipeline(pipelines: Pipelines) -> None:
    body = {"steps": [plain("a")]}
    answers = [pipelines.client.post("/v1/pipelines", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert answers[0].json["id"] == answers[1].json["id"]
    assert answers[1].headers["Idempotency-Replayed"] == "true"
    other = {"steps": [plain("b")]}
    refused = pipelines.client.post("/v1/pipelines", json=other, headers={"Idempotency-Key": "k"})
    problem(refused, 422, "idempotency-mismatch")


LEFT = {"from": "a", "output": "policy.py"}
TRAINED = {"from": "train", "output": "model"}
TRAINED_DATA = {"from": "train", "output": "data.zip"}


@pytest.mark.parametrize(
    ("steps", "fragment"),
    [
        ([], "steps"),
        ([{"name": "a"}], "has a `submission` or a `comparison`"),
        ([{**plain("a"), "comparison": {}}], "has a `submission` or a `comparison`"),
        ([plain("a"), plain("a")], "Two steps have the name 'a'"),
        ([plain("a", after=["b"])], "waits for a step 'b'"),
        ([plain("a", after=["b"]), plain("b", after=["a"])], "in a circle"),
        ([{"name": "a", "submission": {"dataset": "noop", "model": "nonesuch"}}], "Step 'a': There is no model"),
        ([{"name": "a", "submission": {"dataset": "noop", "modle": "mine"}}], "Step 'a': modle: Unknown field"),
        ([EVALUATE], "'evaluate' waits for a step 'train'"),
        ([plain("train"), EVALUATE], "'evaluate': step 'train' makes 0 models"),
        ([TRAIN, {**COMPARE, "after": [], "comparison": {"dataset": "noop", "models": ["mine"]}}], "Step 'compare'"),
        ([{"name": "a", "submission": {**plain("a")["submission"], "labels": {"step": "x"}}}], "set by the platform"),
        ([{"name": "a", "submission": {"dataset": "noop", "model": "mine", "dry_run": True}}], "Step 'a': a dry run"),
        ([plain("a"), {"name": "b", "submission": {"dataset": "noop", "model": LEFT}}], "'a', which leaves no files"),
        ([TRAIN, {"name": "b", "submission": {"dataset": "nop", "model": TRAINED}}], "Step 'b': There is no dataset"),
        ([TRAIN, {"name": "b", "submission": {"dataset": "noop", "model": TRAINED, "params": {"x": 1}}}], "Step 'b': "),
        (
            [
                {"name": "a", "submission": {"dataset": "fmu", "model": "mine"}},
                {"name": "b", "submission": {"dataset": "noop", "model": LEFT}},
            ],
            "Step 'a': fmu is a template",
        ),
        ([TRAIN, {"name": "b", "submission": {"dataset": TRAINED_DATA, "model": "no"}}], "Step 'b': There is no model"),
        (
            [TRAIN, {**COMPARE, "comparison": {**COMPARE["comparison"], "models": [TRAINED, "no"]}, "after": []}],
            "Step 'compare': There is no model",
        ),
        (
            [TRAIN, {**COMPARE, "comparison": {**COMPARE["comparison"], "metric": "retrun"}, "after": []}],
            "Step 'compare': ",
        ),
    ],
)
def test_a_pipeline_that_can_never_run_is_refused_at_once(
    pipelines: Pipelines, steps: list[Any], fragment: str
) -> None:
    refused = pipelines.client.post("/v1/pipelines", json={"steps": steps})
    assert refused.status_code in {404, 422} and fragment in refused.json["detail"], refused.json
    assert refused.content_type == "application/problem+json"
    assert pipelines.client.get("/v1/pipelines").json["items"] == []


def test_a_job_that_is_killed_between_any_two_writes_submits_each_step_once(
    pipelines: Pipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of the job, one after the other, is the last that one attempt does."""
    database = pipelines.platform.database
    write = type(database).write
    allowed = 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal allowed
        if allowed == 0:
            raise KeyboardInterrupt  # as a kill: nothing of the job handles it
        allowed -= 1
        return write(*arguments, **options)

    id = pipelines.create(plain("a"), plain("b"), plain("c", after=["a", "b"]), plain("d", after=["c"]))
    for most in range(1, 40):
        allowed = most % 5 + 1
        database.write(lambda c: c.exec_driver_sql("UPDATE pipelines SET claim=NULL, claim_until=0, not_before=0"))
        with monkeypatch.context() as patched:
            patched.setattr(type(database), "write", counted)
            try:
                pipelines.platform.pipelines.pipeline_steps.advance(id)
            except KeyboardInterrupt:
                pass
        for step in pipelines.get(id)["steps"]:
            if step["state"] == "running" and step["run_state"] == "queued":
                pipelines.end(step["simulation_id"])
        if pipelines.get(id)["state"] == "succeeded":
            break
    assert pipelines.states(id) == dict.fromkeys("abcd", "succeeded")
    simulations = pipelines.client.get(f"/v1/simulations?label=pipeline={id}").json["items"]
    assert sorted(each["labels"]["step"] for each in simulations) == ["a", "b", "c", "d"]


def test_a_pipeline_waits_for_a_store_that_is_away_and_says_so(
    pipelines: Pipelines, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = pipelines.create(plain("a"))

    def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("The object store does not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(pipelines.platform.submissions.simulations, "accept", away)
        waiting = pipelines.advance(id)
    assert waiting["state"] == "running" and waiting["reason"] == "waits: The object store does not answer."
    assert pipelines.follow(id)["state"] == "succeeded"


@pytest.mark.parametrize(("column", "stored"), [("waits_for", "{"), ("document", "[1]")])
def test_a_pipeline_that_cannot_be_read_fails_and_is_deleted_and_the_others_go_on(
    pipelines: Pipelines, column: str, stored: str
) -> None:
    broken, other = pipelines.create(plain("one")), pipelines.create(plain("other"))
    pipelines.platform.database.write(
        lambda c: c.exec_driver_sql(f"UPDATE pipeline_steps SET {column}=? WHERE pipeline_id=?", (stored, broken))
    )
    for id in (broken, other):
        pipelines.advance(id)
    events = pipelines.platform.pipelines.pipelines.events.read(LOCAL_CALLER, broken)
    assert events[-1].body["state"] == "failed" and "cannot be read" in str(events[-1].body["reason"])
    assert pipelines.client.delete(f"/v1/pipelines/{broken}").status_code == 204
    assert pipelines.get(other)["state"] == "running"


REDUCE = {
    "name": "reduce",
    "submission": {"dataset": {"from": "simulate", "output": "results"}, "model": "mine", "scenarios": ONE},
}
SIMULATE = {"name": "simulate", "submission": {"dataset": "noop", "model": "mine", "scenarios": {"range": [0, 2]}}}


def test_the_results_of_a_step_are_the_dataset_of_a_program(pipelines: Pipelines) -> None:
    reduce = {**REDUCE, "submission": {**REDUCE["submission"], "gang": GANG}}
    id = pipelines.create(SIMULATE, reduce)
    pipelines.advance(id)
    [simulate, _] = pipelines.get(id)["steps"]
    pipelines.end(simulate["simulation_id"])
    pipelines.advance(id)  # the results become a dataset
    [version] = pipelines.client.get("/v1/datasets/simulate/versions").json["items"]
    pipelines.platform.jobs.dataset_registration.register(version["id"])
    assert pipelines.states(id) == {"simulate": "succeeded", "reduce": "ready"}
    assert pipelines.follow(id)["state"] == "succeeded"
    reduced = pipelines.get(id)["steps"][1]
    dataset = pipelines.client.get(f"/v1/simulations/{reduced['simulation_id']}").json["dataset"]
    assert dataset["name"] == "simulate" and dataset["digest"].startswith("sha256:")
    again = pipelines.create(SIMULATE, reduce)
    assert pipelines.follow(again)["state"] == "succeeded"
    assert pipelines.states(again) == {"simulate": "skipped", "reduce": "skipped"}


def test_results_are_those_of_a_submission_and_a_dataset(pipelines: Pipelines) -> None:
    for steps, fragment in (
        (
            [
                SIMULATE,
                {**EVALUATE, "submission": {"dataset": "noop", "model": {"from": "simulate", "output": "results"}}},
            ],
            "as a model; they are a dataset",
        ),
        (
            [SIMULATE, {**EVALUATE, "submission": {"dataset": "noop", "model": {"from": "simulate"}}}],
            'an output of a step is {"from": STEP, "output": NAME}: Object missing required field `output`',
        ),
        (
            [{"name": "simulate", "comparison": {"dataset": "cartpole", "models": ["mine", "mine@1"]}}, REDUCE],
            "which is a comparison and has none: refer to outputs of submissions",
        ),
    ):
        refused = pipelines.client.post("/v1/pipelines", json={"steps": steps})
        assert fragment.lower() in problem(refused, 422, "invalid")["detail"].lower()
