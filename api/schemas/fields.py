"""Strict schema fields: a string is not accepted as a number, a number not as a boolean, no control characters."""

import math
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, TypedDict, Unpack

from marshmallow import EXCLUDE, INCLUDE, RAISE, Schema, ValidationError, fields, pre_load, validate

from common import patterns
from core.domain.access.name_patterns import PATTERN
from core.domain.submissions.submission import LARGEST_INTEGER as LARGEST_INTEGER

#: The largest number in a list whose items are counted from 0 or 1, such as events: a database column of 32 bits.
LARGEST_COUNTED = 2**31 - 1
NAME, REFERENCE, CONNECTION, LINE = patterns.NAME, patterns.REFERENCE, patterns.CONNECTION, patterns.LINE
SHARED_NAME = patterns.SHARED_NAME
#: A digest of content.
#: Name of a resource of a cluster, such as `nvidia.com/gpu`.
RESOURCE_NAME = r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$"
DIGEST = r"^sha256:[0-9a-f]{64}$"

#: What is written for a pattern.
WORDS = {
    NAME: "Write letters (a to z), digits, '.', '_' and '-', the first a letter or a digit.",
    REFERENCE: "Write a name, name@version, name@tag, an id or a digest: letters, digits and . _ @ : - only; before"
    " what another project shares, that project and a slash.",
    SHARED_NAME: "Write a name: letters (a to z), digits, '.', '_' and '-'; of what another project shares,"
    " project/name.",
    DIGEST: "Write sha256: and 64 hexadecimal digits (0 to 9, a to f).",
    PATTERN: "Write a name with * and ?, which stand for others, and perhaps @ and a version: brake*, streets@3.",
    CONNECTION: "Write the name of a connection of the operator.",
    LINE: "Write one line of text without control characters.",
    r"^[^\x00-\x1f\x7f]+$": "Write one line of text without control characters.",
    r"^-?[^\x00-\x1f\x7f]+$": "Write a name, with - before it for the reverse order.",
    r"^[^=\x00-\x1f\x7f]+=[^\x00-\x1f\x7f]*$": "Write NAME=VALUE.",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}=[^\x00-\x1f\x7f]*$": "Write NAME=VALUE, with the name of a label.",
    r"^-?[0-9]{1,17}(/[^\x00-\x1f\x7f]+)?$": "Write the `next` of the page before, as it was.",
    r"^[A-Za-z0-9_-]+$": "Write the cursor of the header `Link`, as it was.",
    r"^[0-9a-z]{26}$": "Write an id: 26 characters, digits and the letters a to z.",
    r"^(none|[0-9a-z]{26})$": "Write an id: 26 characters, digits and the letters a to z; or none.",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}(,[A-Za-z0-9][A-Za-z0-9._-]{0,99})*$": "Write names with commas between them.",
    r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$": "Write a name of Kubernetes, such as example.com/zone.",
    r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$": "Write a label's value: letters, digits, '.', '_' and '-'.",
    r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$": "Write letters (a to z), digits and '-', which is neither first nor last.",
    r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?/)?[a-z0-9]([a-z0-9-]*[a-z0-9])?$": "Write letters (a to z), digits and '-';"
    " before the name of a service account perhaps its project and a slash.",
    r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$": "Write letters (a to z), digits, '.' and '-', the ends without these two.",
    r"^[a-z0-9]([a-z0-9./@-]*[a-z0-9])?$": "Write the name of a network, such as namespace/name@interface.",
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.]{4,15}(Z|[+-][0-9]{2}:?[0-9]{2})?)?$": "Write a day such as 2026-11-30, or a"
    " moment such as 2026-11-30T12:00:00Z.",
    r"^[0-9]{1,9}$": "Write a whole number, as text.",
    r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$": "Write the name of an image, such as example.com/solver:1.2.",
    r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$": "Write printable ASCII characters, without spaces at the ends.",
    r"^[^\x00-\x1f\x7f/]+(/[^\x00-\x1f\x7f/]+)*$": "Write a path such as output/energy.csv: no slash at its ends.",
    r"^([^\x00-\x1f\x7f/]+(/[^\x00-\x1f\x7f/]+)*)?$": "Write a path such as model/case: no slash at its ends.",
}

#: Most errors that are collected of one list, and most unknown members of one object that are reported.
MOST_ERRORS = 20


class Strict(Schema):
    """Schema of a client's input: an unknown field is refused."""

    class Meta:
        unknown = RAISE

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = sorted(field.data_key or name for name, field in self.load_fields.items())
        self._known = frozenset(names)
        self.error_messages["type"] = f"Not a JSON object. Its fields are: {', '.join(names)}."
        self.error_messages["unknown"] = f"Unknown field. The fields are: {', '.join(names)}."

    @pre_load
    def refuse_many_unknown(self, data: Any, **_: Any) -> Any:
        """Refuse an object by its first MOST_ERRORS unknown members: marshmallow would collect an error for each."""
        if isinstance(data, Mapping):
            unknown = list(islice((name for name in data if name not in self._known), MOST_ERRORS))
            if len(unknown) == MOST_ERRORS:
                raise ValidationError({str(name): [self.error_messages["unknown"]] for name in unknown})
        return data


class Open(Schema):
    """Schema of a response: clients must expect further fields."""

    class Meta:
        unknown = INCLUDE


class Headers(Schema):
    """Schema of request headers: headers that it does not name are ignored."""

    class Meta:
        unknown = EXCLUDE


class FieldOptions(TypedDict, total=False):
    """Options of every field: marshmallow's, and the sentence that documents it."""

    description: str
    metadata: Mapping[str, object]
    required: bool
    allow_none: bool
    load_default: object
    data_key: str
    attribute: str


def field_keywords(options: FieldOptions, **metadata: object) -> dict[str, Any]:
    """Return options with the description in the metadata, where the documentation reads it."""
    metadata |= options.pop("metadata", {})
    if "description" in options:
        metadata["description"] = options.pop("description")
    return {**options, "metadata": metadata}


class Whole(fields.Integer):
    """Integer; accepts ``1.0``, but not ``"1"`` or ``true``. ``text`` accepts digits too, for queries and headers."""

    def __init__(
        self, low: int = 0, high: int = LARGEST_INTEGER, *, text: bool = False, **options: Unpack[FieldOptions]
    ) -> None:
        super().__init__(validate=validate.Range(low, high), **field_keywords(options))
        self._text = text

    def _validated(self, value: Any) -> int:
        if self._text and isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,17}", value, re.ASCII):
            return int(value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.make_error("invalid", input=value)
        return value


class WholeOrAutoField(fields.Raw):
    """Integer from ``low`` to ``high``, as of `Whole`, or the text `auto`."""

    def __init__(self, low: int = 0, high: int = LARGEST_INTEGER, **options: Unpack[FieldOptions]) -> None:
        whole = {"type": "integer", "minimum": low, "maximum": high}
        alternatives = [whole, {"type": "string", "enum": ["auto"]}]
        super().__init__(**field_keywords(options, anyOf=alternatives))
        self._whole = Whole(low, high)
        self._refusal = f"Write a whole number from {low} to {high}, or auto."

    def _deserialize(self, value: object, *arguments: object, **kwargs: object) -> object:
        if value == "auto":
            return value
        try:
            return self._whole.deserialize(value)
        except ValidationError:
            raise ValidationError(self._refusal) from None


class Real(fields.Float):
    """Finite number; does not accept ``"1"`` or ``true``."""

    def __init__(self, low: float | None = None, high: float | None = None, **options: Unpack[FieldOptions]) -> None:
        super().__init__(validate=validate.Range(low, high), **field_keywords(options))

    def _validated(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.make_error("invalid", input=value)
        try:
            number = float(value)
        except OverflowError:
            raise self.make_error("too_large", input=value) from None
        if not math.isfinite(number):
            raise self.make_error("special", input=value)
        return number


class Flag(fields.Boolean):
    """Boolean; does not accept ``1`` or ``"yes"``. ``text`` accepts the strings true, false, 1 and 0, for queries."""

    def __init__(self, *, text: bool = False, **options: Unpack[FieldOptions]) -> None:
        truthy, falsy = ({"true", "1"}, {"false", "0"}) if text else ({True}, {False})
        super().__init__(truthy=truthy, falsy=falsy, **field_keywords(options))
        self._text = text

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> Any:
        if self._text and value in ("true", "1", "false", "0"):
            return value in ("true", "1")
        if value is not True and value is not False:
            raise self.make_error("invalid", input=value)
        return value


class PatternValidator(validate.Validator):
    """Matches a pattern of WORDS as JSON Schema does: in Python ``$`` alone also matches before a final line break."""

    def __init__(self, pattern: str) -> None:
        self._words = WORDS[pattern]
        self._compiled = re.compile(pattern.removesuffix("$") + r"\Z")

    def __call__(self, value: str) -> str:
        if not self._compiled.match(value):
            raise ValidationError(self._words)
        return value


class Text(fields.String):
    """String of bounded length that matches a pattern."""

    def __init__(
        self, pattern: str = LINE, *, longest: int = 200, shortest: int = 1, **options: Unpack[FieldOptions]
    ) -> None:
        validators = [validate.Length(shortest, longest), PatternValidator(pattern)]
        super().__init__(validate=validators, **field_keywords(options, pattern=pattern))


class Binary(Text):
    """File part of a form. It only documents the part; api.body parses the form."""

    def __init__(self, **options: Unpack[FieldOptions]) -> None:
        fields.String.__init__(self, **field_keywords(options, format="binary"))


class Choice(fields.String):
    """String from a fixed set."""

    def __init__(self, *choices: str, **options: Unpack[FieldOptions]) -> None:
        super().__init__(validate=validate.OneOf(choices), **field_keywords(options))


class ListField(fields.List[Any]):
    """List of ``shortest`` to ``longest`` items; the first MOST_ERRORS invalid items are reported."""

    def __init__(
        self, items: fields.Field[Any], *, shortest: int = 0, longest: int = 1000, **options: Unpack[FieldOptions]
    ) -> None:
        super().__init__(items, validate=validate.Length(shortest or None, longest), **field_keywords(options))
        self._longest = longest

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> list[Any]:
        if not isinstance(value, list):
            raise self.make_error("invalid")
        if len(value) > self._longest:
            raise ValidationError(f"Longer than maximum length {self._longest}.")
        items, errors = [], {}
        for index, item in enumerate(value):
            try:
                items.append(self.inner.deserialize(item, **kwargs))
            except ValidationError as error:
                errors[index] = error.messages
                if len(errors) == MOST_ERRORS:
                    break
        if errors:
            raise ValidationError(errors)
        return items


class CommaSeparated(fields.String):
    """List of names as text, such as ``gold,candidate``: in forms and queries, where each client writes lists its way.

    ``longest``: maximum of names.
    """

    def __init__(self, *, longest: int, **options: Unpack[FieldOptions]) -> None:
        pattern = NAME.removesuffix("$") + "(,{})*$".format(NAME.strip("^$"))
        super().__init__(**field_keywords(options, pattern=pattern, maxLength=101 * longest))
        self._check = PatternValidator(pattern)
        self._longest = longest

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> Any:
        text = super()._deserialize(value, attr, data, **kwargs)
        if text.count(",") >= self._longest:
            raise ValidationError(f"More than {self._longest} names.")
        return self._check(text).split(",")


class ObjectField(fields.Dict):
    """JSON object with at most ``most`` members."""

    def __init__(
        self,
        *,
        most: int = 100,
        keys: fields.Field[str] | None = None,
        values: fields.Field[Any] | None = None,
        **options: Unpack[FieldOptions],
    ) -> None:
        super().__init__(keys=keys, values=values, **field_keywords(options, maxProperties=most))
        self._most = most

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> Any:
        if not isinstance(value, dict):
            raise ValidationError("Not a JSON object.")
        if len(value) > self._most:
            raise ValidationError(f"More than {self._most} members.")
        try:
            return super()._deserialize(value, attr, data, **kwargs)  # type: ignore[no-untyped-call]
        except ValidationError as error:
            wrong = error.messages_dict.items()
            raise ValidationError({name: _of_member(**parts) for name, parts in wrong}) from None


def _of_member(key: object = None, value: object = None) -> object:
    """Return what is wrong with a member of an object, which marshmallow tells of its key and of its value."""
    return key or value
