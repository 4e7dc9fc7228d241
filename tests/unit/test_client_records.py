"""Records of the Python client agree with openapi.yaml: each declared member is there, with a type that can be read."""

import types
import typing
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from windtunnel import records
from windtunnel.errors import WindtunnelError
from windtunnel.records import Record, Simulation, read

SCHEMAS: dict[str, Any] = yaml.load(
    (Path(__file__).parents[2] / "openapi.yaml").read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
)["components"]["schemas"]
#: Schemas of the documents that the client reads as each record; records within records follow from the members.
DOCUMENTS: list[tuple[type[Record], str]] = [
    (records.Simulation, "Simulation"),
    (records.Result, "Result"),
    (records.Result, "WorstTask"),
    (records.Event, "Event"),
    (records.Model, "Model"),
    (records.Check, "DryRun"),
    (records.Dataset, "Dataset"),
    (records.Runtime, "Runtime"),
    (records.Executor, "Executor"),
    (records.ModelComparison, "ModelComparison"),
    (records.ModelComparison, "ListedComparison"),
]
#: Members that the client adds, or that only one of several documents of a record has.
ELSEWHERE = {
    ("Result", "Result.score"),  # of the worst results
    ("WorstTask", "Result.artifacts"),
    ("WorstTask", "Result.timing"),
    ("ListedComparison", "ComparedModel.groups"),
}
#: Python types that hold each type of JSON.
HOLDERS: dict[str, set[object]] = {
    "string": {str, datetime},
    "integer": {int, float},
    "number": {float},
    "boolean": {bool},
    "array": {list},
    "object": {dict},
    "null": {type(None)},
}
SIMULATION = {
    "id": "01jz",
    "state": "succeeded",
    "model": {"name": "m"},
    "dataset": {"name": "d"},
    "runtime": {"name": "python"},
    "tasks": {"total": 2, "done": 2, "failed": 0},
}


def alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas of which a value has one, without references."""
    if "$ref" in schema:
        return alternatives(SCHEMAS[schema["$ref"].rpartition("/")[2]])
    parts = schema.get("anyOf") or schema.get("oneOf")
    return [leaf for part in parts for leaf in alternatives(part)] if parts else [schema]


def drift(kind: type[Record], schema: dict[str, Any], where: str, name: str) -> Iterator[str]:
    """Yield a line for each member of a record that the schema does not have, or that could not be read."""
    hints = typing.get_type_hints(kind)
    properties: dict[str, Any] = {}
    for leaf in alternatives(schema):
        properties |= leaf.get("properties", {})
    required = [member for leaf in alternatives(schema) for member in leaf.get("required", [])]
    if not properties:
        return  # the document says only that it is an object
    for field in msgspec.structs.fields(kind):
        member = f"{kind.__name__}.{field.name}"
        if field.name == "raw" or (name, member) in ELSEWHERE:
            continue
        if field.name not in properties:
            yield f"{where}: {member} is not in the schema {name}"
            continue
        if field.required and field.name not in required and required:
            yield f"{where}: {member} has no default, and the platform may leave it out"
        yield from unreadable(hints[field.name], properties[field.name], f"{where}.{field.name}", name)


def unreadable(hint: Any, schema: dict[str, Any], where: str, name: str) -> Iterator[str]:
    """Yield a line for each type of JSON that the schema permits and a member's annotation does not."""
    if hint is Any:
        return
    options = (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )
    for leaf in alternatives(schema):
        kinds = leaf.get("type", [])
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            fits = [option for option in options if option is Any or _holds(option, kind)]
            if not fits:
                yield f"{where} may be {kind}, and is declared as {hint}"
            for option in fits:
                if kind == "object" and isinstance(option, type) and issubclass(option, Record):
                    yield from drift(option, leaf, where, name)
                elif kind == "object" and len(typing.get_args(option)) == 2:
                    inner = leaf.get("additionalProperties")
                    if isinstance(inner, dict):
                        yield from unreadable(typing.get_args(option)[1], inner, f"{where}[]", name)
                elif kind == "array" and typing.get_args(option) and "items" in leaf:
                    yield from unreadable(typing.get_args(option)[0], leaf["items"], f"{where}[]", name)


def _holds(option: Any, kind: str) -> bool:
    base = typing.get_origin(option) or option
    return base in HOLDERS[kind] or (kind == "object" and isinstance(base, type) and issubclass(base, Record))


@pytest.mark.parametrize(("kind", "name"), DOCUMENTS, ids=[name for _, name in DOCUMENTS])
def test_every_member_of_a_record_is_in_the_api_with_a_type_that_can_be_read(kind: type[Record], name: str) -> None:
    assert list(drift(kind, SCHEMAS[name], name, name)) == []


def test_the_comparison_with_the_api_finds_drift() -> None:
    class Renamed(Record, frozen=True, kw_only=True):
        naem: str = ""

    class Narrowed(Record, frozen=True, kw_only=True):
        reason: str = ""

    assert list(drift(Renamed, SCHEMAS["Model"], "Model", "Model"))
    assert list(drift(Narrowed, SCHEMAS["Simulation"], "Simulation", "Simulation"))


def test_members_of_a_newer_platform_are_kept_and_are_no_error() -> None:
    document = SIMULATION | {"weather": {"wind": 3}, "tasks": {"total": 2, "done": 2, "failed": 0, "late": 1}}
    simulation = read(Simulation, document)
    assert simulation.ok
    assert simulation.raw == document


def test_records_cannot_be_changed() -> None:
    simulation = read(Simulation, SIMULATION)
    with pytest.raises(AttributeError):
        simulation.state = "failed"  # type: ignore[misc]


@pytest.mark.parametrize("document", [{}, {"id": 5}, SIMULATION | {"tasks": None}, SIMULATION | {"workers": "many"}])
def test_a_document_of_another_kind_is_an_error_that_says_what_to_look_at(document: dict[str, Any]) -> None:
    with pytest.raises(WindtunnelError, match="a platform, and is the client up to date"):
        read(Simulation, document)


def test_a_record_is_shown_by_its_members_without_the_whole_document() -> None:
    assert repr(read(Simulation, SIMULATION)) == "Simulation('01jz', succeeded: m on d, 2 of 2 tasks, 0 not ok)"
    assert repr(read(records.Runtime, {"name": "onnx"})) == "Runtime(name='onnx')"


def test_texts_in_the_displays_of_notebooks_are_escaped() -> None:
    hostile = SIMULATION | {"model": {"name": "<script>alert(1)</script>"}}
    shown = read(Simulation, hostile)._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
