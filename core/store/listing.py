"""Lists of simulations in SQL: pages and counts by state, from indexes that have every column which a filter compares.

A single equality has an index of its own. All else scans `simulations_listed`, newest first in each state: its entries
are narrow, the rows are not, and a search for a substring has no better order on both databases.
"""

import json
import re
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, select, text

from core.domain.access.scopes import Scope
from core.domain.scheduling.states import State
from core.domain.submissions.listing import CUT, NO_COMPARISON, Listing, label_line
from core.store.owned import OwnedQuery, within_text
from core.store.rows import read_rows
from core.store.simulations import SimulationRow, listed_columns
from core.store.tables import FILTERED, LISTED, LISTED_ROWS, simulations

#: Member of a listing by column.
_EQUAL: Mapping[str, str] = {
    "dataset": "dataset",
    "dataset_version": "dataset_version",
    "dataset_digest": "dataset_digest",
    "runtime": "runtime",
    "model": "model",
    "digest": "model_digest",
    "submitted_by": "submitted_by",
}
#: What an id may begin with (common/ids.py): other words need not be compared with ids.
ID_PREFIX = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{0,25}")
#: Characters with a meaning in a pattern of GLOB, and how each stands for itself.
_GLOB, _ESCAPED = re.compile(r"([*?[])"), r"[\1]"
_ROWS = OwnedQuery(
    simulations,
    select(*listed_columns(SimulationRow)).where(
        simulations.c.id.in_(bindparam("ids", expanding=True)), simulations.c.deleted_at.is_(None)
    ),
)


def page(c: Connection, scope: Scope, listing: Listing, *, after: str | None, limit: int) -> list[SimulationRow]:
    """Return up to ``limit`` simulations of a listing, newest first, older than ``after``."""
    return rows_of(c, scope, page_ids(c, scope, listing, after=after, limit=limit))


def rows_of(c: Connection, scope: Scope, ids: Sequence[str]) -> list[SimulationRow]:
    """Return the rows of these simulations that exist, newest first."""
    if not ids:  # PostgreSQL does not compare text with the empty list
        return []
    return sorted(read_rows(_ROWS.execute(c, scope, ids=ids), SimulationRow), key=lambda row: row.id, reverse=True)


def page_ids(c: Connection, scope: Scope, listing: Listing, *, after: str | None, limit: int) -> list[str]:
    """Return the ids of a page."""
    conditions, values = _conditions(c, scope, listing)
    if after is not None:
        conditions.append("id < :after")
        values["after"] = after
    values["most"] = limit
    states = listing.states or tuple(State)
    values |= {f"state{number}": state.value for number, state in enumerate(states)}
    if _has_own_index(listing):
        among = ", ".join(f":state{number}" for number in range(len(states)))
        query = _newest("", [f"state IN ({among})", *conditions] if listing.states else conditions)
    else:
        parts = [_newest(_scan_hint(c), [f"state = :state{number}", *conditions]) for number in range(len(states))]
        query = " UNION ALL ".join(f"SELECT id FROM ({part}) AS newest{number}" for number, part in enumerate(parts))
        query += " ORDER BY id DESC LIMIT :most"
    return list(c.scalars(text(query), values))


def counts(c: Connection, scope: Scope, listing: Listing) -> dict[State, int]:
    """Return the number of simulations of a listing in each state, whatever its states."""
    conditions, values = _conditions(c, scope, listing)
    where = " AND ".join([LISTED_ROWS, *conditions])
    filtered = len(conditions) > len(within_text(scope)[0])
    hint = _scan_hint(c) if filtered and not _has_own_index(listing) else ""
    query = f"SELECT state, count(*) FROM simulations {hint} WHERE {where} GROUP BY state"
    return {State(state): number for state, number in c.execute(text(query), values)}


def _newest(hint: str, conditions: Sequence[str]) -> str:
    where = " AND ".join([LISTED_ROWS, *conditions])
    return f"SELECT id FROM simulations {hint} WHERE {where} ORDER BY id DESC LIMIT :most"


def _scan_hint(c: Connection) -> str:
    """Return SQLite's hint for the index of lists: without statistics it would read rows by an index of one column."""
    return "INDEXED BY simulations_listed" if c.dialect.name == "sqlite" else ""


def _has_own_index(listing: Listing) -> bool:
    """Return whether a listing compares one column besides project and state, and that has its own index."""
    compared = {column for column, member in _EQUAL.items() if getattr(listing, member) is not None}
    return not listing.words and not listing.labels and len(compared) == 1 and compared <= set(FILTERED)


def _conditions(c: Connection, scope: Scope, listing: Listing) -> tuple[list[str], dict[str, object]]:
    """Return the conditions of a listing besides its states, and their values."""
    conditions, values = within_text(scope)
    own = " AND ".join([LISTED_ROWS, *conditions])
    for column, member in _EQUAL.items():
        if (value := getattr(listing, member)) is not None:
            values[column] = value
            equal = f"{column} = :{column}"
            if column not in LISTED and not _has_own_index(listing):
                equal = f"id IN (SELECT id FROM simulations WHERE {equal} AND {own})"
            conditions.append(equal)
    if listing.comparison == NO_COMPARISON:
        batch = "SELECT 1 FROM comparison_simulations WHERE simulation_id = simulations.id"
        conditions.append(f"NOT EXISTS({batch})")
    elif listing.comparison is not None:
        values["comparison"] = listing.comparison
        conditions.append("id IN (SELECT simulation_id FROM comparison_simulations WHERE comparison_id = :comparison)")
    for number, word in enumerate(listing.words):
        values[f"word{number}"] = pattern(c, word)
        condition = contains(c, "search", f"word{number}")
        if ID_PREFIX.fullmatch(word):
            values[f"prefix{number}"] = word
            condition = f"({condition} OR substr(id, 1, {len(word)}) = :prefix{number})"
        conditions.append(condition)
    for number, (name, value) in enumerate(listing.labels):
        # Labels are stored with sorted keys and without spaces, so a pair is a substring.
        pair = json.dumps({name: value}, ensure_ascii=False, separators=(",", ":"))[1:-1]
        line = pattern(c, label_line(name, value))
        values |= {f"line{number}": line, f"pair{number}": pattern(c, pair), "cut": CUT}
        conditions.append(
            f"({contains(c, 'search', f'line{number}')} OR (substr(search, 1, 1) = :cut AND EXISTS("
            f"SELECT 1 FROM simulations whole WHERE whole.id = simulations.id"
            f" AND {contains(c, 'whole.labels', f'pair{number}')})))"
        )
    return conditions, values


def contains(c: Connection, column: str, parameter: str) -> str:
    """Return the condition that a column contains the text of a ``pattern``, case included.

    SQLite's GLOB skips to the next candidate several times faster than its instr() does.
    """
    return f"{column} GLOB :{parameter}" if c.dialect.name == "sqlite" else f"strpos({column}, :{parameter}) > 0"


def pattern(c: Connection, text: str) -> str:
    """Return the value of a parameter of ``contains``."""
    return f"*{_GLOB.sub(_ESCAPED, text)}*" if c.dialect.name == "sqlite" else text
