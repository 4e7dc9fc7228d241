"""Roles: each has what the one below it has, and every route has a verb that the table knows."""

from itertools import pairwise

import pytest
from flask import Flask

from api import application
from core.domain.access.roles import MEANINGS, VERBS, AccessRole, Verb

#: Routes that anybody may ask for: an orchestrator's probes, the description of problems, and a browser's session.
OPEN = {
    "/healthz",
    "/readyz",
    "/problems/<name:slug>",
    "/v1/session",
    # what is asked for decides, and the service that is asked
    "/v1/projects/<name:project>/tokens",
    "/v1/projects/<name:project>/tokens/<id:token>",
    "/v1/users/<account:user>/tokens",
    "/v1/users/<account:user>/tokens/<id:token>",
    "/v1/audit",
    # who is not signed in yet, and each user's own ways
    "/v1/sign-in",
    "/v1/sign-in/password",
    "/v1/sign-in/invitation",
    "/v1/sign-in/passkey/question",
    "/v1/sign-in/passkey",
    "/v1/sign-in/providers/<name:provider>",
    "/v1/sign-in/providers/<name:provider>/answer",
    "/v1/sign-in/devices",
    "/v1/sign-in/devices/tokens",
    "/v1/sign-in/devices/<name:code>",
    "/v1/users/<name:user>/sign-in-methods",
    "/v1/users/<name:user>/password",
    "/v1/users/<name:user>/passkeys/question",
    "/v1/users/<name:user>/passkeys",
    "/v1/users/<name:user>/passkeys/<passkey>",
    "/v1/users/<name:user>/providers/<name:provider>",
}
#: Questions of which the body is too long for a query.
ASKED = {"POST /v1/projects/<name:project>/retention/dry-run"}


@pytest.fixture(scope="module")
def app() -> Flask:
    return application.with_routes(described=False)[0]


def test_a_role_may_what_the_role_below_it_may_and_more() -> None:
    roles = list(AccessRole)
    for lower, higher in pairwise(roles):
        assert VERBS[lower] < VERBS[higher]
    assert VERBS[AccessRole.OPERATOR] == set(Verb) == set(MEANINGS)


def test_every_route_has_a_verb_or_is_open_to_all(app: Flask) -> None:
    open_rules = {rule.rule for rule in app.url_map.iter_rules() if app.view_functions[rule.endpoint].verb is None}  # type: ignore[attr-defined]
    assert open_rules == OPEN


def test_what_changes_something_is_not_declared_as_reading(app: Flask) -> None:
    reading = {
        f"{method} {rule.rule}"
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"GET", "HEAD", "OPTIONS"}
        if app.view_functions[rule.endpoint].verb is Verb.READ  # type: ignore[attr-defined]
    }
    assert reading == ASKED


@pytest.mark.parametrize("verb", [verb for verb in Verb if verb is not Verb.READ])
def test_a_viewer_only_reads(verb: Verb) -> None:
    assert verb not in VERBS[AccessRole.VIEWER]
