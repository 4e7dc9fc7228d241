"""Form of a pipeline: its document as JSON, from an example or from a pipeline that is there."""

import json
from collections.abc import Mapping, Sequence

import msgspec

from web.form_fields import UnreadableField

#: What a new form shows: two steps that every platform can run.
EXAMPLE: Mapping[str, object] = {
    "name": "example",
    "steps": [
        {"name": "evaluate", "submission": {"model": "idm", "dataset": "car_street", "scenarios": "0-3"}},
        {
            "name": "compare",
            "after": ["evaluate"],
            "comparison": {"models": ["idm", "idm_mobil"], "dataset": "car_street", "scenarios": "0-9"},
        },
    ],
}
#: Members of a step that a request has; the others say what became of it.
_REQUEST_MEMBERS = ("name", "submission", "comparison", "after", "retries", "fresh")


def requested_document(pipeline: Mapping[str, object]) -> dict[str, object]:
    """Return the document with which a pipeline could be requested again."""
    shown = msgspec.convert(pipeline, _RequestedAgain)
    steps = [
        {name: _without_empty_members(step[name]) for name in _REQUEST_MEMBERS if step.get(name)}
        for step in shown.steps
    ]
    return {name: value for name, value in (("name", shown.name), ("labels", shown.labels), ("steps", steps)) if value}


def _without_empty_members(value: object) -> object:
    """Return a value without the members that say nothing: those that are null or empty."""
    if not isinstance(value, dict):
        return value
    return {name: member for name, member in value.items() if member not in (None, "", {}, [])}


class _RequestedAgain(msgspec.Struct):
    name: str
    steps: Sequence[Mapping[str, object]]
    labels: Mapping[str, str] = {}


def text_of_document(document: Mapping[str, object]) -> str:
    """Return a document as a person reads and edits it."""
    return json.dumps(document, indent=2, ensure_ascii=False)


def pipeline_request(text: str) -> dict[str, object]:
    """Return the request in the text of a form: a pipeline, or the list of its steps. Raise UnreadableField."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UnreadableField("document", f"This is not JSON: {error}.") from None
    except RecursionError:
        raise UnreadableField("document", "This is JSON with too many levels.") from None
    if isinstance(document, list):
        return {"steps": document}
    if not isinstance(document, dict):
        raise UnreadableField("document", "A pipeline is an object with `steps`, or the list of its steps.")
    return document
