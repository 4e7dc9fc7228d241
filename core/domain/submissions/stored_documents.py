"""Stored documents: JSON that a row keeps as text, and the typed records that are read from it.

A record has the members that this version reads. Members that a later version has added stay in the text: a change of a
record is written by `update_document`, and what is passed on whole is the document itself.
"""

import json
from typing import TypeVar

import msgspec

from common.errors import UnreadableRow

T = TypeVar("T")


def decode_document(text: str, record: type[T]) -> T:
    """Return the record of a stored document. Raise UnreadableRow for a document that no version has written."""
    try:
        return msgspec.json.decode(text, type=record)
    except msgspec.DecodeError:  # it may be in Python's JSON, which has NaN and lone surrogates
        pass
    try:
        return msgspec.convert(json.loads(text), record)
    except (ValueError, msgspec.ValidationError) as error:
        raise unreadable(record.__name__, error) from None


def unreadable(name: str, error: Exception) -> UnreadableRow:
    """Return the error of a stored document that cannot be read; ``name``: of its record."""
    return UnreadableRow(
        f"The database has a {name} that cannot be read: {error}. Delete what it belongs to, or restore the database"
        " from a backup."
    )


def load_document(text: str) -> dict[str, object]:
    """Return a stored document as it is, for the API, archives and runners. Raise UnreadableRow."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError("it is JSON, but not an object")
    except ValueError as error:
        raise unreadable("document", error) from None
    return document


def update_document(text: str, record: msgspec.Struct) -> str:
    """Return a stored document with the members of a record; members that its type does not know stay as they are."""
    return json.dumps(_merge(json.loads(text), record))


def _merge(document: dict[str, object], record: msgspec.Struct) -> dict[str, object]:
    merged: dict[str, object] = msgspec.to_builtins(record)
    for name, value in document.items():
        if name not in record.__struct_fields__:
            merged[name] = value
        elif isinstance(part := getattr(record, name), msgspec.Struct) and isinstance(value, dict):
            merged[name] = _merge(value, part)
    return merged
