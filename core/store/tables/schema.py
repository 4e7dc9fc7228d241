"""Schema of SQL: what tables are in. Times are seconds since the epoch (UTC), which both databases reckon alike."""

from typing import TypedDict

from sqlalchemy import MetaData, TextClause, text

metadata = MetaData()


class _Where(TypedDict):
    """The condition of a partial index, as SQLAlchemy takes it."""

    sqlite_where: TextClause
    postgresql_where: TextClause


def partial_index(condition: str) -> _Where:
    """Return the arguments of a partial index."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}
