"""Allowed options: which names of a cluster a submission may give, by each executor's allow-list. No I/O.

Some options of a submission name what the operator of a cluster has set up (a queue, a priority class, a network), or
are instructions to other software of the cluster (annotations). Choosing them freely is for operators: each name has
to match a pattern of its executor's `allowed`, and without patterns none is accepted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

#: Longest pattern: the longest annotation (a key of 253 characters, a value of 1,000) fits.
LONGEST_PATTERN = 1300


class Form(Enum):
    """Form of an option's value, and what of it patterns are compared with."""

    NAME = "name"  # the name
    NAMES = "list of names"  # each name
    ENTRIES = "names and values"  # each name, or `name=value` where the pattern has a `=`
    VALUES = "own names and values"  # each value; the submission chose the names


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a submission's object ``section``; ``name`` is also its key in an executor's `allowed`."""

    section: str
    name: str
    form: Form

    @property
    def path(self) -> str:
        """The option's path in a submission."""
        return f"{self.section}.{self.name}"


#: Every option that names something of a cluster. The other options of `placement` and `gang` are amounts, or concern
#: the simulation itself; a test knows them all.
OPTIONS: Mapping[str, Option] = {
    option.name: option
    for option in (
        Option("placement", "resources", Form.ENTRIES),
        Option("placement", "networks", Form.NAMES),
        Option("placement", "claims", Form.VALUES),
        Option("placement", "annotations", Form.ENTRIES),
        Option("placement", "node_selector", Form.ENTRIES),
        Option("placement", "exclusive", Form.NAME),
        Option("placement", "queue", Form.NAME),
        Option("placement", "priority", Form.NAME),
        Option("gang", "image", Form.NAME),
        Option("gang", "runtime_ref", Form.NAME),
    )
}


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A value that a submission names: ``name``, and ``value`` of an entry, else None."""

    option: Option
    name: str
    value: str | None = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value}"


def named_values(placement: Mapping[str, object], gang: Mapping[str, object] | None) -> Iterator[NamedValue]:
    """Yield all that a submission's `placement` and `gang` name; empty values name nothing."""
    sections = {"placement": placement, "gang": gang or {}}
    for option in OPTIONS.values():
        content = sections[option.section].get(option.name)
        if not content:
            continue
        if option.form is Form.NAME:
            yield NamedValue(option, str(content))
        elif isinstance(content, Mapping) and option.form is Form.VALUES:
            yield from (NamedValue(option, name) for name in content.values())
        elif isinstance(content, Mapping):
            yield from (NamedValue(option, name, value) for name, value in content.items())
        elif isinstance(content, Sequence):
            yield from (NamedValue(option, name) for name in content)


def matches(pattern: str, named: NamedValue) -> bool:
    """Tell whether a pattern allows a name: `*` is any text without `/`, `**` any text, the rest is literal.

    Of an entry, a pattern without `=` is about the name only, a pattern with `=` about name and value.
    """
    if named.value is None:
        return _compiled(pattern).fullmatch(named.name) is not None
    name, separator, value = pattern.partition("=")
    if _compiled(name).fullmatch(named.name) is None:
        return False
    return not separator or _compiled(value).fullmatch(named.value) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*{1,2})", pattern)
    return re.compile("".join({"*": "[^/]*", "**": ".*"}.get(part, re.escape(part)) for part in parts), re.DOTALL)


def parsed_allowed(document: object, where: str) -> Mapping[str, tuple[str, ...]]:
    """Read an executor's `allowed`: lists of patterns by option. Raise ValueError with the option and the reason."""
    if not isinstance(document, Mapping):
        raise ValueError(f"{where}: `allowed` is an object of lists of patterns, by option")
    if unknown := sorted(set(map(str, document)) - set(OPTIONS)):
        raise ValueError(f"{where}: `allowed` has no {', '.join(unknown)}; it has {', '.join(OPTIONS)}")
    for option, patterns in document.items():
        if not isinstance(patterns, Sequence) or isinstance(patterns, str):
            raise ValueError(f'{where}: `allowed.{option}` is a list of patterns, such as ["team-*"]')
        for pattern in patterns:
            if not isinstance(pattern, str) or not pattern.strip() or len(pattern) > LONGEST_PATTERN:
                raise ValueError(f"{where}: `allowed.{option}` has patterns of 1 to {LONGEST_PATTERN} characters")
            if "***" in pattern:
                raise ValueError(f"{where}: `allowed.{option}`: `*` and `**` are the wildcards; {pattern} has another")
            if "=" in pattern and OPTIONS[option].form is not Form.ENTRIES:
                raise ValueError(f"{where}: `allowed.{option}` names no values, so {pattern} would match nothing")
    return {option: tuple(patterns) for option, patterns in document.items()}
