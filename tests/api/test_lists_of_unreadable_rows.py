"""Lists and leaderboards over rows with a document that cannot be read: they have the others."""

import pytest
from flask.testing import FlaskClient
from sqlalchemy import text

from core.services.platform import Platform
from tests.api.answers import problem
from tests.api.test_datasets import PLAIN, Register
from tests.api.test_datasets import register as register
from tests.api.test_datasets import upload as upload
from tests.api.test_datasets import work as work
from tests.api.test_leaderboards import Play, leaderboard
from tests.api.test_leaderboards import play as play
from tests.api.test_model_comparisons import Runs
from tests.api.test_model_comparisons import runs as runs


def damage(platform: Platform, statement: str, **values: str) -> None:
    platform.database.write(lambda c: c.execute(text(statement), values))


def ids(client: FlaskClient, path: str) -> list[str]:
    response = client.get(path)
    assert response.status_code == 200, response.data
    return [item["id"] for item in response.json["items"]]


@pytest.mark.parametrize(("column", "stored"), [("provenance", "{"), ("headline", "[1]"), ("summary", "null")])
def test_a_leaderboard_leaves_out_a_simulation_that_cannot_be_read(
    client: FlaskClient, play: Play, platform: Platform, column: str, stored: str
) -> None:
    good, broken = play("good", lambda task: 200), play("broken", lambda task: 50)
    damage(platform, f"UPDATE simulations SET {column}=:stored WHERE id=:id", id=broken, stored=stored)
    assert leaderboard(client)["items"][0]["simulation"] == good
    assert ids(client, "/v1/simulations") == [broken, good]


@pytest.mark.parametrize(("table", "column"), [("comparisons", "spec"), ("comparison_models", "provenance")])
def test_a_comparison_that_cannot_be_read_fails_and_is_deleted_and_the_others_are_listed(
    client: FlaskClient, runs: Runs, platform: Platform, table: str, column: str
) -> None:
    broken, other = runs.create("new", "old"), runs.create("other", "old")
    key = "id" if table == "comparisons" else "comparison_id"
    damage(platform, f"UPDATE {table} SET {column}='{{}}' WHERE {key}=:id", id=broken)
    assert ids(client, "/v1/comparisons") == [other]
    assert "cannot be read" in problem(client.get(f"/v1/comparisons/{broken}"), 500, "unreadable-row")["detail"]
    for id in (broken, other):
        runs.advance(id)
    assert client.get("/v1/comparisons/counts").json["states"]["failed"] == 1
    assert client.delete(f"/v1/comparisons/{broken}").status_code == 204
    assert runs.get(other)["state"] == "running"


@pytest.mark.parametrize(("column", "stored"), [("described", "{"), ("source", "null"), ("described", "{}")])
def test_a_dataset_version_that_cannot_be_read_is_left_out_of_lists_and_deleted(
    client: FlaskClient, register: Register, platform: Platform, column: str, stored: str
) -> None:
    register("kept", PLAIN)
    broken = register("broken", PLAIN | {"other": b"1"})
    damage(platform, f"UPDATE dataset_versions SET {column}=:stored WHERE id=:id", id=broken["id"], stored=stored)
    registered = [item["name"] for item in client.get("/v1/datasets").json["items"] if item["registered"]]
    assert registered == ["kept"]
    assert client.get("/v1/datasets/broken/versions").json["items"] == []
    assert client.delete("/v1/datasets/broken").status_code == 204
