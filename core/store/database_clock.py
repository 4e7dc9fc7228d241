"""Database clock: seconds since the epoch, as an expression for a query that needs the time besides."""

from sqlalchemy import Float
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class DatabaseClock(FunctionElement[float]):
    """The time at which a statement's row is read, by the database's clock."""

    type = Float(53)
    inherit_cache = True


@compiles(DatabaseClock, "sqlite")
def _sqlite(element: DatabaseClock, compiler: SQLCompiler, **options: object) -> str:
    return "(julianday('now') - 2440587.5) * 86400.0"


@compiles(DatabaseClock, "postgresql")
def _postgresql(element: DatabaseClock, compiler: SQLCompiler, **options: object) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)"
