"""Write the settings into the chart's schema of values: `python -m scripts.chart`; a test holds the two together."""

import json
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

from core import settings
from scripts.settings import said

SCHEMA = Path("helm/values.schema.json")
#: `--set` makes a string of what is no whole number.
NUMBER: dict[str, Any] = {"type": ["number", "string"], "minimum": 0, "pattern": r"^[0-9]+(\.[0-9]+)?$"}
KINDS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    Path: {"type": "string"},
    int: {"type": "integer", "minimum": 0},
    bool: {"type": ["boolean", "string"], "enum": [True, False, "yes", "no", "true", "false"]},
    float: NUMBER,
    timedelta: NUMBER,
    tuple[str, ...]: {"type": "array", "items": {"type": "string"}},
}


def camel(name: str) -> str:
    """Return a setting's name as the chart's values have it."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def settings_schema() -> dict[str, Any]:
    """Return the schema of `settings:`, each with the words of core/settings.py."""
    words, kinds = said(), get_type_hints(settings.Settings)
    known = {
        camel(one.name): KINDS[kinds[one.name]] | {"description": words[one.name]} for one in fields(settings.Settings)
    }
    renamed = {
        camel(old.lower()): {"const": f"is called {camel(new.lower())} now"} for old, new in settings.RENAMED.items()
    }
    return {"type": "object", "additionalProperties": False, "properties": known | renamed}


def schema() -> str:
    """Return the whole schema, as it should be."""
    document = json.loads(SCHEMA.read_text())
    document["properties"]["settings"] = settings_schema()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema())
