"""The OpenAPI document reads like the reference of a library: each thing has a description, each number a unit."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from api import application

Named = tuple[str, Mapping[str, Any]]
#: Methods that each object of Java has and none may override; a generated client has a method for each parameter.
FINAL_METHODS = {"getClass", "notify", "notifyAll", "wait"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return application.describe()


def operations(document: Mapping[str, Any]) -> Iterator[Named]:
    """Yield each operation by its id."""
    for methods in document["paths"].values():
        yield from ((value["operationId"], value) for name, value in methods.items() if name != "parameters")


def properties(document: Mapping[str, Any]) -> Iterator[Named]:
    """Yield each property of the schemas by `Schema.property`."""
    for name, schema in document["components"]["schemas"].items():
        yield from ((f"{name}.{key}", value) for key, value in schema.get("properties", {}).items())


def parameters(document: Mapping[str, Any]) -> Iterator[Named]:
    """Yield each parameter of a path or an operation, as a schema with its description."""
    for path, methods in document["paths"].items():
        for name, value in methods.items():
            for parameter in value if name == "parameters" else value.get("parameters", ()):
                yield f"{path} {parameter['name']}", parameter["schema"] | {"description": parameter.get("description")}


def headers(document: Mapping[str, Any]) -> Iterator[Named]:
    """Yield each header of a response, as a schema with its description."""
    for name, operation in operations(document):
        for response in operation["responses"].values():
            for header, value in response.get("headers", {}).items():
                yield f"{name} {header}", value["schema"] | {"description": value.get("description")}


def described(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return the description of a property: its own, or that of the component that it is."""
    if "$ref" in schema and "description" not in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema.get("description") or ""


def types(schema: Mapping[str, Any]) -> set[str]:
    """Return the JSON types of a schema, those of its alternatives included."""
    own = schema.get("type", [])
    alternatives = (types(each) for each in schema.get("anyOf", ()))
    return {own} if isinstance(own, str) else set(own).union(*alternatives)


def has_numbers(schema: Mapping[str, Any]) -> bool:
    """Return whether a value is a number, or a list of numbers, or a list of such lists."""
    return bool(types(schema) & {"integer", "number"}) or has_numbers(schema.get("items", {})) if schema else False


def test_every_operation_has_a_summary_and_a_description_that_says_more(document: dict[str, Any]) -> None:
    lacking = [
        name
        for name, operation in operations(document)
        if not operation.get("summary") or len(operation.get("description", "")) < 20
    ]
    assert lacking == [] and len(list(operations(document))) > 80


def test_operations_have_names_of_a_verb_and_what_it_is_done_to(document: dict[str, Any]) -> None:
    names = [name for name, _ in operations(document)]
    assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+)+", name)] == []
    assert len(set(names)) == len(names)


def test_every_property_parameter_and_header_has_a_description(document: dict[str, Any]) -> None:
    named = [*properties(document), *parameters(document), *headers(document)]
    lacking = [name for name, schema in named if len(described(document, schema)) < 4]
    assert lacking == [] and len(named) > 950


def test_every_text_is_a_sentence(document: dict[str, Any]) -> None:
    named = [*properties(document), *parameters(document), *headers(document)]
    texts = [(name, described(document, schema)) for name, schema in named]
    texts += [(name, operation["description"]) for name, operation in operations(document)]
    assert [name for name, text in texts if not text.rstrip().endswith((".", "`"))] == []


#: What a number may be, by its name: the pattern of the names `Schema.property`, and what its description then has.
#: The first that matches counts.
UNITS: tuple[tuple[str, str, str], ...] = (
    (
        "seconds",
        r"seconds|expires_in$|Flip\.at$|_time$|timeout|eta$|Retry-After|changes after$|changes Last-Event-ID$",
        r"\b(micro)?[Ss]econds\b",
    ),
    (
        "bytes",
        r"bytes|memory|scratch$|largest|capacity|pinned|max_size|Max-Size|[Oo]ffset|[Ll]ength|Disk\.|"
        r"(Artifact|Facts|File|ManifestLine|Model)\.size$",
        r"\b[Bb]ytes?\b",
    ),
    ("a rate", r"ExecutorLoad\.rate$", r"per second"),
    (
        "from 0 to 1",
        r"share$|fraction$|power$|ratio$|error_rate$|\.p$|\.p_\w+$|association$|Combination\.(rate|low|high)$",
        r"from 0 to 1|probability",
    ),
    ("from -1 to 1", r"^Effect\.", r"from -1 to 1"),
    (
        "a value of a metric or a parameter",
        r"\.(mean|value|min|max|p25|p50|p75|low|high|bound|margin|smallest|smallest_margin|difference|first|second|score|from|x|y|edges|means|"
        r"series|worst|ok_mean)$|PairedMetric\.to$|Group\.to$|PlotBin\.to$|comparison (bound|margin)$",
        r"\bunit\b",
    ),
    (
        "a number in an order",
        r"\.(task|to_task|index|batch|number|attempt|position|place|version|repeat|range|tasks)$|"
        r" (task|index|from)$|[Ee]vents? after$|Last-Event-ID$",
        r"\bfrom [01]\b|[Nn]umber of (the )?\w+",
    ),
    ("a seed", r"seed$", r"\bSeed\b"),
    ("an HTTP status", r"(Problem(Kind)?|AuditEntry|Delivery)\.status$", r"HTTP status"),
    ("a cursor", r"\.next$| after$", r"`next`|`after`|Cursor"),
    ("a count", r"", r"\b[Nn]umbers? of \w+|\b(Most|Smallest|the most) \w+"),
)


def unit_of(name: str) -> tuple[str, str]:
    """Return what the number of this name is, and the pattern that its description has."""
    return next((kind, wanted) for kind, pattern, wanted in UNITS if re.search(pattern, name))


def test_every_number_says_its_unit_or_what_it_counts(document: dict[str, Any]) -> None:
    named = [*properties(document), *parameters(document), *headers(document)]
    numbers = [(name, described(document, schema)) for name, schema in named if has_numbers(schema)]
    unclear = {name: (unit_of(name)[0], text) for name, text in numbers if not re.search(unit_of(name)[1], text)}
    assert unclear == {}
    kinds = Counter(unit_of(name)[0] for name, _ in numbers)
    assert set(kinds) == {kind for kind, _, _ in UNITS}, "each kind of number occurs, so no rule is without effect"
    assert len(numbers) > 250


def test_a_number_without_its_unit_is_found() -> None:
    for name, text in (
        ("Limits.load_time", "Time to load the model."),
        ("Cache.capacity", "How much it may hold."),
        ("Group.low", "Lower end of the 95 % interval."),
        ("Place.place", "Where it is."),
        ("Waiting.tasks_left", "Tasks."),
    ):
        assert not re.search(unit_of(name)[1], text), name


#: Numbers named `low` and `high` that are no interval: the least and the greatest value.
EXTREMES = {"Parameter.low", "Parameter.high"}


def test_low_and_high_are_the_ends_of_an_interval_of_a_named_estimate(document: dict[str, Any]) -> None:
    ends = {name: described(document, schema) for name, schema in properties(document) if name[-4:] in {".low", "high"}}
    assert EXTREMES <= ends.keys() and len(ends) >= 22
    for name, text in ends.items():
        if name in EXTREMES:
            assert re.match(r"(Least|Greatest) value", text), name
            continue
        end = "Lower" if name.endswith("low") else "Upper"
        assert re.match(rf"{end} end of the 95 % interval of (the )?[a-z`]", text), (name, text)
    assert all(f"{name.rpartition('.')[0]}.high" in ends for name in ends), "an interval has both ends"


def test_everything_that_may_be_null_says_when(document: dict[str, Any]) -> None:
    nullable = [(name, described(document, schema)) for name, schema in properties(document) if "null" in types(schema)]
    assert [name for name, text in nullable if "null" not in text.lower()] == [] and len(nullable) > 120


def test_no_text_refers_to_files_that_a_reader_of_swagger_ui_does_not_have(document: dict[str, Any]) -> None:
    text = yaml.safe_dump(document, width=10_000)
    assert re.findall(r"\bdocs/\S+|\S+\.md\b|\b(?:core|api|web|tests|runtimes)/\w+\.py\b", text) == []


def test_no_schema_has_members_that_a_generated_client_of_go_cannot_tell_apart(document: dict[str, Any]) -> None:
    names = {name for name, _ in properties(document)}
    assert [name for name in names if f"{name}_ok" in names] == [], "`mean` has GetMeanOk, and so has `mean_ok`"


def test_no_parameter_has_the_name_of_a_method_that_a_generated_client_cannot_have(document: dict[str, Any]) -> None:
    assert [name for name, _ in parameters(document) if name.rpartition(" ")[2] in FINAL_METHODS] == []
