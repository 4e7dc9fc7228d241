"""Answers to forms: a refused one is shown again with its problem, in the page that has it."""

from collections.abc import Callable, Mapping
from http import HTTPStatus

from flask import redirect, url_for
from werkzeug.wrappers import Response

from web.api_client import Refused

Problem = Mapping[str, object]
#: A page, with its status, or a redirect to one.
FormAnswer = Response | tuple[str, int]


def refusal_of(error: Refused) -> tuple[Problem, int]:
    """Return the problem of a form; raise the error again if its sender is not signed in, which no form can mend."""
    if error.status == HTTPStatus.UNAUTHORIZED:
        raise error
    return error.problem, error.status


def answer_form(act: Callable[[], object], refused: Callable[[Problem], str], endpoint: str) -> FormAnswer:
    """Do what a form asks for, and lead to a page; ``refused``: returns the page that has the form, with a problem."""
    try:
        act()
    except Refused as error:
        problem, status = refusal_of(error)
        return refused(problem), status
    return redirect(url_for(endpoint), HTTPStatus.SEE_OTHER)
