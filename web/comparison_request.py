"""Request of a comparison of models, from the fields of its form."""

from typing import Any

from web.form_fields import Fields, number_of, text_of

#: Models that the form has fields for, besides the reference.
MODELS = 8


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
    if (rate := number_of(text_of(fields, "error_rate"))) is not None:
        body["error_rate"] = rate / 100 if isinstance(rate, float | int) else rate
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
