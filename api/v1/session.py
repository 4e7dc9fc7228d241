"""Route /v1/session: a browser exchanges the token for a session cookie, which scripts of pages cannot read."""

from flask import Response, request

from api.blueprint import Blueprint, Success, empty_response, header
from api.context import caller, context, identity
from api.credentials import set_cookie
from api.schemas.accounts import SessionSchema
from common.errors import NotPermitted, UnknownProject

blueprint = Blueprint("session", __name__, url_prefix="/v1", description="Sessions of browsers.")

COOKIE_HEADER = {"Set-Cookie": header("The session cookie: `HttpOnly`, `SameSite=Strict`, and `Secure` over https.")}


def secure() -> bool:
    """Return whether the browser reaches this server by https, perhaps through an ingress that ends TLS."""
    return request.scheme == "https" or request.headers.get("Origin", "").startswith("https:")


@blueprint.operation(
    "GET /session",
    Success(schema=SessionSchema, plain=True, description="Who the request is."),
    errors=[UnknownProject],
    verb=None,
)
def get_session() -> dict[str, object]:
    """Tell who the request is

    By what it shows it, the projects that it may act in, and what it may do in the one in which it acts.
    """
    who, acting = identity(), caller()
    projects = [
        {"name": name, "role": str(one.role), "closed": one.closed} for name, one in sorted(who.projects.items())
    ]
    token = {"id": who.credential, "project": who.grant.project} if who.credential else None
    return {
        "accounts": context().identification.accounts,
        "user": who.user or None,
        "by": who.by,
        "token": token,
        "operator": who.operator,
        "project": acting.scope.project or None,
        "verbs": sorted(acting.verbs),
        "projects": projects,
    }


@blueprint.operation(
    "POST /session",
    Success(status=204, description="The session begins.", headers=COOKIE_HEADER),
    errors=[NotPermitted],
    verb=None,
)
def begin_session() -> Response:
    """Begin a session

    Send `Authorization: Bearer <token>` once; afterwards the cookie of the answer is accepted in its place, in
    requests that change something only from pages of this server. A server without a token sets no cookie. A token of
    a cluster begins no session.
    """
    session = context().identification.begin_session(identity())
    return empty_response(204, {"Set-Cookie": set_cookie(session, secure=secure())} if session else {})


@blueprint.operation(
    "DELETE /session", Success(status=204, description="The session has ended.", headers=COOKIE_HEADER), verb=None
)
def end_session() -> Response:
    """End this browser's session

    The cookie of this browser is removed; other browsers keep theirs.
    """
    context().identification.end_session(identity())
    return empty_response(204, {"Set-Cookie": set_cookie("", secure=secure())})
