"""A client that an independent tool generates from openapi.yaml runs a simulation."""

import importlib
import io
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.system.platform_process import FINAL, ROOT, PlatformProcess
from tests.waiting import until

#: Installed on demand, in a separate environment.
GENERATOR = "openapi-python-client==0.29.1"
#: Content types that the generator treats as bytes.
OVERRIDES = """
content_type_overrides:
  application/zip: application/octet-stream
  image/svg+xml: application/octet-stream
  application/offset+octet-stream: application/octet-stream
  application/vnd.apache.parquet: application/octet-stream
  application/x-ndjson: application/octet-stream
  text/event-stream: application/octet-stream
  "*/*": application/octet-stream
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the generated package and its dependencies."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "config.yaml").write_text(OVERRIDES)
    uvx = Path(sys.executable).parent / "uvx"
    command = [
        str(uvx), "--from", GENERATOR, "openapi-python-client", "generate", "--path", str(ROOT / "openapi.yaml"),
        "--config", "config.yaml", "--meta", "none", "--output-path", "windtunnel_client", "--fail-on-warning",
    ]  # fmt: skip
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    assert process.returncode == 0, process.stdout + process.stderr
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or "uv"
    packages = ["attrs", "python-dateutil"]  # httpx is here already
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--target", "needs", *packages], cwd=folder, check=True, timeout=240
    )
    for path in (folder, folder / "needs"):
        sys.path.insert(0, str(path))
    yield folder
    for path in (folder, folder / "needs"):
        sys.path.remove(str(path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "windtunnel_client"]:
        del sys.modules[name]


@pytest.fixture
def client(generated: Path, platform: PlatformProcess) -> Iterator[Any]:
    package = importlib.import_module("windtunnel_client")
    with package.Client(base_url=platform.url, httpx_args={"trust_env": False}) as client:
        yield client


def operation(name: str) -> ModuleType:
    return importlib.import_module(f"windtunnel_client.api.{name}")


def model(name: str) -> Any:
    return getattr(importlib.import_module("windtunnel_client.models"), name)


def test_a_generated_client_follows_a_simulation_to_its_end(client: Any) -> None:
    scenarios = model("Scenarios")(range_=[0, 50])
    submission = model("Submission")(dataset="noop", runtime="python", scenarios=scenarios, seed=3)
    created = operation("simulations.create_simulation").sync(
        client=client, body=submission, idempotency_key="generated"
    )
    assert created.state == "queued" and created.tasks.total == 50
    get = operation("simulations.get_simulation").sync
    until(lambda: get(created.id, client=client).state in FINAL)
    described = get(created.id, client=client)
    assert described.state == "succeeded" and described.tasks.done == 50 and described.created_at <= described.ended_at
    summary = operation("simulations.get_simulation_summary").sync(created.id, client=client)
    assert summary.tasks["failed"] == 0 and "mean_penalised" in summary.metrics["value"]
    archive = operation("artifacts.get_simulation_archive").sync(created.id, client=client)
    assert archive.payload.read(4) == b"PK\x03\x04"
    listed = operation("simulations.list_simulations").sync(
        client=client, state=[model("ListSimulationsStateItem").SUCCEEDED], limit=1
    )
    assert [item.id for item in listed.items] == [created.id], "the newest simulation comes first"


def test_a_generated_client_uploads_a_model_with_its_submission_and_waits(client: Any) -> None:
    file = importlib.import_module("windtunnel_client.types").File(
        payload=io.BytesIO(b"class Model:\n    def act(self, observation):\n        return [0.5] * 4\n"),
        file_name="half.py",
    )
    form = model("SubmissionForm")(dataset="noop", model=file, scenarios='{"tasks": [3, 5]}', repeat=2)
    check = operation("submissions.check_form").sync(client=client, body=form)
    assert check.fits is True and check.reason is None
    file.payload.seek(0)
    started = time.monotonic()
    created = operation("submissions.submit_form").sync(client=client, body=form, prefer="wait=60")
    lines = operation("results.get_simulation_results").sync_detailed(created.id, client=client).content.splitlines()
    print(f"openapi-python-client: {time.monotonic() - started:.2f} s from submission to results")
    assert [model("Result").from_dict(json.loads(line)).status for line in lines] == ["ok"] * 4
    assert created.state == "succeeded" and created.tasks.done == 4 and created.model.name == "half"
    stored = operation("models.get_model").sync("half", client=client)
    assert stored.digest == created.model.digest
    table = operation("results.get_simulation_results").sync_detailed(
        created.id, client=client, format_=model("GetSimulationResultsFormat").CSV
    )
    assert table.status_code == 200 and table.content.count(b"\r\n") == 5
    events = operation("results.watch_simulation_events").sync(created.id, client=client)
    assert events.payload.read().count(b"event: state") >= 3


def test_a_generated_client_parses_a_problem(client: Any) -> None:
    submission = model("Submission")(dataset="nop", runtime="python")
    problem = operation("simulations.create_simulation").sync(client=client, body=submission)
    assert problem.status == 422 and problem.type_ == "/problems/unknown-dataset" and "noop" in problem.detail
