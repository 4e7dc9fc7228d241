"""Examples of the OpenAPI document: parameters, and bodies of requests and of responses, by operation.

`parameters.json` has those of all operations under `*`. `requests.json` has a title and a body for each example.
`responses.json` has answers of a platform, shortened. tests/system/test_openapi_examples.py sends each request, and
compares each response with its schema.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@cache
def _read(name: str) -> Mapping[str, Any]:
    examples: Mapping[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return examples


def add_examples(operation: dict[str, Any]) -> None:
    """Add examples to the parameters, to the body and to the success of an OpenAPI operation.

    Raise KeyError if an operation with a body has no example of it.
    """
    name = operation["operationId"]
    parameters = _read("parameters")
    values = parameters["*"] | parameters.get(name, {})
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in values:
            parameter["example"] = values[parameter["name"]]
    for media in operation.get("requestBody", {}).get("content", {}).values():
        media["examples"] = {
            re.sub(r"\W+", "_", title).lower(): {"summary": title, "value": value}
            for title, value in _read("requests")[name].items()
        }
    if (response := _read("responses").get(name)) is not None:
        success = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
        success["content"]["application/json"]["example"] = response
