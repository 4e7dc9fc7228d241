"""Acting project of a page: the one of its address, else the choice of this browser, else the user's only one.

The choice is a cookie with a name, not a secret: what the user may do there, the API decides at each request.
Without accounts there is one project, and nothing of this.
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qsl, urlencode

import msgspec
from flask import Flask, Response, current_app, g, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from web.api_client import Refused, api
from web.project_addresses import document_in_project, in_project

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

COOKIE = "windtunnel_project"
#: Seconds for which a browser keeps the choice.
CHOICE_KEPT = 365 * 86_400
#: Names of projects are labels of DNS.
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
#: Key of the WSGI environment: the project that the address of a page names.
ADDRESSED_PROJECT = "windtunnel.addressed_project"
#: Key of the application: it has no accounts, as the API has said once.
WITHOUT_ACCOUNTS = "windtunnel-without-accounts"
#: Endpoints of pages that are in no project.
OUTSIDE = frozenset(
    {"static", "icon", "reference.show", "session.sign_in", "session.begin", "session.end", "projects.choose"}
    | {
        "projects.keep",
        "platform.show",
        "platform.create_project",
        "platform.close_project",
        "platform.delete_project",
        "platform.invite",
        "platform.remove",
    }
    | {"own_tokens.show", "own_tokens.create", "own_tokens.revoke"}
    | {"session.begin_with_provider", "session.end_with_provider", "session.invitation", "session.accept"}
    | {"sign_in_methods.device", "sign_in_methods.answer_device", "sign_in_methods.end_device", "sign_in_methods.show"}
    | {"sign_in_methods.set_password", "sign_in_methods.remove_password", "sign_in_methods.remove_passkey"}
    | {"sign_in_methods.remove_provider"}
)
HEADERS = ("Location", "HX-Redirect", "HX-Push-Url", "HX-Replace-Url", "HX-Location")


class VisitorProject(msgspec.Struct, frozen=True):
    """A project of a visitor, with the role there."""

    name: str
    role: str


class PageVisitor(msgspec.Struct, frozen=True):
    """Who a page is for, as the API says; ``project``: the one that the page acts in, None: none of several."""

    accounts: bool
    user: str | None
    operator: bool
    project: str | None
    verbs: frozenset[str]
    projects: list[VisitorProject]

    @property
    def role(self) -> str:
        """The role in the project of the page."""
        roles = {membership.name: membership.role for membership in self.projects}
        return "operator" if self.operator else roles.get(self.project or "", "")

    @property
    def choices(self) -> list[str]:
        """The projects to choose from, with that of the page, in which an operator need not be a member."""
        return sorted({membership.name for membership in self.projects} | ({self.project} if self.project else set()))

    def may(self, verb: str) -> bool:
        """Return whether the API accepts what needs a verb, in the project of the page."""
        return verb in self.verbs


def without_project(application: "WSGIApplication") -> "WSGIApplication":
    """Return the application with the project taken out of addresses, where no view knows it, and kept beside them."""

    def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        query = environ.get("QUERY_STRING", "")
        if "project=" in query:
            pairs = parse_qsl(query, keep_blank_values=True)
            rest = urlencode([pair for pair in pairs if pair[0] != "project"])
            named = next((value for key, value in pairs if key == "project" and value), "")
            environ = environ | {"QUERY_STRING": rest, ADDRESSED_PROJECT: named}
        return application(environ, start_response)

    return answer


def addressed_project() -> str:
    """Return the project that the address of the page names; empty if it names none."""
    return cast(str, request.environ.get(ADDRESSED_PROJECT, ""))


def chosen_project() -> str:
    """Return the project that was chosen in this browser; empty if none was."""
    name = request.cookies.get(COOKIE, "")
    return name if NAME.fullmatch(name) else ""


def visitor() -> PageVisitor | None:
    """Return who the page is for; None without accounts, and for who is not signed in."""
    if "visitor" not in g:
        g.lost = ""
        g.visitor = None if current_app.extensions.get(WITHOUT_ACCOUNTS) else _visitor()
    return cast("PageVisitor | None", g.visitor)


def _visitor() -> PageVisitor | None:
    """Ask the API who the page is for; the client of this request acts in the project of the page from then on."""
    named = addressed_project() or chosen_project()
    try:
        api().project = named if NAME.fullmatch(named) else None
        document = api().find("/v1/session", missing=(404,))
        if document is None or (named and api().project is None):
            g.lost, api().project = named, None
            document = document or api().get("/v1/session")
    except Refused:  # nobody; or the API cannot tell, and says so to the page's own requests
        return None
    known = msgspec.convert(document, PageVisitor)
    if not known.accounts:
        current_app.extensions[WITHOUT_ACCOUNTS] = True
        g.lost, api().project = "", None
        return None
    if not g.lost and known.project is not None:  # without a name, an operator's request may be about all projects
        api().project = known.project
    return known


def signed_in() -> PageVisitor:
    """Return who the page is for. Raise Refused for who is not signed in, and without accounts."""
    if (known := visitor()) is None:
        api().get("/v1/projects")
        raise Refused(HTTPStatus.NOT_FOUND, {"title": "Not found", "detail": "There is no page at this address."})
    return known


def enter() -> AnyResponse | None:
    """Lead to the choice of a project from a page that needs one and has none. Raise Refused for one of others."""
    if request.endpoint is None or request.endpoint in OUTSIDE or (known := visitor()) is None:
        return None
    if g.lost and addressed_project():
        raise Refused(HTTPStatus.NOT_FOUND, {"title": "Unknown project", "detail": missing_text(g.lost)})
    if not g.lost and known.project is not None:
        return None
    next_address = in_own_address() if request.method == "GET" and not request.headers.get("HX-Request") else ""
    query = {"lost": g.lost, "next": next_address}
    address = f"{url_for('projects.choose')}?{urlencode({name: text for name, text in query.items() if text})}"
    answer: AnyResponse = redirect(address, HTTPStatus.SEE_OTHER)
    if request.headers.get("HX-Request"):  # htmx follows a redirect within a part of the page
        answer = Response(status=HTTPStatus.NO_CONTENT, headers={"HX-Redirect": address})
    answer.delete_cookie(COOKIE)
    return answer


def missing_text(name: str) -> str:
    """Return what is said of a project in which a visitor cannot act."""
    return f"There is no project {name[:40]!r} that you may see: you have left it, or the name is another one."


def in_own_address() -> str:
    """Return the address of this page, with its project if it names one."""
    here = request.full_path.rstrip("?")
    return in_project(here, addressed_project()) if NAME.fullmatch(addressed_project()) else here


def remember(response: AnyResponse, project: str) -> None:
    """Let the browser keep a choice."""
    secure = request.scheme == "https" or request.headers.get("Origin", "").startswith("https:")
    response.set_cookie(COOKIE, project, max_age=CHOICE_KEPT, httponly=True, samesite="Lax", secure=secure)


def name_project(response: Response) -> Response:
    """Let each address of an answer name the project of the page."""
    known: PageVisitor | None = getattr(g, "visitor", None)
    if known is None or known.project is None or request.endpoint == "static":
        return response
    for header in HEADERS:
        if (address := response.headers.get(header, "")).startswith("/"):
            response.headers[header] = in_project(address, known.project)
    if response.mimetype == "text/html" and not response.direct_passthrough:
        host = request.host_url.rstrip("/")
        response.set_data(document_in_project(response.get_data(as_text=True), known.project, host))
    return response


def register(app: Flask) -> None:
    """Let the pages of an application act in a project."""
    app.wsgi_app = without_project(app.wsgi_app)  # type: ignore[method-assign, assignment]
    app.before_request(enter)
    app.after_request(name_project)
    app.jinja_env.globals.update(visitor=visitor)
