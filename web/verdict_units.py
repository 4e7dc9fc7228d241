"""Units of a verdict on a page: of a test by signs, shares of the scenarios in percent, as in its sentence."""

from collections.abc import Mapping, Sequence
from typing import Any

#: Members that are differences: of the verdict, of a look, and of a group.
_DIFFERENCES = ("mean", "low", "high", "smallest")
#: Unit of a share of the scenarios in which one model is better, less that in which the other is.
SHARE = "% of the scenarios"


def shown(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``verdict``, ``looks`` and ``groups`` of a document with numbers in the unit that is shown.

    A test by signs has shares from -1 to 1, without a unit; others stay as they are.
    """
    verdict = document["verdict"]
    if verdict is None or verdict["scale"]["kind"] != "sign":
        return {name: document[name] for name in ("verdict", "looks", "groups") if name in document}
    parts: dict[str, Any] = {"verdict": _percent(verdict) | {"scale": verdict["scale"] | {"unit": SHARE}}}
    parts["groups"] = {name: _all(groups) for name, groups in document["groups"].items()}
    return parts | ({"looks": _all(document["looks"])} if "looks" in document else {})


def _all(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [_percent(document) for document in documents]


def _percent(document: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: document[name] for name in _DIFFERENCES if document.get(name) is not None}
    return {**document, **{name: 100 * value for name, value in values.items()}}
