"""Schema mapping: fields of observations and actions from the JSON schemas that an environment publishes at /schema.

Only what a schema makes obvious is mapped: numbers, booleans, strings with an `enum`, nested objects of these, and
lists of numbers. For everything else the dataset has to declare fields. Pure functions.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .json_mapping import path_steps, value_at

#: Members of every observation and action that are not part of what they mean.
OWN = frozenset({"done", "reward", "metadata"})
#: Objects within each other at most, and the most fields.
DEPTH, FIELDS = 8, 500
#: Schemas of one value, by their type.
NUMBERS = ("number", "integer")


class NotObvious(ValueError):
    """A schema does not say how a field maps to numbers."""


def observation_fields(
    schema: Any, observations: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the fields of observations that are numbers, booleans, enumerations and lists of numbers; and the others.

    ``observations``: those of some steps. The first has the shapes of lists; a list whose shape changes is left out.
    Raises NotObvious if no field is left.
    """
    found = list(_observed(_properties(schema, schema), schema, observations[0], "", 0))
    left_out = [f"{field['path']}: {field['left_out']}" for field in found if "left_out" in field]
    found = [field for field in found if "left_out" not in field]
    for field in [field for field in found if "shape" in field]:
        if any(_shape_at(later, field["path"]) != field["shape"] for later in observations):
            found.remove(field)
            left_out.append(f"{field['path']}: the lengths of its lists change")
    if not found:
        raise NotObvious(
            "no field of its observations is a number, a boolean, a list of numbers or a string with an `enum`;"
            " declare `openenv.observation`"
        )
    return _limited(found, "observation"), left_out[:FIELDS]


def action_fields(schema: Any) -> list[dict[str, Any]]:
    """Return the fields of actions. Raises NotObvious for a required field that is something else than numbers."""
    found = list(_applied(schema, schema, "", 0))
    if not found:
        raise NotObvious("its actions have no field with a number, a boolean or an `enum`; declare `openenv.action`")
    return _limited(found, "action")


def _shape_at(observation: Any, path: str) -> list[int] | None:
    try:
        return shape_of(value_at(observation, path_steps(path)))
    except NotObvious:
        return None


def shape_of(value: Any) -> list[int] | None:
    """Return the shape of a nested list; None for one value. Raises NotObvious for lists of different lengths."""
    if not isinstance(value, list):
        return None
    shapes = [shape_of(item) for item in value]
    if any(shape != shapes[0] for shape in shapes) or len(value) > 100_000:
        raise NotObvious("lists within a list have different lengths")
    return [len(value), *(shapes[0] or [])] if value else [0]


def _observed(
    properties: Mapping[str, Any], root: Any, observation: Any, prefix: str, depth: int
) -> Iterator[dict[str, Any]]:
    if depth > DEPTH or not isinstance(observation, dict):
        return
    for name, declared in properties.items():
        if (depth == 0 and name in OWN) or not _is_name(name):
            continue
        path, schema = prefix + name, _resolved(declared, root)
        value = observation.get(name)
        optional = {} if name in observation and value is not None else {"missing": 0.0}
        if values := _strings(schema):
            yield {"path": path, "values": values, **optional}
        elif schema.get("type") == "boolean":
            yield {"path": path, "low": 0.0, "high": 1.0, **optional}
        elif schema.get("type") in NUMBERS:
            yield {"path": path, **_bounds(schema), **optional}
        elif schema.get("type") == "array":
            yield from _observed_list(path, schema, root, value)
        elif "properties" in schema:
            yield from _observed(_properties(schema, root), root, value, f"{path}.", depth + 1)
        else:
            yield {"path": path, "left_out": f"it is of the type {str(schema.get('type') or 'unknown')[:40]}"}


def _observed_list(path: str, schema: Mapping[str, Any], root: Any, value: Any) -> Iterator[dict[str, Any]]:
    """Yield the field of a nested list of numbers, whose shape is that of the first observation."""
    item: Mapping[str, Any] = schema
    for _ in range(DEPTH):
        item = _resolved(item.get("items"), root)
        if item.get("type") != "array":
            break
    try:
        shape = shape_of(value)
    except NotObvious:
        shape = None
    if item.get("type") not in (*NUMBERS, "boolean") or not shape or 0 in shape:
        yield {"path": path, "left_out": "it is not a list of numbers with a length"}
        return
    yield {"path": path, "shape": shape, **({"low": 0.0, "high": 1.0} if item["type"] == "boolean" else _bounds(item))}


def _applied(above: Any, root: Any, prefix: str, depth: int) -> Iterator[dict[str, Any]]:
    listed = _resolved(above, root).get("required")
    required = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    for name, declared in _properties(above, root).items():
        if (depth == 0 and name in OWN) or not _is_name(name):
            continue
        path, schema = prefix + name, _resolved(declared, root)
        if "const" in schema:
            yield {"path": path, "kind": "constant", "value": schema["const"]}
        elif values := _strings(schema):
            one = {"kind": "constant", "value": values[0]} if len(values) == 1 else {"kind": "choice", "values": values}
            yield {"path": path, **one}
        elif schema.get("type") == "boolean":
            yield {"path": path, "kind": "boolean"}
        elif schema.get("type") in NUMBERS:
            yield {"path": path, "kind": schema["type"], **_bounds(schema)}
        elif schema.get("type") == "array" and (shape := _fixed(schema)):
            item = _resolved(schema.get("items"), root)
            if item.get("type") in NUMBERS:
                yield {"path": path, "kind": item["type"], "shape": shape, **_bounds(item)}
        elif "properties" in schema and depth < DEPTH and name in required:
            yield from _applied(schema, root, f"{path}.", depth + 1)
        elif name in required:
            kind = str(schema.get("type") or "several types")[:40]
            raise NotObvious(f"`{path[:80]}` of its actions is of the type {kind}; declare `openenv.action`")


def _fixed(schema: Mapping[str, Any]) -> list[int] | None:
    """Return the shape of a list whose length the schema fixes."""
    least, most = schema.get("minItems"), schema.get("maxItems")
    return [least] if isinstance(least, int) and least == most and 1 <= least <= 1000 else None


def _properties(schema: Any, root: Any) -> Mapping[str, Any]:
    properties = _resolved(schema, root).get("properties")
    return properties if isinstance(properties, dict) else {}


def _resolved(schema: Any, root: Any) -> Mapping[str, Any]:
    """Return a schema without references, and of "something or null" the something."""
    for _ in range(DEPTH):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/$defs/") and isinstance(root, dict):
            definitions = root.get("$defs")
            schema = definitions.get(reference.removeprefix("#/$defs/")) if isinstance(definitions, dict) else None
            continue
        options = schema.get("anyOf")
        if isinstance(options, list):
            others = [item for item in options if not (isinstance(item, dict) and item.get("type") == "null")]
            if len(others) == 1:
                schema = others[0]
                continue
        return schema
    return {}


def _strings(schema: Mapping[str, Any]) -> list[str]:
    values = schema.get("enum")
    return values if isinstance(values, list) and values and all(isinstance(value, str) for value in values) else []


def _bounds(schema: Mapping[str, Any]) -> dict[str, float]:
    """Return the bounds that a schema has; those that exclude their value count as well."""
    bounds = {}
    for name, keys in (("low", ("minimum", "exclusiveMinimum")), ("high", ("maximum", "exclusiveMaximum"))):
        value = next((schema[key] for key in keys if isinstance(schema.get(key), int | float)), None)
        if value is not None and abs(value) < 1e38:
            bounds[name] = float(value)
    return bounds if bounds.get("low") is None or bounds.get("low") != bounds.get("high") else {}


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.replace("_", "a").replace("-", "a").isalnum() and name.isascii()


def _limited(fields: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    if len(fields) > FIELDS:
        raise NotObvious(f"its schema has {len(fields):,} fields of {what}; declare those that count")
    return fields
