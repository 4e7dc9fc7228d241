"""Pages that ask for the token and that end a session."""

from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from web.acting_project import COOKIE
from web.api_client import Refused, api
from web.paths import SIGN_IN, is_page

blueprint = Blueprint("session", __name__)


def target(address: str) -> str:
    """Return the page to show after a session has begun: one of this server, whatever the query says."""
    ours = address.startswith("/") and "\\" not in address and is_page(address.partition("?")[0])
    return address if ours else url_for("simulations.index")


@blueprint.get(SIGN_IN)
def sign_in() -> str:
    """Ask for the token."""
    return render_template("sign-in.html", next=target(request.args.get("next", "/")), problem=None)


@blueprint.post(SIGN_IN)
def begin() -> Response | tuple[str, int]:
    """Begin a session if the token is right."""
    address = target(request.form.get("next", "/"))
    token = request.form.get("token", "").strip()
    if not token:
        return render_template("sign-in.html", next=address, problem="Enter the token."), 422
    if not token.isascii() or not token.isprintable():
        problem = "This is not a valid token: a token has only letters, digits and signs of ASCII."
        return render_template("sign-in.html", next=address, problem=problem), 422
    try:
        answer = api().post("/v1/session", headers={"Authorization": f"Bearer {token}"})
    except Refused as error:
        if error.status != 401:
            raise
        problem = "This is not the token of the server, nor that of a user: it may be revoked, or have expired."
        return render_template("sign-in.html", next=address, problem=problem), 401
    response = redirect(address, 303)
    for cookie in answer.headers.get_list("Set-Cookie"):
        response.headers.add("Set-Cookie", cookie)
    return response


@blueprint.post("/sign-out")
def end() -> Response:
    """End the session."""
    answer = api().delete("/v1/session")
    response = redirect(url_for("session.sign_in"), 303)
    for cookie in answer.headers.get_list("Set-Cookie"):
        response.headers.add("Set-Cookie", cookie)
    if COOKIE in request.cookies:
        response.delete_cookie(COOKIE)  # the next user of this browser has other projects
    return response
