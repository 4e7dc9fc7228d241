"""Limits of JSON texts, checked before a text is decoded: decoding holds the interpreter lock until it ends.

Decoding time grows with the number of values more than with the size: 7.8 MB of empty arrays take a second of processor
time, one string of 7.8 MB takes milliseconds.
"""

import re
from itertools import accumulate

#: Most bytes of a JSON text.
MOST_BYTES = 4 << 20
#: Most values in all arrays and objects together. A sweep may have 100,000 values for a parameter.
MOST_VALUES = 300_000
#: Most arrays and objects together, and most members of all objects together.
MOST_CONTAINERS = MOST_MEMBERS = 100_000
#: Most arrays and objects within one another.
MOST_LEVELS = 64

#: A string, or the rest of the text after a quotation mark that no other one follows.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKETS = b"[]{}"
_NOT_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))
_STEPS = {byte: 1 if byte in b"[{" else -1 for byte in _BRACKETS}


def excess(raw: bytes) -> str | None:
    """Return which limit on the number of values a JSON text exceeds, None if it exceeds none.

    Takes microseconds for a usual text: strings are only skipped if counts that include them exceed a limit.
    """
    if _excess_of_counts(raw) is None:
        return None
    return _excess_of_counts(_STRING.sub(b"", raw))


def too_deep(raw: bytes) -> bool:
    """Return whether a JSON text has more than MOST_LEVELS arrays and objects within one another.

    Of a text with more than MOST_CONTAINERS arrays and objects, which is refused, only the beginning is looked at.
    """
    if raw.count(b"[") + raw.count(b"{") <= MOST_LEVELS:
        return False
    brackets = _STRING.sub(b"", raw).translate(None, _NOT_BRACKETS)[: 2 * MOST_CONTAINERS]
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MOST_LEVELS


def _excess_of_counts(raw: bytes) -> str | None:
    containers = raw.count(b"[") + raw.count(b"{")
    counts = (
        (raw.count(b",") + containers, MOST_VALUES, "values"),
        (containers, MOST_CONTAINERS, "arrays and objects"),
        (raw.count(b":"), MOST_MEMBERS, "members"),
    )
    return next((f"{most:,} {noun}" for count, most, noun in counts if count > most), None)
