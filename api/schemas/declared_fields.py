"""Fields of schemas for the members that a class declares (core/domain/submissions/declared_members.py), by type."""

from collections.abc import Mapping
from typing import Any, Unpack, get_args, get_origin

from marshmallow import fields

from api.schemas.fields import Choice, FieldOptions, Flag, ListField, ObjectField, Real, Text, Whole, WholeOrAutoField
from core.domain.submissions.declared_members import DeclaredMember, ValueLimits, WholeOrAuto, declared_type

SchemaField = fields.Field[Any]


def field_options(member: DeclaredMember) -> FieldOptions:
    """Return the options of the field of a member that do not depend on its type."""
    description, nullable = member.facts.description, member.nullable or get_origin(member.type) is Mapping
    if nullable and "null" not in description.lower():
        description += " Null: as if left out."
    options: FieldOptions = {"description": description}
    if member.required:
        options["required"] = True
    if nullable:
        options["allow_none"] = True
    return options


def field_of(kind: object, limits: ValueLimits, **options: Unpack[FieldOptions]) -> SchemaField:
    """Return the field of a type. Raise TypeError for a type that no field is for."""
    bounds = {name: bound for name in ("low", "high") if (bound := getattr(limits, name)) is not None}
    sizes = {name: size for name in ("shortest", "longest") if (size := getattr(limits, name)) is not None}
    if kind is str and limits.choices:
        return Choice(*limits.choices, **options)
    if kind is str:
        return Text(limits.pattern, **sizes, **options)
    if kind is int:
        return Whole(**bounds, **options)
    if kind == WholeOrAuto:
        return WholeOrAutoField(**bounds, **options)
    if kind is float:
        return Real(**bounds, **options)
    if kind is bool:
        return Flag(**options)
    if kind is object:
        return fields.Raw(allow_none=True)
    parts = [field_of(*declared_type(part)) for part in get_args(kind)]
    if get_origin(kind) is list:
        return ListField(parts[0], **sizes, **options)
    if get_origin(kind) is Mapping:
        keys, values = parts
        return ObjectField(most=limits.longest or 100, keys=keys, values=values, **options)
    raise TypeError(f"No field of a schema is for {kind}: add it to {__name__}.")
