"""Request of a comparison of models, from the fields of its form."""

from collections.abc import Mapping
from typing import Any

#: Fields of a form that are repeated or single, by name, with their values as text.
Fields = Mapping[str, list[str]]
#: Models that the form has fields for, besides the reference.
MODELS = 8


def comparison_request(fields: Fields) -> dict[str, Any]:
    """Return the body of `POST /v1/comparisons`; fields that are empty are left out.

    A number that cannot be read is sent as text, so that the API says what is wrong with it.
    """
    models = [name.strip() for name in fields.get("model", ()) if name.strip()]
    reference = _text(fields, "reference")
    body: dict[str, Any] = {"models": [*models, *([reference] if reference else [])]}
    for name in ("dataset", "metric", "design"):
        if value := _text(fields, name):
            body[name] = value
    if (rate := _number(_text(fields, "error_rate"))) is not None:
        body["error_rate"] = rate / 100 if isinstance(rate, float | int) else rate
    if (bound := _number(_text(fields, "bound"))) is not None:
        body["bound"] = bound
    if (sample := _number(_text(fields, "sample"))) is not None:
        body["scenarios"] = {"sample": sample}
    for name in ("repeat", "seed"):
        if (number := _number(_text(fields, name))) is not None:
            body[name] = number
    if _text(fields, "play_all"):
        body["play_all"] = True
    return body


def _text(fields: Fields, name: str) -> str:
    return next((value.strip() for value in fields.get(name, ()) if value.strip()), "")


def _number(text: str) -> float | int | str | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
