"""Page that asks for a project, and the choice of one, which the browser keeps."""

from http import HTTPStatus

import msgspec
from flask import Blueprint, abort, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from web.account_lists import ShownNames
from web.acting_project import NAME, missing_text, remember, signed_in
from web.api_client import Refused, api
from web.project_addresses import in_project
from web.token_request import account_fields
from web.views.session import target

blueprint = Blueprint("projects", __name__, url_prefix="/projects")

#: Pages that every project has.
LISTS = (
    *("/submit", "/simulations", "/comparisons", "/pipelines", "/data", "/models"),
    *("/operations", "/operations/project", "/operations/platform", "/operations/tokens"),
    "/operations/audit",
    "/operations/webhooks",
    "/operations/quotas",
)
#: Projects that an operator is offered.
MOST_PROJECTS = 200


class ChoiceQuery(msgspec.Struct, frozen=True):
    """The query of the page: a project that was chosen before and is not there any more, and the page to go on to."""

    lost: str = ""
    next: str = "/simulations"


@blueprint.get("")
def choose() -> str:
    """Ask for a project."""
    known = signed_in()
    own = {membership.name: membership.role for membership in known.projects}
    every = (
        msgspec.convert(api().get("/v1/projects", limit=MOST_PROJECTS), ShownNames).names
        if known.may("operate")
        else []
    )
    asked = msgspec.convert(request.args.to_dict(), ChoiceQuery)
    return render_template(
        "projects.html",
        own=own,
        others=[name for name in every if name not in own],
        lost=missing_text(asked.lost) if asked.lost else None,
        next=asked.next,
    )


@blueprint.post("")
def keep() -> Response:
    """Keep a choice, and go on to the page that was asked for, or to the list that the page ``here`` belongs to."""
    if "Origin" not in request.headers and request.headers.get("Sec-Fetch-Site") != "same-origin":
        abort(HTTPStatus.FORBIDDEN, "Choose a project on a page of this server.")
    fields = account_fields()
    name = fields.to
    if not NAME.fullmatch(name):
        raise Refused(HTTPStatus.NOT_FOUND, {"title": "Unknown project", "detail": missing_text(name)})
    api().project = name
    api().get("/v1/session")  # raises Refused for a project of others
    address = same_section(target(fields.here)) if fields.next is None else target(fields.next)
    response = redirect(in_project(address, name), HTTPStatus.SEE_OTHER)
    remember(response, name)
    return response


def same_section(path: str) -> str:
    """Return the page that a project has in the place of one of another project: the list that leads to it."""
    sections = [list_path for list_path in LISTS if f"{path}/".startswith(f"{list_path}/")]
    return max(sections, key=len, default=url_for("simulations.index"))
