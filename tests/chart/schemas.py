"""JSON schemas of Kubernetes' own kinds, from the OpenAPI document in the sources of the pinned version."""

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema_rs

from tests.cached import tool
from tests.unit.crds import closed


def schema_errors(document: dict[str, Any]) -> list[str]:
    """Return the schema errors of an object; a kind without a schema is an error too."""
    kind = (document["apiVersion"], document["kind"])
    if kind not in _kinds():
        return [f"{kind[0]} has no kind {kind[1]}"]
    return [
        f"{'/'.join(map(str, error.instance_path))}: {error.message}"
        for error in _validator(kind).iter_errors(document)
    ]


@functools.cache
def _definitions() -> dict[str, Any]:
    source = Path(tool("source", "kubernetes", "k8s.io/kubernetes"))
    document = json.loads((source / "api/openapi-spec/swagger.json").read_text())
    definitions: dict[str, Any] = document["definitions"]
    return definitions


@functools.cache
def _kinds() -> dict[tuple[str, str], str]:
    return {
        ("/".join(filter(None, (kind["group"], kind["version"]))), kind["kind"]): name
        for name, schema in _definitions().items()
        for kind in schema.get("x-kubernetes-group-version-kind", ())
    }


@functools.cache
def _strict() -> dict[str, Any]:
    return {name: closed(schema) for name, schema in _definitions().items()}


@functools.cache
def _validator(kind: tuple[str, str]) -> jsonschema_rs.Draft202012Validator:
    schema = {"$ref": f"#/definitions/{_kinds()[kind]}", "definitions": _strict()}
    return jsonschema_rs.Draft202012Validator(schema)
