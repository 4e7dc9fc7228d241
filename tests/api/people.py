"""People of a platform with accounts: projects `red` and `blue`, a token of each role in each, an operator's token."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from core.services.platform import Platform
from core.settings import Settings
from server import composition as root

OPERATOR = "a token that the operator has chosen"
MODEL = b"class Model:\n    def act(self, observation):\n        return [0.0]\n"


@dataclass
class People:
    """A platform with the projects `red` and `blue`, and a token of each role in each."""

    app: Flask
    tokens: Mapping[str, str]

    def ask(self, who: str, method: str, path: str, **options: Any) -> TestResponse:
        headers = {**options.pop("headers", {})}
        if who:
            headers["Authorization"] = f"Bearer {self.tokens.get(who, who)}"
        return self.app.test_client().open(path, method=method, headers=headers, **options)


@pytest.fixture
def people(platform: Platform, settings: Settings) -> Iterator[People]:
    app = root.create_flask(platform, replace(settings, token=OPERATOR, multi_user=True), {"level": 3, "missing": []})
    people = People(app, {"operator": OPERATOR})
    tokens = {"operator": OPERATOR}
    for project in ("red", "blue"):
        assert people.ask("operator", "POST", "/v1/projects", json={"name": project}).status_code == 201
        for role in ("viewer", "submitter", "maintainer"):
            made = people.ask("operator", "POST", f"/v1/projects/{project}/tokens", json={"name": role, "role": role})
            assert made.status_code == 201, made.json
            tokens[f"{project} {role}"] = made.json["token"]
    people.tokens = tokens
    yield people


def own(people: People, project: str) -> dict[str, str]:
    """Make one of everything in a project; return the parameters of addresses that name them."""
    who = f"{project} submitter"
    model = people.ask(who, "PUT", "/v1/models/brake", data=MODEL, headers={"Content-Type": "text/x-python"})
    assert model.status_code == 201, model.json
    simulation = people.ask(who, "POST", "/v1/simulations", json={"dataset": "noop", "model": "brake"})
    assert simulation.status_code == 201, simulation.json
    upload = people.ask(who, "POST", "/v1/uploads", headers={"Tus-Resumable": "1.0.0", "Upload-Length": "9"})
    assert upload.status_code == 201
    return {
        "model": model.json["id"],
        "simulation": simulation.json["id"],
        "upload": upload.headers["Location"].rpartition("/")[2],
    }
