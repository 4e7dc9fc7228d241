"""Trusted runs: who may ask for them, what they are played with, and where their results count."""

import io
from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient

from common.errors import Invalid
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.states import State
from core.domain.submissions.submission import Submission
from core.services.analysis.replays import TRACE
from core.services.platform import Platform
from core.services.scheduling.dispatch import Dispatch
from core.settings import Settings
from tests.api.answers import MODEL, problem
from tests.api.conftest import LeasingWorker, Submit
from tests.api.test_leaderboards import Play, leaderboard
from tests.api.test_leaderboards import play as play
from tests.api.test_model_comparisons import Runs
from tests.api.test_model_comparisons import runs as runs
from tests.dispatching import last_submitted, unended
from tests.executor_configs import LOCAL


@pytest.fixture
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """Settings with the operator's decision that a test names, or a laptop's."""
    return replace(settings, trusted=getattr(request, "param", "auto"))


refusing = pytest.mark.parametrize("settings", ["no"], indirect=True)


def play_of(platform: Platform, worker: LeasingWorker, id: str) -> dict[str, Any]:
    """Launch a simulation, and return what its runner hands to evaluators."""
    launch = worker.launch(id)
    play: dict[str, Any] = platform.scheduling.leases.describe(launch)["play"]
    worker.finish(launch)
    return play


# -- the field


def test_a_trusted_run_arrives_at_the_evaluator_and_is_recorded(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    simulation = submit(trusted=True).json
    assert simulation["spec"]["trusted"] is simulation["provenance"]["play"]["trusted"] is True
    assert play_of(platform, worker, simulation["id"])["trusted"] is True
    form = {"model": (io.BytesIO(MODEL), "m.py"), "dataset": "noop", "trusted": "true"}
    assert client.post("/v1/forms/simulations", data=form).json["trusted"] is True


@pytest.mark.parametrize("members", [{}, {"trusted": False}])
def test_an_isolated_run_has_the_play_and_the_provenance_of_earlier_releases(
    submit: Submit, worker: LeasingWorker, platform: Platform, members: dict[str, Any]
) -> None:
    simulation = submit(**members).json
    assert simulation["trusted"] is simulation["spec"]["trusted"] is False
    assert "trusted" not in simulation["provenance"]["play"]
    assert "trusted" not in play_of(platform, worker, simulation["id"])


@pytest.mark.parametrize("value", [1, "yes", None, "true"])
def test_trusted_is_true_or_false(submit: Submit, value: object) -> None:
    assert "trusted" in problem(submit(trusted=value), 422, "invalid")["detail"]


def test_a_repeated_run_is_trusted_as_the_first_was(client: FlaskClient, submit: Submit, worker: LeasingWorker) -> None:
    worker.run_to_end(id := submit(trusted=True).json["id"])
    retried = client.post(f"/v1/simulations/{id}/retry", json={"only_failed": True}).json
    document = client.get(f"/v1/simulations/{id}").json
    rerun = client.post("/v1/reruns", json={name: document[name] for name in ("spec", "provenance")}).json
    assert retried["trusted"] is rerun["trusted"] is True


def test_a_gang_has_no_evaluator_to_run_its_program_in(platform: Platform, model: str) -> None:
    gang = {"size": 2, "command": ["python", "model.py"]}
    with pytest.raises(Invalid, match="leave `trusted` out"):
        platform.submissions.simulations.submit(
            LOCAL_CALLER, Submission(dataset="program", model=model, gang=gang, trusted=True)
        )


def test_trusted_and_isolated_runs_have_one_digest(client: FlaskClient, submit: Submit, worker: LeasingWorker) -> None:
    ids = [submit(trusted=trusted).json["id"] for trusted in (True, False)]
    for id in ids:
        worker.run_to_end(id)
    first, second = (client.get(f"/v1/simulations/{id}").json for id in ids)
    assert first["results_digest"] == second["results_digest"]
    assert first["provenance"]["play"].pop("trusted") and first["provenance"] == second["provenance"]


def test_a_summary_says_that_its_run_was_trusted(client: FlaskClient, submit: Submit, worker: LeasingWorker) -> None:
    ids = [submit(trusted=trusted).json["id"] for trusted in (True, False)]
    for id in ids:
        worker.run_to_end(id)
    trusted, isolated = (client.get(f"/v1/simulations/{id}/summary").json for id in ids)
    assert trusted.pop("trusted") is True and "trusted" not in isolated
    assert trusted.keys() == isolated.keys() and trusted["results_digest"] == isolated["results_digest"]


def test_a_replay_of_a_trusted_run_has_no_model_to_trust(
    submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    worker.run_to_end(id := submit(trusted=True).json["id"], artifacts={(0, TRACE, "x/y"): b"trace"})
    _, _, play, _ = platform.analysis.replays.inputs(LOCAL_CALLER, id, 0)
    assert "trusted" not in play and play["tasks"]


# -- permission


@refusing
def test_an_operator_that_does_not_allow_it_is_obeyed_and_named(client: FlaskClient, submit: Submit) -> None:
    refused = problem(submit(trusted=True), 422, "trusted-not-allowed")
    assert "Leave `trusted` out" in refused["detail"] and "WINDTUNNEL_TRUSTED=yes" in refused["detail"]
    assert client.get(refused["type"]).json["status"] == 422
    assert client.get("/v1/simulations").json["items"] == []
    assert submit(trusted=False).status_code == submit().status_code == 201


@refusing
@pytest.mark.parametrize("kind", ["checks", "simulations"])
def test_no_way_of_asking_goes_round_the_operator(client: FlaskClient, model: str, kind: str) -> None:
    document = {"dataset": "noop", "model": model, "trusted": True}
    problem(client.post(f"/v1/{kind}", json=document), 422, "trusted-not-allowed")
    form = {"model": (io.BytesIO(MODEL), "m.py"), "dataset": "noop", "trusted": "true"}
    problem(client.post(f"/v1/forms/{kind}", data=form), 422, "trusted-not-allowed")


@refusing
def test_a_comparison_is_refused_as_a_whole(runs: Runs) -> None:
    problem(runs.request("new", "old", trusted=True), 422, "trusted-not-allowed")
    assert runs.client.get("/v1/comparisons").json["items"] == []


def test_a_queued_run_ends_with_the_reason_if_the_operator_does_not_allow_it_any_more(
    client: FlaskClient, submit: Submit, platform: Platform
) -> None:
    id, isolated = submit(trusted=True).json["id"], submit().json["id"]
    dispatch = Dispatch(
        platform.database, platform.notifier, executor_configs=[LOCAL], runner_api_url="http://x", trusted=False
    )
    admitted = {simulation.id: dispatch.admit(simulation, LOCAL.name) for simulation in unended(dispatch)}
    assert (admitted[id], admitted[isolated]) == (False, True)
    platform.jobs.finalization.collect(id)
    ended = client.get(f"/v1/simulations/{id}").json
    assert ended["state"] == State.ERRORED and "WINDTUNNEL_TRUSTED=yes" in ended["reason"]


def test_an_admitted_run_is_not_launched_if_the_operator_does_not_allow_it_any_more(
    client: FlaskClient, submit: Submit, platform: Platform
) -> None:
    id = submit(trusted=True).json["id"]

    def dispatch(trusted: bool) -> Dispatch:
        return Dispatch(
            platform.database, platform.notifier, executor_configs=[LOCAL], runner_api_url="http://x", trusted=trusted
        )

    before, after = dispatch(True), dispatch(False)
    assert before.admit(last_submitted(before), LOCAL.name)
    assert after.launch(last_submitted(after)) is None
    platform.jobs.finalization.collect(id)
    assert client.get(f"/v1/simulations/{id}").json["state"] == State.ERRORED


# -- where its results count


def test_a_leaderboard_leaves_trusted_runs_out_and_says_how_many(client: FlaskClient, play: Play) -> None:
    play("honest", lambda task: 200)
    play("cheat", lambda task: 500, trusted=True)
    document = leaderboard(client)
    assert [item["model"]["name"] for item in document["items"]] == ["honest"]
    assert (document["trusted_left_out"], document["searched"]) == (1, 2)
    assert document["items"][0]["trusted"] is False


def test_a_leaderboard_that_is_asked_for_trusted_runs_marks_them(client: FlaskClient, play: Play) -> None:
    isolated = play("honest", lambda task: 200)
    play("honest", lambda task: 200, seed=1, trusted=True)
    play("cheat", lambda task: 500, trusted=True)
    for _ in range(2):  # the second time from memory
        document = leaderboard(client, trusted="true")
        names = [(item["model"]["name"], item["trusted"], item["pooled"]) for item in document["items"]]
        assert names == [("cheat", True, 1), ("honest", True, 2)] and document["trusted_left_out"] == 0
        assert [item["simulation"] for item in leaderboard(client)["items"]] == [isolated]


def test_of_equal_seeds_an_isolated_run_counts_before_a_trusted_one(client: FlaskClient, play: Play) -> None:
    play("mine", lambda task: 500, trusted=True)
    isolated = play("mine", lambda task: 200)
    (place,) = leaderboard(client, trusted="true")["items"]
    assert (place["simulation"], place["mean"], place["trusted"]) == (isolated, 200, False)


def test_a_comparison_of_a_trusted_and_an_isolated_run_is_labelled(
    client: FlaskClient, submit: Submit, worker: LeasingWorker
) -> None:
    trusted, isolated, other = (submit(trusted=each).json["id"] for each in (True, False, False))
    for id in (trusted, isolated, other):
        worker.run_to_end(id)

    def compared(first: str, second: str) -> tuple[list[bool], str | None]:
        document = client.get(f"/v1/simulations/{first}/comparison?to={second}").json
        return document["trusted"], document["notice"]

    flags, notice = compared(trusted, isolated)
    assert flags == [True, False] and notice and notice.startswith("The first is trusted and the second is isolated")
    flags, notice = compared(isolated, trusted)
    assert flags == [False, True] and notice and notice.startswith("The second is trusted and the first is isolated")
    assert compared(trusted, trusted)[1] and compared(isolated, other) == ([False, False], None)


@pytest.mark.parametrize("members", [{"trusted": True}, {}])
def test_the_simulations_of_a_comparison_are_trusted_if_it_asks_for_that(
    runs: Runs, platform: Platform, members: dict[str, Any]
) -> None:
    runs.advance(id := runs.create("new", "old", **members))
    document = runs.get(id)
    sides = [document["reference"], *document["models"]]
    plays = [
        platform.submissions.simulations.get(LOCAL_CALLER, play["id"]) for side in sides for play in side["simulations"]
    ]
    assert plays and {play.trusted for play in plays} == {bool(members)} == {document["trusted"]}
    assert (document["notice"] is not None) == bool(members)
    listed = runs.client.get("/v1/comparisons").json["items"][0]
    assert (listed["trusted"], listed["notice"]) == (document["trusted"], document["notice"])


def test_lists_of_simulations_say_which_are_trusted(client: FlaskClient, submit: Submit) -> None:
    submit()
    submit(trusted=True)
    assert [item["trusted"] for item in client.get("/v1/simulations").json["items"]] == [True, False]
