"""Request of a comparison of models, from the fields of its form."""

from typing import Any

from web.form_fields import Fields, UnreadableField, number_of, text_of

#: Models that the form has fields for, besides the reference.
MODELS = 8
#: Least and greatest error rate that the API takes, in percent.
ERROR_RATES = (0.01, 50)


def comparison_request(fields: Fields) -> dict[str, Any]:
    """Return the body of `POST /v1/comparisons`; fields that are empty are left out.

    Another number that cannot be read is sent as text, so that the API says what is wrong with it. The error rate is in
    percent here and a share there: raise UnreadableField for one that the API would refuse.
    """
    models = [name.strip() for name in fields.get("model", ()) if name.strip()]
    reference = text_of(fields, "reference")
    body: dict[str, Any] = {"models": [*models, *([reference] if reference else [])]}
    for name in ("dataset", "metric", "design", "until"):
        if value := text_of(fields, name):
            body[name] = value
    if (rate := _error_rate(text_of(fields, "error_rate"))) is not None:
        body["error_rate"] = rate
    for name in ("bound", "margin"):
        if (size := number_of(text_of(fields, name))) is not None:
            body[name] = size
    if (sample := number_of(text_of(fields, "sample"))) is not None:
        body["scenarios"] = {"sample": sample}
    for name in ("repeat", "seed"):
        if (number := number_of(text_of(fields, name))) is not None:
            body[name] = number
    if text_of(fields, "play_all"):
        body["play_all"] = True
    return body


def _error_rate(text: str) -> float | None:
    """Return a share of 1 that is written in percent: `5`, `5 %` or `0,5`; None for no text."""
    number = number_of(text.removesuffix("%").strip().replace(",", "."))
    if number is None and not text:
        return None
    low, high = ERROR_RATES
    if not isinstance(number, float | int) or not low <= number <= high:
        raise UnreadableField(
            "error_rate",
            f"Error rate: {text[:40]!r} is not a number from {low} % to {high} %. Enter 5 for 5 %.",
        )
    return round(number / 100, 10)
