"""Route /v1/session: a browser exchanges the token for a session cookie, which scripts of pages cannot read."""

from flask import Response, request

from api.blueprint import Blueprint, Success, empty_response, header
from api.context import context
from api.credentials import set_cookie

blueprint = Blueprint("session", __name__, url_prefix="/v1", description="Sessions of browsers.")

COOKIE_HEADER = {"Set-Cookie": header("The session cookie: `HttpOnly`, `SameSite=Strict`, and `Secure` over https.")}


def secure() -> bool:
    """Return whether the browser reaches this server by https, perhaps through an ingress that ends TLS."""
    return request.scheme == "https" or request.headers.get("Origin", "").startswith("https:")


@blueprint.operation("POST /session", Success(status=204, description="The session begins.", headers=COOKIE_HEADER))
def begin_session() -> Response:
    """Begin a session

    Send `Authorization: Bearer <token>` once; afterwards the cookie of the answer is accepted in its place, in
    requests that change something only from pages of this server. A server without a token sets no cookie.
    """
    token = context().token
    return empty_response(204, {"Set-Cookie": set_cookie(token, secure=secure())} if token else {})


@blueprint.operation(
    "DELETE /session", Success(status=204, description="The session has ended.", headers=COOKIE_HEADER)
)
def end_session() -> Response:
    """End this browser's session

    The cookie of this browser is removed; other browsers keep theirs.
    """
    return empty_response(204, {"Set-Cookie": set_cookie("", secure=secure())})
