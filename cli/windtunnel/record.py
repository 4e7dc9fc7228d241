"""Record: a document of the API as a typed, immutable value.

Members that are not declared are kept in ``raw``, the document as the platform sent it, so that a client reads
platforms that are newer than itself.
"""

from typing import Any, TypeVar

import msgspec
from msgspec.structs import force_setattr

from windtunnel.displays import table_html
from windtunnel.errors import WindtunnelError


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A document of the API. ``raw`` is the whole of it; empty for a record within another."""

    raw: dict[str, Any] = msgspec.field(default_factory=dict, name="$raw")

    def __repr__(self) -> str:
        members = ", ".join(
            f"{name}={value!r}"
            for name in self.__struct_fields__
            if name != "raw" and (value := getattr(self, name)) not in (None, "", {}, [])
        )
        return f"{type(self).__name__}({members})"

    def __hash__(self) -> int:
        return hash((type(self), getattr(self, "id", None), getattr(self, "name", None)))

    def _repr_html_(self) -> str:
        members = {name: getattr(self, name) for name in self.__struct_fields__ if name != "raw"}
        rows = ((name, value) for name, value in members.items() if value not in (None, {}, []))
        return table_html(type(self).__name__, ("", ""), rows)


R = TypeVar("R", bound=Record)


def read(kind: type[R], document: dict[str, Any]) -> R:
    """Return a document of the API as a record; raise WindtunnelError for one that the API cannot have sent."""
    try:
        record = msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise WindtunnelError(
            f"The platform sent a {kind.__name__} that this client cannot read ({error}). Is the address that of a"
            " platform, and is the client up to date?"
        ) from None
    force_setattr(record, "raw", document)
    return record
