"""Indented JSON: the text of `json.dumps(indent=2, sort_keys=True)`, which the standard library encodes in Python."""

import json

import msgspec


def indented(document: object) -> str:
    """Return a document as JSON with sorted keys, each level indented by two spaces."""
    compact = json.dumps(document, sort_keys=True)
    try:
        return msgspec.json.format(compact, indent=2)
    except msgspec.DecodeError:  # NaN and Infinity, in summaries of earlier versions
        return json.dumps(document, indent=2, sort_keys=True)
