"""Refusals of forms: the problem and its status, for the page that has the form."""

from collections.abc import Mapping
from http import HTTPStatus

from web.api_client import Refused


def refusal_of(error: Refused) -> tuple[Mapping[str, object], int]:
    """Return the problem of a form; raise the error again if its sender is not signed in, which no form can mend."""
    if error.status == HTTPStatus.UNAUTHORIZED:
        raise error
    return error.problem, error.status
