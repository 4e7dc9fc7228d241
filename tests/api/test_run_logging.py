"""Results that are logged to the MLflow run of a model: what is sent, once, and what a failure changes."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from common.errors import Invalid
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.results.run_metrics import metrics_of
from core.domain.scheduling.states import State
from core.domain.submissions.submission import Submission
from core.notifications.local_notifier import LocalNotifier
from core.services.due_jobs import DueJobs
from core.services.platform import Platform, PlatformOptions, build
from core.settings import Settings
from datasets.model_origins.config import MlflowServer, OriginConfig
from datasets.objectstore import open_store
from tests.api.conftest import LeasingWorker
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL
from tests.web_files import WebFiles, content, status, web_files

API = "/api/2.0"
PYTHON = b"class Model:\n    def act(self, observation):\n        return [0]\n"
LOG = f"{API}/mlflow/runs/log-batch"


@pytest.fixture
def server() -> Iterator[WebFiles]:
    """A server that answers like MLflow for the artifact policy.py of the run r1."""
    with web_files() as files:
        run = {"info": {"run_id": "r1", "artifact_uri": "mlflow-artifacts:/0/r1"}, "outputs": {}}
        listing = {"files": [{"path": "policy.py", "is_dir": False, "file_size": len(PYTHON)}]}
        for path, document in (
            ("/mlflow/runs/get?run_id=r1", {"run": run}),
            ("/mlflow/artifacts/list?run_id=r1", listing),
            ("/mlflow-artifacts/artifacts?path=0%2Fr1", listing),
        ):
            files.answers[API + path] = content(json.dumps(document).encode())
        files.answers[f"{API}/mlflow-artifacts/artifacts/0/r1/policy.py"] = content(PYTHON)
        files.answers[LOG] = content(b"{}")
        yield files


@pytest.fixture
def platform(settings: Settings, server: WebFiles) -> Iterator[Platform]:
    settings.home.mkdir()
    database = sqlite_database(settings.home / "windtunnel.db")
    lab = MlflowServer(name="lab", uri=server.origin, log_results=True, platform_url="https://sim.example/")
    servers = {"lab": lab, "closed": replace(lab, name="closed", log_results=False)}
    yield build(
        database,
        open_store(settings.objects),
        LocalNotifier(),
        PlatformOptions(
            home=settings.home,
            executor_configs=[LOCAL],
            sandbox={},
            max_upload=settings.max_upload,
            trusted=True,
            model_origins=OriginConfig(mlflow=servers),
        ),
    )
    database.close()


def submitted(platform: Platform, **fields: Any) -> str:
    """Submit a simulation of the run's model, with its model imported; return its id."""
    values = {"model_reference": "runs:/r1/policy.py", "connection": "lab", "log_to_run": True} | fields
    submission = Submission(dataset="noop", scenarios={"range": [0, 20]}, **values)
    id = platform.submissions.simulations.submit(LOCAL_CALLER, submission)[0].id
    for due in DueJobs(platform.database).of("import"):
        platform.submissions.model_imports.fetch(due)
    return id


def log_due(platform: Platform) -> int:
    """Run the jobs that log results and are due; return their number."""
    due = DueJobs(platform.database).of("log")
    for id in due:
        platform.jobs.run_logging.log(id)
    return len(due)


def run_logs(platform: Platform, id: str) -> list[dict[str, Any]]:
    """Return the events of the logging of a simulation's results."""
    return [
        dict(event.body) for event in platform.analysis.results.events.read(LOCAL_CALLER, id) if event.type == "run_log"
    ]


def test_results_are_logged_once_when_the_simulation_has_ended(
    platform: Platform, worker: LeasingWorker, server: WebFiles
) -> None:
    id = submitted(platform)
    assert log_due(platform) == 0
    worker.run_to_end(id)
    assert log_due(platform) == 1 and log_due(platform) == 0
    [body] = server.bodies
    document = json.loads(body)
    metrics = {item["key"]: item["value"] for item in document["metrics"]}
    assert document["run_id"] == "r1" and metrics["windtunnel/noop/tasks_total"] == 20
    mean = platform.submissions.simulations.get(LOCAL_CALLER, id).metrics["return"]["mean"]
    assert metrics["windtunnel/noop/return_mean"] == mean
    assert document["tags"] == [
        {
            "key": f"windtunnel.simulation.{id}",
            "value": f"succeeded https://sim.example/v1/simulations/{id}",
        }
    ]
    assert run_logs(platform, id) == [{"run": "r1", "logged": True, "message": "results are logged"}]


def test_the_tag_of_a_trusted_simulation_of_an_imported_model_says_so(
    platform: Platform, worker: LeasingWorker, server: WebFiles
) -> None:
    worker.run_to_end(id := submitted(platform, trusted=True))
    assert log_due(platform) == 1
    [tag] = json.loads(server.bodies[0])["tags"]
    assert tag["value"] == f"succeeded trusted https://sim.example/v1/simulations/{id}"


def test_a_server_that_is_away_is_tried_again_with_the_same_request(
    platform: Platform, worker: LeasingWorker, server: WebFiles
) -> None:
    id = submitted(platform)
    worker.run_to_end(id)
    server.answers[LOG] = status(503)
    assert log_due(platform) == 1 and log_due(platform) == 0  # it pauses
    assert platform.submissions.simulations.get(LOCAL_CALLER, id).state is State.SUCCEEDED
    [event] = run_logs(platform, id)
    assert not event["logged"] and "tried again later" in event["message"]
    server.answers[LOG] = content(b"{}")
    platform.jobs.run_logging.log(id)
    assert run_logs(platform, id)[-1]["logged"]
    assert len(set(server.bodies)) == 1


def test_a_refusal_is_an_event_and_changes_nothing_else(
    platform: Platform, worker: LeasingWorker, server: WebFiles
) -> None:
    id = submitted(platform)
    worker.run_to_end(id)
    server.answers[LOG] = status(403)
    assert log_due(platform) == 1 and log_due(platform) == 0
    assert platform.submissions.simulations.get(LOCAL_CALLER, id).state is State.SUCCEEDED
    [event] = run_logs(platform, id)
    assert not event["logged"] and "refuses the operator's credentials" in event["message"]


def test_a_stored_model_of_a_run_is_logged_to_its_run_too(
    platform: Platform, worker: LeasingWorker, server: WebFiles
) -> None:
    name = platform.submissions.simulations.get(LOCAL_CALLER, submitted(platform, log_to_run=False)).model.name
    id = submitted(platform, model=name, model_reference=None, connection=None)
    worker.run_to_end(id)
    assert log_due(platform) == 1 and len(server.bodies) == 1


def test_a_cancelled_simulation_is_logged_with_its_state(platform: Platform, server: WebFiles) -> None:
    id = submitted(platform)
    platform.submissions.simulations.cancel(LOCAL_CALLER, id)
    assert log_due(platform) == 1
    assert json.loads(server.bodies[0])["tags"][0]["value"].startswith("cancelled ")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"connection": "closed"}, "log_results"),
        ({"model_reference": None, "connection": None, "model": "idm"}, "for models of MLflow"),
    ],
)
def test_what_cannot_or_must_not_be_logged_is_refused_at_once(
    platform: Platform, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        submitted(platform, **fields)


def test_figures_that_mlflow_cannot_hold_are_left_out_and_names_are_made_of_its_characters() -> None:
    figures = {"mean": 1.0, "low": float("nan"), "high": None, "p50": float("inf"), "max": 3.0}
    summary = {"tasks": {"total": 2}, "metrics": {"größe[0]": figures}}
    assert metrics_of("d", summary) == {"windtunnel/d/tasks_total": 2.0, "windtunnel/d/gr__e_0__mean": 1.0}
