"""Members of a document as its class declares them: `name: Annotated[type, Member(...), ...] = default`.

The API's schema, the client, the command line, the tools of agents and the form of the web page follow from them.
"""

from collections.abc import Iterator
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from types import NoneType
from typing import Annotated, Literal, TypeVar, get_args, get_origin, get_type_hints

from common.patterns import LINE

P = TypeVar("P")
#: A number, or the platform decides.
WholeOrAuto = int | Literal["auto"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueLimits:
    """Values: a number from ``low`` to ``high``, a text of ``choices``, or one that ``pattern`` matches.

    ``shortest`` and ``longest``: characters, items or members. None: the default of that kind of value.
    """

    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = LINE
    shortest: int | None = None
    longest: int | None = None


@dataclass(frozen=True, slots=True)
class Member(ValueLimits):
    """Member that a caller may send, with null for None if ``null``. ``compared``: requests of comparisons have it."""

    description: str
    _: KW_ONLY
    null: bool = True
    compared: bool = False


@dataclass(frozen=True, slots=True)
class CommandOption:
    """Option, by ``name`` if that is not the member's; ``metavar``: for its value. ``agents``: they have it too."""

    help: str
    metavar: str | None = None
    _: KW_ONLY
    name: str | None = None
    agents: bool = True


@dataclass(frozen=True, slots=True)
class FormField:
    """Field of the form. ``placeholder``: the meaning of an empty field."""

    label: str
    placeholder: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredMember:
    """Member as it was declared. ``type``: without None; ``facts``: its limits, and what callers are told."""

    name: str
    type: object
    facts: Member
    option: CommandOption | None
    form: FormField | None
    required: bool
    nullable: bool


def declared_type(hint: object) -> tuple[object, ValueLimits]:
    """Return a type without None, and the limits that are declared beside it."""
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    others = [part for part in get_args(bare) if part is not NoneType]
    return others[0] if NoneType in get_args(bare) else bare, _part(hint, ValueLimits) or ValueLimits()


def declared_members(record: type) -> Iterator[DeclaredMember]:
    """Yield the members of a dataclass that have a Member."""
    hints = get_type_hints(record, include_extras=True)
    for field in fields(record):
        hint = hints[field.name]
        if (facts := _part(hint, Member)) is not None:
            yield DeclaredMember(
                name=field.name,
                type=declared_type(hint)[0],
                facts=facts,
                option=_part(hint, CommandOption),
                form=_part(hint, FormField),
                required=field.default is MISSING and field.default_factory is MISSING,
                nullable=facts.null and NoneType in get_args(get_args(hint)[0]),
            )


def _part(hint: object, kind: type[P]) -> P | None:
    return next((part for part in get_args(hint) if isinstance(part, kind)), None)
