"""Near names: the names that a misspelt name may have meant, for errors that suggest them."""

import difflib
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

#: Least similarity of a suggestion, from 0 to 1. A swapped, missing or doubled letter in a name of four letters has
#: 0.75; `pytorch` and `python`, which have nothing in common but their beginning, have 0.62.
SIMILARITY = 0.75
#: Most suggestions.
MOST = 3
#: Most names of a list of all.
MOST_NAMES = 30


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Return up to three known names that ``name`` resembles, the nearest first, whatever their case; often none."""
    by_key: dict[str, list[str]] = {}
    for candidate in known:
        by_key.setdefault(candidate.casefold(), []).append(candidate)
    keys = difflib.get_close_matches(name.casefold(), by_key, MOST, SIMILARITY)
    return [candidate for key in keys for candidate in by_key[key]][:MOST]


def suggestion(near: Sequence[str], otherwise: str) -> str:
    """Return the question for near names, or ``otherwise`` if there are none."""
    return f"Did you mean {' or '.join(near)}?" if near else otherwise


def name_list(names: Collection[str]) -> str:
    """Return the first thirty names, and how many more there are."""
    more = len(names) - MOST_NAMES
    return ", ".join(islice(names, MOST_NAMES)) + (f" and {more} more" if more > 0 else "")
