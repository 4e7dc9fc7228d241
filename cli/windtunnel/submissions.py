"""Submission of a simulation as the API takes it: scenarios, parameters and sweeps in the forms that people write."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windtunnel.errors import WindtunnelError

#: What selects scenarios: `"0-99,120"`, numbers, a `range`, or the document of the API.
Scenarios = str | Iterable[int] | Mapping[str, Any]
#: Most scenarios that are listed one by one; a single range may be longer.
MOST_LISTED = 1_000_000


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
    if isinstance(selection, range) and selection.step == 1 and len(selection):
        return {"range": [selection.start, selection.stop]}
    return {"tasks": list(selection)}


def _parsed(text: str) -> dict[str, Any]:
    spans = []
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise WindtunnelError(f"Scenarios {text!r}: write numbers and ranges, such as 0-99 or 3,5,20-29.")
        spans.append(range(int(first), int(last if dash else first) + 1))
    if len(spans) == 1 and len(spans[0]) > 1:
        return {"range": [spans[0].start, spans[0].stop]}
    if sum(map(len, spans)) > MOST_LISTED:
        raise WindtunnelError(f"Scenarios {text!r}: these are more than {MOST_LISTED:,} numbers; write a single range.")
    return {"tasks": [number for span in spans for number in span]}


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
    return {name: value for name, value in body.items() if value is not None and value != {}}


def value_of(text: str) -> Any:
    """Return a value that was written on a command line: JSON where it is JSON, else the text itself."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    # NaN and infinity are JSON to Python only; the platform would not read them.
    return text if isinstance(value, float) and not math.isfinite(value) else value


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return `name=value` options by name."""
    result: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise WindtunnelError(f"{option} {text!r}: write NAME=VALUE.")
        if name in result:
            raise WindtunnelError(f"{option} {name} is given twice.")
        result[name] = value
    return result


def parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Return `--param NAME=VALUE` options as the parameters of a dataset."""
    return {name: value_of(text) for name, text in pairs(texts, "--param").items()}


def swept(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return a sweep of `name=value,value` options; a JSON array is taken as it is."""
    sweep = {}
    for name, text in pairs(texts, "--sweep").items():
        whole = value_of(text)
        sweep[name] = whole if isinstance(whole, list) else [value_of(part) for part in text.split(",")]
    return sweep
