"""Page of one's own tokens and sessions of browsers: they are listed, made and ended here."""

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus

import msgspec
from flask import Blueprint, render_template, request

from web.account_lists import ShownTokens
from web.acting_project import signed_in
from web.api_client import Refused, api, path_of
from web.refusals import FormAnswer, answer_form, refusal_of
from web.token_request import ROLES, account_fields, token_request

blueprint = Blueprint("own_tokens", __name__, url_prefix="/operations/tokens")


@blueprint.get("")
def show() -> str:
    """List them."""
    return page()


@blueprint.post("")
def create() -> tuple[str, int]:
    """Make a personal token, and show it this once."""
    try:
        made = api().post(path_here(), token_request()).json()
    except Refused as error:
        problem, status = refusal_of(error)
        return page("token", problem), status
    return page(made=made), HTTPStatus.CREATED


@blueprint.post("/revoke")
def revoke() -> FormAnswer:
    """Revoke a token, or end a session."""
    return answer_form(
        lambda: api().delete(path_here(account_fields().token)), partial(page, "tokens"), "own_tokens.show"
    )


def path_here(*segments: str) -> str:
    """Return a path of the API below the tokens of who is signed in."""
    return path_of("users", *(signed_in().user or "").split("/"), "tokens", *segments)


def page(form: str = "", problem: Mapping[str, object] | None = None, made: Mapping[str, object] | None = None) -> str:
    """Return the page; ``form``: the one that was refused, with the ``problem``; ``made``: a token that was made.

    A session that began with a limited token has no part in the others: it sees why, in place of the lists.
    """
    try:
        tokens, limited = msgspec.convert(api().get(path_here()), ShownTokens).items, None
    except Refused as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        tokens, limited = [], error.problem
    return render_template(
        "operations/own-tokens.html",
        tokens=[token for token in tokens if not token.session],
        sessions=[token for token in tokens if token.session],
        limited=limited,
        own_roles=ROLES,
        refused=form,
        problem=problem,
        made=made,
        fields=request.form if form else {},
    )
