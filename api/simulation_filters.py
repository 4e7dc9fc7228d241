"""Filters of simulations and comparisons: the listing that a query, or the filter of a body, describes."""

from collections.abc import Mapping
from typing import Any

from core.domain.submissions.listing import Listing, words_of


def listing_of(query: Mapping[str, Any]) -> Listing:
    """Return the listing that filters describe."""
    filters = dict(query)
    pairs = [pair.partition("=") for pair in filters.pop("label", ())]
    return Listing(
        states=tuple(dict.fromkeys(filters.pop("state", ()))),
        labels=tuple((name, value) for name, _, value in pairs),
        words=words_of(filters.pop("q", "")),
        **filters,
    )
