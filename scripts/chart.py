"""The schema of the chart's values: the settings in it, with their descriptions, follow from core/settings.py."""

import json
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

from core import settings
from scripts.settings import descriptions

SCHEMA = Path("helm/values.schema.json")
#: helm's `--set` passes numbers that are not integers as strings.
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
    """Return a setting's name in the chart's values."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def settings_schema() -> dict[str, Any]:
    """Return the schema of `settings:`, with the descriptions of core/settings.py."""
    texts, kinds = descriptions(), get_type_hints(settings.Settings)
    current = {
        camel(setting.name): KINDS[kinds[setting.name]] | {"description": texts[setting.name]}
        for setting in fields(settings.Settings)
    }
    renamed = {
        camel(old.lower()): {"const": f"is called {camel(new.lower())} now"} for old, new in settings.RENAMED.items()
    }
    return {"type": "object", "additionalProperties": False, "properties": current | renamed}


def schema() -> str:
    """Return the complete schema with the current settings."""
    document = json.loads(SCHEMA.read_text())
    document["properties"]["settings"] = settings_schema()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
