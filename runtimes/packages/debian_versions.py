"""Debian versions: their order, and whether one satisfies a relation of a dependency (deb-version(7))."""

import functools
import re
from collections.abc import Callable, Mapping
from itertools import zip_longest

_PARTS = re.compile(r"(\D*)(\d*)")


def compare(first: str, second: str) -> int:
    """Return a number below, at or above zero, as the first version is older than, equal to or newer than another."""
    for left, right in zip(_parts_of(first), _parts_of(second), strict=True):
        if difference := _compare_part(left, right):
            return difference
    return 0


#: A key that sorts versions, the oldest first.
version_key = functools.cmp_to_key(compare)

RELATIONS: Mapping[str, Callable[[int], bool]] = {
    "<<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    "=": lambda order: order == 0,
    ">=": lambda order: order >= 0,
    ">>": lambda order: order > 0,
}


def satisfies(version: str, relation: str, wanted: str) -> bool:
    """Return whether a version is in a relation to another."""
    return RELATIONS[relation](compare(version, wanted))


def _parts_of(version: str) -> tuple[str, str, str]:
    """Return epoch, upstream version and revision."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return (epoch, upstream, revision) if dash else (epoch, rest, "")


def _compare_part(first: str, second: str) -> int:
    for (text, digits), (other_text, other_digits) in zip_longest(
        _PARTS.findall(first), _PARTS.findall(second), fillvalue=("", "")
    ):
        if order := _compare_text(text, other_text):
            return order
        if order := int(digits or 0) - int(other_digits or 0):
            return order
    return 0


def _compare_text(first: str, second: str) -> int:
    """Compare texts without digits: `~` is before the end, letters are before other characters."""
    for index in range(max(len(first), len(second))):
        order = _weight(first[index : index + 1]) - _weight(second[index : index + 1])
        if order:
            return order
    return 0


def _weight(character: str) -> int:
    if character == "~":
        return -1
    if not character or character.isalpha():
        return ord(character) if character else 0
    return ord(character) + 256
