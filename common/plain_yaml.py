"""YAML of strangers: mappings, lists and texts, without aliases, merge keys and tags; the platform's one YAML loader.

Aliases and merge keys make a few bytes as large as they like, and tags name types. Without them the cost of a file is
that of its nodes, which are counted. Numbers and dates stay the texts that they are, so that a version 1.20 is not 1.2.
"""

import re
from typing import Any

import yaml

#: Most bytes of a file, most values of all kinds in it, and most mappings and lists within one another.
LARGEST, MOST_NODES, MOST_LEVELS = 256 << 10, 20_000, 50
_NULL, _MERGE = "tag:yaml.org,2002:null", "<<"


class BadYaml(ValueError):
    """The file is not YAML, or has more than plain values; the text continues "It cannot be read: "."""


class _Loader(yaml.BaseLoader):
    def __init__(self, stream: bytes | str) -> None:
        super().__init__(stream)
        self._nodes = self._level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise BadYaml("aliases (`*name`) are not accepted; write the value itself")
        self._nodes += 1
        self._level += 1
        if self._nodes > MOST_NODES or self._level > MOST_LEVELS:
            raise BadYaml(f"it has more than {MOST_NODES:,} values, or more than {MOST_LEVELS} levels")
        node = super().compose_node(parent, index)
        self._level -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep=True)
        if _MERGE in mapping:
            raise BadYaml("merge keys (`<<`) are not accepted; write the members themselves")
        return mapping


_Loader.add_implicit_resolver(_NULL, re.compile("(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_constructor(_NULL, lambda loader, node: None)


def load(text: bytes | str) -> Any:
    """Return the value of a YAML file: mappings, lists, texts and None. Raises BadYaml."""
    if len(text) > LARGEST:
        raise BadYaml(f"it has more than {LARGEST:,} bytes")
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise BadYaml(str(error).partition("\n")[0][:100]) from None
