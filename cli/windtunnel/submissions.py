"""Submission of a simulation as the API takes it: scenarios, parameters and sweeps in the forms that people write."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windtunnel.errors import WindtunnelError
from windtunnel.submission_fields import SubmissionFields

#: What selects scenarios: `"0-99,120"`, numbers, a `range`, or the document of the API.
Scenarios = str | int | Iterable[int] | Mapping[str, Any]
#: Most scenarios that are listed one by one; a single range may be longer.
MOST_LISTED = 1_000_000
#: Most digits of the number of a scenario.
MOST_DIGITS = 15


class Options(SubmissionFields, total=False):
    """Options of a submission, as `simulations.submit` takes them: its fields, and how people write some of them."""

    scenarios: Scenarios | None
    sample: int | None
    sample_seed: int | None
    executor: str | None
    idempotency_key: str | None


def scenarios(selection: Scenarios | None) -> dict[str, Any] | None:
    """Return a selection of scenarios as the API takes it; None: all.

    Texts are numbers and ranges, the last number included, separated by commas: `"0-99"`, `"3, 5, 20-29"`. A ``range``
    excludes its end, as in Python.
    """
    if selection is None:
        return None
    if isinstance(selection, Mapping):
        return dict(selection)
    if isinstance(selection, str):
        return _parsed(selection)
    if isinstance(selection, int):
        return {"tasks": [selection]}
    if isinstance(selection, range) and selection.step == 1 and len(selection):
        return {"range": [selection.start, selection.stop]}
    if not isinstance(selection, Iterable):
        raise WindtunnelError(f"Scenarios {selection!r:.200}: give numbers, a range, or a text such as 0-99.")
    return {"tasks": list(selection)}


def _parsed(text: str) -> dict[str, Any]:
    spans = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if (
            not (first + last).isascii()
            or max(len(first), len(last)) > MOST_DIGITS
            or not first.isdecimal()
            or (dash and not last.isdecimal())
            or (dash and int(last) < int(first))
        ):
            raise WindtunnelError(f"Scenarios {text!r}: write numbers and ranges, such as 0-99 or 3,5,20-29.")
        spans.append(range(int(first), int(last if dash else first) + 1))
    if len(spans) == 1 and len(spans[0]) > 1:
        return {"range": [spans[0].start, spans[0].stop]}
    if sum(map(len, spans)) > MOST_LISTED:
        raise WindtunnelError(f"Scenarios {text!r}: these are more than {MOST_LISTED:,} numbers; write a single range.")
    numbers = [number for span in spans for number in span]
    if len(set(numbers)) < len(numbers):  # equal tasks would count as if they were independent
        raise WindtunnelError(f"Scenarios {text!r}: a number is there twice; `repeat` plays one with other seeds.")
    return {"tasks": numbers}


def document(
    dataset: str,
    *,
    scenarios_: Scenarios | None = None,
    sample: int | None = None,
    sample_seed: int | None = None,
    **members: Any,
) -> dict[str, Any]:
    """Return the document of a submission, without the members that are None."""
    selection = scenarios(scenarios_)
    if sample is not None:
        if selection is not None:
            raise WindtunnelError("Scenarios are selected by numbers or by a sample, not by both.")
        selection = {"sample": sample} | ({} if sample_seed is None else {"seed": sample_seed})
    body = {"dataset": dataset, "scenarios": selection, **members}
    return {name: plain(value) for name, value in body.items() if value is not None and value != {}}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: arrays and scalars of numpy, pandas and others as lists and numbers.

    Raise WindtunnelError for what JSON cannot express, such as NaN.
    """
    if isinstance(value, Mapping):
        return {plain(str(name)): plain(member) for name, member in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise WindtunnelError(f"A submission cannot have the number {value}; leave it out, or write another.")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise WindtunnelError(f"{value!r:.200} is not text in UTF-8; leave out its surrogates.") from None
    if value is None or isinstance(value, str | int | float):
        return value
    if callable(convert := getattr(value, "tolist", None)):
        return plain(convert())
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    raise WindtunnelError(f"{value!r:.200} cannot be a part of a submission; give its name, or a number.")


def value_of(text: str) -> Any:
    """Return a value that was written on a command line: JSON where it is JSON, else the text itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    # NaN and infinity are JSON to Python only; the platform would not read them.
    return text if isinstance(value, float) and not math.isfinite(value) else value


def pairs(texts: Sequence[str], option: str, form: str = "NAME=VALUE") -> dict[str, str]:
    """Return `name=value` options by name. ``form``: how the option is written, for the error."""
    result: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise WindtunnelError(f"{option} {text!r}: write {form}.")
        if name in result:
            raise WindtunnelError(f"{option} {name} is given twice.")
        result[name] = value
    return result


def parameters(texts: Sequence[str], option: str = "--param") -> dict[str, Any]:
    """Return `--param NAME=VALUE` options as the parameters of a dataset."""
    return {name: value_of(text) for name, text in pairs(texts, option).items()}


def swept(texts: Sequence[str], option: str = "--sweep") -> dict[str, list[Any]]:
    """Return a sweep of `name=value,value` options; a JSON array is taken as it is."""
    sweep = {}
    for name, text in pairs(texts, option, "NAME=VALUE,VALUE").items():
        if not text:
            raise WindtunnelError(f"{option} {name}=: name the values, such as {name}=1,2,4.")
        whole = value_of(text)
        values = whole if isinstance(whole, list) else [value_of(part) for part in text.split(",")]
        if len({json.dumps(value, sort_keys=True) for value in values}) < len(values):
            raise WindtunnelError(f"{option} {name}: a value is there twice; `repeat` plays with other seeds.")
        sweep[name] = values
    return sweep
