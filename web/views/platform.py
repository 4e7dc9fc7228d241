"""Page of the platform: its projects and users, which operators create, and the invitations of new users."""

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus

import msgspec
from flask import Blueprint, render_template, request

from web.account_lists import PlatformQuery, ShownNames
from web.acting_project import signed_in
from web.api_client import Refused, api, path_of
from web.refusals import FormAnswer, answer_form, refusal_of
from web.token_request import account_fields

blueprint = Blueprint("platform", __name__, url_prefix="/operations/platform")

#: Projects, and users, that the page lists at once.
PAGE_LENGTH = 100


@blueprint.get("")
def show() -> str:
    """List the projects and the users."""
    return page()


@blueprint.post("/projects")
def create_project() -> FormAnswer:
    """Create a project."""
    return answer_form(
        lambda: api().post("/v1/projects", {"name": account_fields().name}), partial(page, "project"), "platform.show"
    )


@blueprint.post("/projects/close")
def close_project() -> FormAnswer:
    """Close a project."""
    return answer_form(
        lambda: api().post(path_of("projects", account_fields().name, "close"), {}),
        partial(page, "projects"),
        "platform.show",
    )


@blueprint.post("/projects/delete")
def delete_project() -> FormAnswer:
    """Delete a project that is closed."""
    return answer_form(
        lambda: api().delete(path_of("projects", account_fields().name)), partial(page, "projects"), "platform.show"
    )


@blueprint.post("/users")
def invite() -> tuple[str, int]:
    """Create a user, and show the invitation this once."""
    body = {"name": account_fields().name, "operator": account_fields().operator == "true"}
    try:
        invited = api().post("/v1/users", body).json()
    except Refused as error:
        problem, status = refusal_of(error)
        return page("user", problem), status
    return page(invited=invited), HTTPStatus.CREATED


@blueprint.post("/users/remove")
def remove() -> FormAnswer:
    """Let a user leave."""
    return answer_form(
        lambda: api().delete(path_of("users", *account_fields().user.split("/"))),
        partial(page, "users"),
        "platform.show",
    )


def page(
    form: str = "", problem: Mapping[str, object] | None = None, invited: Mapping[str, object] | None = None
) -> str:
    """Return the page; ``form``: the refused one, with the ``problem``; ``invited``: a user who was created."""
    signed_in()
    after = msgspec.convert(request.args.to_dict(), PlatformQuery)
    return render_template(
        "operations/platform.html",
        projects=msgspec.convert(api().get("/v1/projects", limit=PAGE_LENGTH, after=after.projects_after), ShownNames),
        users=msgspec.convert(api().get("/v1/users", limit=PAGE_LENGTH, after=after.users_after), ShownNames),
        refused=form,
        problem=problem,
        invited=invited,
        fields=request.form if form else {},
    )
