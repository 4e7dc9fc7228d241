"""Page of a project: its members, service accounts and tokens, and what a maintainer may do with them."""

from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec
from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from web.account_lists import ShownMembers, ShownTokens
from web.acting_project import signed_in
from web.api_client import Refused, api, path_of
from web.refusals import refusal_of
from web.token_request import ROLES, VERBS, account_fields, token_request

blueprint = Blueprint("project", __name__, url_prefix="/operations/project")

Answer = Response | tuple[str, int]


@blueprint.get("")
def show() -> str:
    """Show a project."""
    return page()


@blueprint.post("/members")
def put_member() -> Answer:
    """Give a user a role: a new member, or another role of one."""
    path = path_here("members", account_fields().user)
    return answer_form("member", lambda: api().put(path, {"role": account_fields().role}))


@blueprint.post("/members/remove")
def remove_member() -> Answer:
    """End a membership."""
    return answer_form("members", lambda: api().delete(path_here("members", account_fields().user)))


@blueprint.post("/services")
def create_service() -> Answer:
    """Create a service account."""
    body = {"name": account_fields().name, "role": account_fields().role}
    return answer_form("service", lambda: api().post(path_here("services"), body))


@blueprint.post("/tokens")
def create_token() -> tuple[str, int]:
    """Make a token, and show it this once."""
    try:
        made = api().post(path_here("tokens"), token_request()).json()
    except Refused as error:
        problem, status = refusal_of(error)
        return page("token", problem), status
    return page(made=made), HTTPStatus.CREATED


@blueprint.post("/tokens/revoke")
def revoke() -> Answer:
    """Revoke a token."""
    return answer_form("tokens", lambda: api().delete(path_here("tokens", account_fields().token)))


def path_here(*segments: str) -> str:
    """Return a path of the API below the project of the page."""
    return path_of("projects", signed_in().project or "", *segments)


def answer_form(form: str, act: Callable[[], object]) -> Answer:
    """Do what a form asks for, and show the project; if it is refused, with the reason at the form."""
    try:
        act()
    except Refused as error:
        problem, status = refusal_of(error)
        return page(form, problem), status
    return redirect(url_for("project.show"), HTTPStatus.SEE_OTHER)


def page(form: str = "", problem: Mapping[str, object] | None = None, made: Mapping[str, object] | None = None) -> str:
    """Return the page; ``form``: the one that was refused, with the ``problem``; ``made``: a token that was made."""
    known = signed_in()
    members = msgspec.convert(api().get(path_here("members")), ShownMembers).items
    own = ROLES.index(known.role) if known.role in ROLES else len(ROLES)
    return render_template(
        "operations/project.html",
        project=api().get(path_here()),
        people=[member for member in members if not member.service],
        services=[member for member in members if member.service],
        tokens=msgspec.convert(api().get(path_here("tokens")), ShownTokens).items,
        roles=ROLES,
        own_roles=ROLES[: own + 1],
        verbs={verb: words for verb, words in VERBS.items() if known.may(verb)},
        refused=form,
        problem=problem,
        made=made,
        fields=request.form if form else {},
    )
