"""Fields of forms as text: the first value of a field, numbers, values of parameters, and the key of a request."""

import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

#: Fields of a form, each with all its values.
Fields = Mapping[str, Sequence[str]]
#: Arrays and objects within one another that the API reads.
MOST_LEVELS = 64
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


class UnreadableField(ValueError):
    """A field of a form cannot be read; the message names it and says what to write. ``field``: its name."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field

    @property
    def problem(self) -> dict[str, str]:
        """What a problem document says, for a field that is not sent to the API."""
        return {"title": "A field cannot be read", "detail": str(self), "field": self.field}


def text_of(fields: Fields, name: str) -> str:
    """Return the first value of a field that is not blank; empty if there is none."""
    return next((value.strip() for value in fields.get(name, ()) if value.strip()), "")


def json_of(text: str) -> object:
    """Return the value of a text of JSON; any other text as it is, so that the API says what is wrong with it."""
    steps = ((character in "[{") - (character in "]}") for character in _STRING.sub("", text))
    if max(accumulate(steps), default=0) > MOST_LEVELS:
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return text


def number_of(text: str) -> float | int | str | None:
    """Return a number as JSON has it, None for no text; other text as it is."""
    number = json_of(text)
    return number if isinstance(number, int | float) and not isinstance(number, bool) else text or None


def seconds_of(text: str) -> float | None:
    """Return a time of a replay; None for a text that is not a number."""
    number = number_of(text)
    return number if isinstance(number, int | float) else None


def value_of(text: str) -> Any:
    """Return the value of a parameter: a number, true or false, or text."""
    if text in ("true", "false"):
        return text == "true"
    return number_of(text)


def key_of(fields: Fields, body: Mapping[str, Any]) -> str:
    """Return the Idempotency-Key of a request: of the page that sends it, and of its content.

    A form that is sent twice is one request; a form that is changed, after the button *back* too, is another.
    """
    page = text_of(fields, "key") or secrets.token_hex(16)
    return hashlib.sha256(json.dumps([page, body], sort_keys=True).encode()).hexdigest()
