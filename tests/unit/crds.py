"""Closed schemas of Kubernetes objects: Kubernetes drops unknown fields silently, tests must detect them."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

FOLDER = Path(__file__).parents[1] / "crds"
#: API version and kind of Kubernetes' own objects -> name of the schema in its OpenAPI document.
BUILT_IN = {
    ("batch/v1", "Job"): "io.k8s.api.batch.v1.Job",
    ("networking.k8s.io/v1", "NetworkPolicy"): "io.k8s.api.networking.v1.NetworkPolicy",
    ("v1", "Secret"): "io.k8s.api.core.v1.Secret",
    ("v1", "Service"): "io.k8s.api.core.v1.Service",
    ("v1", "ConfigMap"): "io.k8s.api.core.v1.ConfigMap",
}


def violations(document: dict[str, Any]) -> list[str]:
    """Return the violations of an object by each version of its schema; empty if all versions accept it."""
    validators = list(_validators(document["apiVersion"], document["kind"]))
    assert validators, f"no schema for {document['apiVersion']} {document['kind']}"
    return [
        f"{name}: {'/'.join(map(str, error.instance_path))}: {error.message}"
        for name, validator in validators
        for error in validator.iter_errors(document)
    ]


def _validators(version: str, kind: str) -> Iterator[tuple[str, jsonschema_rs.Draft202012Validator]]:
    if (version, kind) in BUILT_IN:
        yield "kubernetes-1.35", _built_in(BUILT_IN[version, kind])
    for name, schema in _custom().get((version, kind), ()):
        yield name, _compiled(name, version, kind, json.dumps(schema))


@functools.cache
def _compiled(name: str, version: str, kind: str, schema: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(json.loads(schema))


@functools.cache
def _built_in(name: str) -> jsonschema_rs.Draft202012Validator:
    schemas = json.loads((FOLDER / "kubernetes-1.35" / "schemas.json").read_text())
    schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": closed(schemas)}}
    return jsonschema_rs.Draft202012Validator(schema)


@functools.cache
def _custom() -> dict[tuple[str, str], list[tuple[str, dict[str, Any]]]]:
    schemas: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {}
    for path in sorted(FOLDER.glob("*/*.yaml")):
        definition = yaml.load(path.read_text(), yaml.CSafeLoader)["spec"]
        for version in definition["versions"]:
            key = (f"{definition['group']}/{version['name']}", definition["names"]["kind"])
            schemas.setdefault(key, []).append((path.parent.name, closed(version["schema"]["openAPIV3Schema"])))
    return schemas


def closed(schema: Any) -> Any:
    """Return a schema that refuses unknown fields, with the formats of Kubernetes as plain JSON Schema."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed_schema = {key: closed(value) for key, value in schema.items()}
    if closed_schema.get("x-kubernetes-int-or-string") is True or closed_schema.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    if (
        isinstance(closed_schema.get("properties"), dict)
        and closed_schema.get("x-kubernetes-preserve-unknown-fields") is not True
    ):
        closed_schema.setdefault("additionalProperties", False)
    return closed_schema
