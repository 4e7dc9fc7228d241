"""Request of a comparison of models, from the fields of its form."""

from collections.abc import Mapping
from typing import Any

from web.form_fields import Fields, number_of, text_of

#: Models that the form has fields for, besides the reference.
MODELS = 8
#: Least and greatest error rate that the API takes.
ERROR_RATES = (0.0001, 0.5)


def comparison_request(fields: Fields) -> dict[str, Any]:
    """Return the body of `POST /v1/comparisons`; fields that are empty are left out.

    A number that cannot be read is sent as text, so that the API says what is wrong with it.
    """
    models = [name.strip() for name in fields.get("model", ()) if name.strip()]
    reference = text_of(fields, "reference")
    body: dict[str, Any] = {"models": [*models, *([reference] if reference else [])]}
    for name in ("dataset", "metric", "design"):
        if value := text_of(fields, name):
            body[name] = value
    if (rate := share_of(text_of(fields, "error_rate"))) is not None:
        body["error_rate"] = rate
    if (bound := number_of(text_of(fields, "bound"))) is not None:
        body["bound"] = bound
    if (sample := number_of(text_of(fields, "sample"))) is not None:
        body["scenarios"] = {"sample": sample}
    for name in ("repeat", "seed"):
        if (number := number_of(text_of(fields, name))) is not None:
            body[name] = number
    if text_of(fields, "play_all"):
        body["play_all"] = True
    return body


def share_of(text: str) -> float | str | None:
    """Return a share of 1 that is written in percent: `5`, `5 %` or `0,5`; other text as it is, None for no text."""
    number = number_of(text.removesuffix("%").strip().replace(",", "."))
    return round(number / 100, 10) if isinstance(number, float | int) else text or None


def error_rate_problem(fields: Fields) -> Mapping[str, Any] | None:
    """Return what is wrong with the error rate, in the unit of the form; None if it is left out or can be used."""
    text = text_of(fields, "error_rate")
    rate = share_of(text)
    low, high = ERROR_RATES
    if rate is None or (not isinstance(rate, str) and low <= rate <= high):
        return None
    return {
        "title": "Error rate",
        "detail": f"{text[:40]!r} is not a number from {100 * low:g} % to {100 * high:g} %. Enter 5 for 5 %.",
    }
