"""Page of one's own ways to sign in: password, passkeys and identity providers; and of programs that wait for one."""

from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus

import msgspec
from flask import Blueprint, redirect, render_template, url_for
from werkzeug.wrappers import Response

from web.acting_project import signed_in
from web.api_client import Refused, api, path_of
from web.refusals import FormAnswer, answer_form, refusal_of
from web.token_request import sign_in_fields
from web.views.session import ways

blueprint = Blueprint("sign_in_methods", __name__)


class ShownPasskey(msgspec.Struct, frozen=True):
    """A passkey."""

    id: str
    name: str
    created_at: str
    used_at: str | None


class ShownPerson(msgspec.Struct, frozen=True):
    """Who the user is at an identity provider."""

    provider: str
    subject: str


class ShownMethods(msgspec.Struct, frozen=True):
    """How a user signs in."""

    password: bool
    passkeys: list[ShownPasskey]
    providers: list[ShownPerson]


def path_here(*segments: str) -> str:
    """Return a path of the API below who is signed in."""
    return path_of("users", signed_in().user or "", *segments)


@blueprint.get("/operations/sign-in")
def show() -> str:
    """List them."""
    return page()


@blueprint.post("/operations/sign-in/password")
def set_password() -> FormAnswer:
    """Set the password."""
    fields = sign_in_fields()
    body = {"password": fields.password} | ({"current": fields.current} if fields.current else {})
    return _answer(lambda: api().put(path_here("password"), body), "password")


@blueprint.post("/operations/sign-in/password/remove")
def remove_password() -> FormAnswer:
    """Remove the password."""
    return _answer(lambda: api().delete(path_here("password")), "password")


@blueprint.post("/operations/sign-in/passkeys/remove")
def remove_passkey() -> FormAnswer:
    """Remove a passkey."""
    return _answer(lambda: api().delete(path_here("passkeys", sign_in_fields().passkey)), "passkeys")


@blueprint.post("/operations/sign-in/providers/remove")
def remove_provider() -> FormAnswer:
    """Part from who one is at an identity provider."""
    return _answer(lambda: api().delete(path_here("providers", sign_in_fields().provider)), "providers")


def _answer(act: Callable[[], object], form: str) -> FormAnswer:
    return answer_form(act, partial(page, form), "sign_in_methods.show")


def page(form: str = "", problem: Mapping[str, object] | None = None) -> str:
    """Return the page; ``form``: the one that was refused, with the ``problem``."""
    known = msgspec.convert(api().get(path_here("sign-in-methods")), ShownMethods)
    linked = {one.provider for one in known.providers}
    return render_template(
        "operations/sign-in-methods.html",
        methods=known,
        others=[one for one in ways().providers if one.name not in linked],
        refused=form,
        problem=problem,
    )


@blueprint.get("/device")
def device() -> str | tuple[str, int]:
    """Ask for the code that a program shows, or show which program waits with it."""
    signed_in()
    return device_page(sign_in_fields().code)


@blueprint.post("/device")
def answer_device() -> Response | tuple[str, int]:
    """Approve or refuse a program."""
    fields = sign_in_fields()
    approve = fields.answer == "approve"
    try:
        api().post(path_of("sign-in", "devices", fields.code), {"approve": approve})
    except Refused as error:
        problem, status = refusal_of(error)
        return render_template("device.html", waiting=None, code=fields.code, problem=problem, done=None), status
    return redirect(url_for("sign_in_methods.end_device", done="approved" if approve else "refused"), 303)


@blueprint.get("/device/done")
def end_device() -> str:
    """Say that the program knows."""
    done = "approved" if sign_in_fields().done == "approved" else "refused"
    return render_template("device.html", waiting=None, code="", problem=None, done=done)


def device_page(code: str) -> str | tuple[str, int]:
    """Return the page; with a code, of the program that shows it."""
    if not code:
        return render_template("device.html", waiting=None, code="", problem=None, done=None)
    try:
        waiting = api().get(path_of("sign-in", "devices", code))
    except Refused as error:
        problem, status = refusal_of(error)
        return render_template("device.html", waiting=None, code=code, problem=problem, done=None), status
    return render_template("device.html", waiting=waiting, code=code, problem=None, done=None), HTTPStatus.OK
