"""Members of an answer: a kind of value, and the sentence that documents it.

A member is always there unless it is declared with ``required=False``; the other options are those of marshmallow.
"""

from collections.abc import Callable, Sequence
from typing import TypedDict, TypeVar, Unpack

from marshmallow import Schema, fields, validate

F = TypeVar("F")
T = TypeVar("T")


class MemberOptions(TypedDict, total=False):
    """Options of a member. ``enum``: the values of a text, as the documentation lists them; ``example``: a value."""

    required: bool
    allow_none: bool
    validate: validate.Validator
    attribute: str
    data_key: str
    enum: Sequence[str | None]
    example: object


def integer(description: str, **options: Unpack[MemberOptions]) -> fields.Integer:
    """Declare a whole number."""
    return _member(fields.Integer, description, options)


def real(description: str, **options: Unpack[MemberOptions]) -> fields.Float:
    """Declare a number."""
    return _member(fields.Float, description, options)


def string(description: str, **options: Unpack[MemberOptions]) -> fields.String:
    """Declare a text."""
    return _member(fields.String, description, options)


def boolean(description: str, **options: Unpack[MemberOptions]) -> fields.Boolean:
    """Declare a truth value."""
    return _member(fields.Boolean, description, options)


def moment(description: str, **options: Unpack[MemberOptions]) -> fields.AwareDateTime:
    """Declare a moment, in UTC."""
    return _member(fields.AwareDateTime, description, options, format="iso")


def array(item: fields.Field[T], description: str, **options: Unpack[MemberOptions]) -> fields.List[T]:
    """Declare a list of values."""
    return _member(fields.List[T], description, options, cls_or_instance=item)


def document(schema: type[Schema], description: str, **options: Unpack[MemberOptions]) -> fields.Nested:
    """Declare a document within the document."""
    return _member(fields.Nested, description, options, nested=schema)


def documents(schema: type[Schema], description: str, **options: Unpack[MemberOptions]) -> fields.List[object]:
    """Declare a list of documents."""
    return array(fields.Nested(schema), description, **options)


def dictionary(
    description: str, values: fields.Field[T] | None = None, **options: Unpack[MemberOptions]
) -> fields.Dict:
    """Declare an object whose names are data; ``values``: the kind of each value, if they are all of one."""
    keys = None if values is None else fields.String()
    return _member(fields.Dict, description, options, keys=keys, values=values)


def count_of_each(description: str, **options: Unpack[MemberOptions]) -> fields.Dict:
    """Declare an object of whole numbers, each under a name."""
    return dictionary(description, fields.Integer(), **options)


def _member(kind: Callable[..., F], description: str, options: MemberOptions, **arguments: object) -> F:
    enum, example = options.pop("enum", None), options.pop("example", None)
    metadata = {"enum": enum and list(enum), "description": description, "example": example}
    documented = {name: value for name, value in metadata.items() if value is not None}
    return kind(**arguments, **{"required": True, **options}, metadata=documented)
