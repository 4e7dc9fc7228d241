"""JSON schemas for kubeconform, made of what the API server itself publishes of its kinds: strict, none downloaded."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "scripts" / "tools"
#: Where kubeconform finds a kind, under the folder of schemas.
PATTERN = "{{ .ResourceKind }}{{ .KindSuffix }}.json"


def published() -> dict[str, Any]:
    """Return the OpenAPI document in the sources of the pinned Kubernetes."""
    told = subprocess.run(
        [TOOLS / "go", "mod", "download", "-json", "k8s.io/kubernetes"],
        cwd=TOOLS / "kubernetes.d",
        check=True,
        stdout=subprocess.PIPE,
        timeout=280,
    )
    folder = Path(json.loads(told.stdout)["Dir"])
    document: dict[str, Any] = json.loads((folder / "api" / "openapi-spec" / "swagger.json").read_text())
    return document


def strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that knows no fields but those it names."""
    if schema.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    if "$ref" in schema:
        return {"$ref": f"definitions.json{schema['$ref']}"}
    closed = {key: schema[key] for key in ("type", "required", "enum") if key in schema}
    if "items" in schema:
        closed["items"] = strict(schema["items"])
    if isinstance(schema.get("additionalProperties"), Mapping):
        closed["additionalProperties"] = strict(schema["additionalProperties"])
    if "properties" in schema:
        closed["properties"] = {name: strict(one) for name, one in schema["properties"].items()}
        closed.setdefault("additionalProperties", False)
    return closed


def write(folder: Path) -> None:
    """Write a file for each kind, and one with all that they are made of."""
    definitions = published()["definitions"]
    named = {name: strict(schema) for name, schema in definitions.items()}
    (folder / "definitions.json").write_text(json.dumps({"definitions": named}))
    for name, schema in definitions.items():
        for kind in schema.get("x-kubernetes-group-version-kind", ()):
            group = kind["group"].split(".")[0]
            suffix = "-".join(filter(None, [kind["kind"].lower(), group, kind["version"]]))
            told = {"$ref": f"definitions.json#/definitions/{name}"}
            (folder / f"{suffix}.json").write_text(json.dumps(told))
