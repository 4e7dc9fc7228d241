"""Listing of simulations: the filters of a list, and the text of a simulation in which its words are searched."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.domain.scheduling.states import State

#: Most bytes of a search text: an entry of a PostgreSQL index has at most 2,704 bytes, with the other columns.
LONGEST = 1200
#: Begin of a search text that was cut.
CUT = "\t"
#: In place of the id of a comparison: of none.
NO_COMPARISON = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """Which simulations a list has: those that meet every condition; None or empty: all.

    ``states``: any of these. ``labels``: each (name, value). ``words``: each is in the search text, or begins the id.
    ``comparison``: the id of the one whose batches they are, or NO_COMPARISON.
    """

    states: tuple[State, ...] = ()
    dataset: str | None = None
    dataset_version: str | None = None
    dataset_digest: str | None = None
    runtime: str | None = None
    model: str | None = None
    model_digest: str | None = None
    submitted_by: str | None = None
    comparison: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()


def words_of(search: str) -> tuple[str, ...]:
    """Return the words of a search, in the case of search texts."""
    return tuple(dict.fromkeys(search.casefold().split()))


def label_line(name: str, value: str) -> str:
    """Return the line of a label in the search texts of the simulations that have exactly this label."""
    return f"\n{name}={value}\n"


def search_text(model: str, dataset: str, runtime: str, labels: Mapping[str, str]) -> str:
    """Return the text that a search and the filter by label match: a line each, in a line break on either side.

    Case is folded. A label has a line as it was written, and a second one after a space if folding changes it. What
    exceeds LONGEST bytes is cut off, and the text then begins with CUT.
    """
    pairs = [f"{name}={value}" for name, value in sorted(labels.items())]
    lines = [*(name.casefold() for name in (model, dataset, runtime) if name), *pairs]
    lines += [f" {pair.casefold()}" for pair in pairs if pair != pair.casefold()]
    text = "\n" + "".join(f"{line}\n" for line in lines)
    encoded = text.encode()
    if len(encoded) <= LONGEST:
        return text
    return CUT + encoded[: LONGEST - 1].decode(errors="ignore")
