"""Lists of comparisons in SQL: pages and counts by state, with the filters of the list of simulations.

A comparison meets a filter if one of its models does; its state is its own. Its runtimes, and words besides the
names of models and dataset, are those of the simulations of its first batch, of which it has one for each model.
"""

import json
from collections.abc import Sequence

from sqlalchemy import Connection, text

from core.domain.access.scopes import Scope
from core.domain.comparisons.comparison_states import LABEL, ComparisonState
from core.domain.submissions.listing import NO_COMPARISON, Listing
from core.store.comparisons import ComparisonRow
from core.store.listing import ID_PREFIX, contains, pattern
from core.store.owned import within_text
from core.store.rows import columns_of, read_rows
from core.store.tables import comparisons

_COLUMNS = ", ".join(ComparisonRow.__struct_fields__)
#: Columns of a comparison by member of a listing; condition on one of its models.
_EQUAL = ("dataset", "dataset_version", "dataset_digest", "submitted_by")
_OF_A_MODEL = "id IN (SELECT comparison_id FROM comparison_models WHERE {})"
_IN_FIRST_BATCH = (
    "EXISTS(SELECT 1 FROM comparison_simulations p JOIN simulations s ON s.id = p.simulation_id"
    " WHERE p.comparison_id = comparisons.id AND p.batch = 0 AND {})"
)


def page(
    c: Connection, scope: Scope, listing: Listing, *, states: Sequence[str], after: str | None, limit: int
) -> list[ComparisonRow]:
    """Return up to ``limit`` comparisons of a listing, newest first, older than ``after``; ``states``: any of these."""
    conditions, values = _conditions(c, scope, listing)
    if states:
        values |= {f"state{number}": state for number, state in enumerate(states)}
        conditions.append(f"state IN ({', '.join(f':state{number}' for number in range(len(states)))})")
    if after is not None:
        values["after"] = after
        conditions.append("id < :after")
    query = text(f"SELECT {_COLUMNS} FROM comparisons{_where(conditions)} ORDER BY id DESC LIMIT :most")
    rows = c.execute(query.columns(*columns_of(comparisons, ComparisonRow)), values | {"most": limit})
    return read_rows(rows, ComparisonRow)


def counts(c: Connection, scope: Scope, listing: Listing) -> dict[ComparisonState, int]:
    """Return the number of comparisons of a listing in each state."""
    conditions, values = _conditions(c, scope, listing)
    query = text(f"SELECT state, count(*) FROM comparisons{_where(conditions)} GROUP BY state")
    return {ComparisonState(state): number for state, number in c.execute(query, values)}


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _conditions(c: Connection, scope: Scope, listing: Listing) -> tuple[list[str], dict[str, object]]:
    """Return the conditions of a listing besides states, and their values."""
    conditions, values = within_text(scope)
    for member in _EQUAL:
        if (value := getattr(listing, member)) is not None:
            values[member] = value
            conditions.append(f"{member} = :{member}")
    if listing.model is not None:
        values["model"] = listing.model
        conditions.append(_OF_A_MODEL.format("name = :model"))
    if listing.model_digest is not None:
        values["digest"] = listing.model_digest
        conditions.append(_OF_A_MODEL.format("digest = :digest"))
    if listing.runtime is not None:
        values["runtime"] = listing.runtime
        conditions.append(_IN_FIRST_BATCH.format("s.runtime = :runtime"))
    if listing.comparison is not None:
        values["comparison"] = listing.comparison
        conditions.append("id = :comparison" if listing.comparison != NO_COMPARISON else "1 = 0")
    for number, (name, value) in enumerate(listing.labels):
        if name == LABEL:  # of its simulations
            values[f"id{number}"] = value
            conditions.append(f"id = :id{number}")
        else:
            values[f"pair{number}"] = pattern(c, json.dumps({name: value})[1:-1])  # as the column is written
            conditions.append(contains(c, "labels", f"pair{number}"))
    for number, word in enumerate(listing.words):
        values[f"word{number}"] = pattern(c, word)
        named = _OF_A_MODEL.format(contains(c, "lower(name)", f"word{number}"))  # also before its first batch
        played = _IN_FIRST_BATCH.format(contains(c, "s.search", f"word{number}"))
        condition = f"({named} OR {contains(c, 'lower(dataset)', f'word{number}')} OR {played})"
        if ID_PREFIX.fullmatch(word):
            values[f"prefix{number}"] = word
            condition = f"({condition} OR substr(id, 1, {len(word)}) = :prefix{number})"
        conditions.append(condition)
    return conditions, values
