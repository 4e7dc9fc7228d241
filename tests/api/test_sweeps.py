"""Sweeps: a row for each combination of the swept parameters, as JSON, CSV and Parquet."""

import csv
import io
import json
from typing import Any

import pandas
import pytest
from flask.testing import FlaskClient

from core.domain.results import result_tally
from core.services.analysis import sweeps
from tests.api.answers import line, problem
from tests.api.conftest import LeasingWorker, Submit

BATCH, SLEEP = [1, 2, 4], [0, 1]


def swept_line(task: int) -> bytes:
    """Return the result line of a task of the sweep."""
    params = {"batch": BATCH[task // 8], "sleep_ms": SLEEP[task // 4 % 2]}
    result = json.loads(line(task, score=sum(params.values())))
    result["scenario"]["params"] = params
    return json.dumps(result, separators=(",", ":")).encode() + b"\n"


@pytest.fixture
def swept(submit: Submit, worker: LeasingWorker) -> str:
    """Id of a simulation of six combinations of two parameters with four tasks each; `score` is batch + sleep_ms."""
    id: str = submit(tasks=4, sweep={"batch": BATCH, "sleep_ms": SLEEP}).json["id"]
    worker.finish_unseen(worker.launch(id), line_of=swept_line)
    return id


EXPECTED = [({"batch": batch, "sleep_ms": sleep}, 4, batch + sleep) for batch in BATCH for sleep in SLEEP]


def rows_of(document: Any) -> list[tuple[dict[str, Any], int, float]]:
    return [(row["params"], row["tasks"]["done"], row["metrics"]["score"]["mean"]) for row in document["rows"]]


def test_a_sweep_has_a_row_for_each_combination(client: FlaskClient, swept: str) -> None:
    document = client.get(f"/v1/simulations/{swept}/sweep").json
    assert document["parameters"] == ["batch", "sleep_ms"] and rows_of(document) == EXPECTED
    summary = client.get(f"/v1/simulations/{swept}/summary").json
    assert summary["sweep"]["rows"] == document["rows"]
    assert list(summary["groups"]["params.batch"]) == ["1", "2", "4"]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_sweep_is_a_table_of_parameters_and_metrics(client: FlaskClient, swept: str, format: str) -> None:
    data = client.get(f"/v1/simulations/{swept}/sweep?format={format}").data
    if format == "csv":
        rows = list(csv.DictReader(io.StringIO(data.decode())))
    else:
        rows = pandas.read_parquet(io.BytesIO(data)).to_dict("records")
    assert [
        ({name: int(row[f"params.{name}"]) for name in ("batch", "sleep_ms")}, int(row["tasks.done"]),
         float(row["metrics.score.mean"]))
        for row in rows
    ] == EXPECTED  # fmt: skip
    assert {"metrics.score.low", "metrics.score.high", "statuses.ok"} <= rows[0].keys()


def test_rows_that_a_summary_leaves_out_are_computed(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(result_tally, "SWEPT", 4)
    monkeypatch.setattr(sweeps, "SWEPT", 4)
    swept = request.getfixturevalue("swept")
    summary = client.get(f"/v1/simulations/{swept}/summary").json
    assert not summary["sweep"]["complete"] and len(summary["sweep"]["rows"]) == 4
    document = client.get(f"/v1/simulations/{swept}/sweep").json
    assert rows_of(document) == EXPECTED and document["rows"][:4] == summary["sweep"]["rows"]


def test_a_simulation_without_a_sweep_is_one_combination(client: FlaskClient, finished: str) -> None:
    document = client.get(f"/v1/simulations/{finished}/sweep").json
    assert document["parameters"] == [] and [row["tasks"]["done"] for row in document["rows"]] == [20]
    assert client.get(f"/v1/simulations/{finished}/sweep?format=csv").data.count(b"\r\n") == 2


def test_a_sweep_is_known_after_the_end(client: FlaskClient, submit: Submit) -> None:
    path = f"/v1/simulations/{submit().json['id']}/sweep"
    problem(client.get(path), 409, "not-finished")
    problem(client.get(f"{path}?format=xml"), 422, "invalid")
