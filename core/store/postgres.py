"""Engine of PostgreSQL: its pool of connections, of which one is only asked whether it is alive if that is in doubt.

psycopg forgets its prepared statements at each ROLLBACK, with which SQLAlchemy ends a transaction that has only read.
"""

import select
import time
from functools import partial

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, Dialect
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

#: Seconds for connecting, if the URL has no `connect_timeout`.
CONNECTING = 10
#: Seconds for which a connection may have been unused: a firewall forgets one in silence, though not so soon.
IDLE_INTERVAL = 10.0
#: Member of a pooled connection: when it was used last, by the monotonic clock.
USE_TIME = "used_at"


def postgres_engine(url: str, connections: int) -> Engine:
    """Return an engine with at most so many connections."""
    address = make_url(url)
    if "connect_timeout" not in address.query:
        address = address.update_query_dict({"connect_timeout": str(CONNECTING)})
    engine = create_engine(address, pool_size=connections, max_overflow=0)
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", partial(_check, engine.dialect))
    return engine


def engine_for_reads(engine: Engine) -> Engine:
    """Return an engine with the same connections on which each statement is a transaction.

    Under READ COMMITTED each statement of a transaction sees what is committed then, too. Without BEGIN and ROLLBACK
    one statement is one round trip, and stays prepared.
    """
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def _note_use(connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
    entry.info[USE_TIME] = time.monotonic()


def _check(dialect: Dialect, connection: DBAPIConnection, entry: ConnectionPoolEntry, proxy: object) -> None:
    """Raise InvalidatePoolError, after which the pool connects again, if the server has ended a connection.

    A server that ends, and one that ends a connection, sends that: the socket is readable.
    """
    used_at = entry.info.get(USE_TIME)
    if used_at is None or entry.driver_connection is None:
        return  # it is new
    try:
        if time.monotonic() - used_at > IDLE_INTERVAL or _is_readable(entry.driver_connection.fileno()):
            dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error:
        raise InvalidatePoolError from None


def _is_readable(descriptor: int) -> bool:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(0))
