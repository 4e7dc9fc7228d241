"""Fields of forms as text: the first value of a field, numbers, and values of parameters."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

#: Fields of a form, each with all its values.
Fields = Mapping[str, Sequence[str]]


def text_of(fields: Fields, name: str) -> str:
    """Return the first value of a field that is not blank; empty if there is none."""
    return next((value.strip() for value in fields.get(name, ()) if value.strip()), "")


def number_of(text: str) -> float | int | str | None:
    """Return a number, None for no text; other text as it is, so that the API says what is wrong with it."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None


def value_of(text: str) -> Any:
    """Return the value of a parameter: a number, true or false, or text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text
