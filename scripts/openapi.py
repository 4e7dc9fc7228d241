"""Generate openapi.yaml from the code, or with ``--check`` report whether it is up to date."""

import sys
from pathlib import Path
from typing import Any

import yaml

from api import application

TARGET = Path(__file__).parent.parent / "openapi.yaml"
HEAD = "# Generated from the code by `make openapi`; do not edit.\n"


class _Dumper(yaml.SafeDumper):
    """YAML dumper with literal blocks for texts of several lines, and without references."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def rendered() -> str:
    """Return the document of the current code; no running platform is needed."""
    document = application.describe()
    return HEAD + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


def main() -> int:
    """Write openapi.yaml, or check it."""
    text = rendered()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text:
        return 0
    print("openapi.yaml differs from the code: run `make openapi` and review the difference.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
