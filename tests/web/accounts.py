"""Platform with accounts for tests of its pages: two projects, people with roles in them, and browsers that sign in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from flask import Flask
from playwright.sync_api import Page
from werkzeug.test import TestResponse

from core.services.platform import Platform
from core.settings import Settings
from server import composition as root
from tests.web.pages import serve

OPERATOR = "a token that the operator has chosen"
#: Roles of the people, by project: `ada` is in both projects, the others are in one.
PEOPLE: Mapping[str, Mapping[str, str]] = {
    "ada": {"red": "maintainer", "blue": "submitter"},
    "vera": {"red": "viewer"},
    "bob": {"blue": "maintainer"},
    "nina": {},
}


@dataclass
class Team:
    """A platform with accounts, its origin, and a token of each of its people."""

    app: Flask
    origin: str
    tokens: dict[str, str] = field(default_factory=lambda: {"operator": OPERATOR})

    def ask(self, who: str, method: str, path: str, project: str | None = None, **options: Any) -> TestResponse:
        """Ask the API as one of the people, in a project."""
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        if project is not None:
            headers["Windtunnel-Project"] = project
        return self.app.test_client().open(path, method=method, headers=headers, **options)

    def simulation(self, project: str) -> str:
        """Submit a simulation in a project; return its id."""
        body = {"dataset": "noop", "runtime": "python"}
        created = self.ask("operator", "POST", "/v1/simulations", project, json=body)
        assert created.status_code == 201, created.json
        return str(created.json["id"])

    def sign_in(self, page: Page, who: str, address: str = "/simulations") -> None:
        """Sign in, as a person does, on the way to an address."""
        page.goto(self.origin + address)
        page.get_by_text("Sign in with a token").click()
        page.get_by_label("Token").fill(self.tokens[who])
        page.get_by_role("button", name="Sign in with the token").click()
        page.get_by_role("button", name="Sign out").wait_for()


@pytest.fixture
def team(platform: Platform, settings: Settings) -> Iterator[Team]:
    app = root.create_flask(platform, replace(settings, token=OPERATOR, multi_user=True), {"level": 3, "missing": []})
    serving = serve(app)
    team = Team(app, next(serving))
    for project in ("red", "blue"):
        assert team.ask("operator", "POST", "/v1/projects", json={"name": project}).status_code == 201
    for name, roles in PEOPLE.items():
        assert team.ask("operator", "POST", "/v1/users", json={"name": name}).status_code == 201
        for project, role in roles.items():
            put = team.ask("operator", "PUT", f"/v1/projects/{project}/members/{name}", json={"role": role})
            assert put.status_code == 204
        made = team.ask("operator", "POST", f"/v1/users/{name}/tokens", json={"name": "laptop"})
        team.tokens[name] = made.json["token"]
    yield team
    next(serving, None)
