"""Page of the API's operations: docs/reference/operations.md, from the OpenAPI document; `make reference` writes it."""

from collections.abc import Iterator
from typing import Any

from api import application

METHODS = ("get", "head", "post", "put", "patch", "delete", "options")
HEAD = """# Operations of the API

Generated from the OpenAPI document by `make reference`. A running server shows parameters, bodies and examples
of each at `/docs` (Swagger UI) and has the document at `/openapi.json`; [the HTTP API](../api.md) explains how
operations are used together.
"""


def page() -> str:
    """Return the page: a section for each tag with a row for each of its operations."""
    document = application.describe()
    sections = [HEAD]
    for tag in document["tags"]:
        rows = "".join(_rows(document, tag["name"]))
        sections.append(
            f"\n## {tag['name'].capitalize()}\n\n{tag['description']}\n\n"
            f"| operation | address | what it does |\n|---|---|---|\n{rows}"
        )
    return "".join(sections)


def _rows(document: dict[str, Any], tag: str) -> Iterator[str]:
    for address, operations in document["paths"].items():
        for method in METHODS:
            operation = operations.get(method)
            if operation is not None and operation["tags"][0] == tag:
                summary = operation["summary"].replace("|", "\\|")
                yield f"| `{operation['operationId']}` | `{method.upper()} {address}` | {summary} |\n"
