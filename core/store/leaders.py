"""Leader election in SQL: a row per role with an epoch that every write of the leader checks."""

from sqlalchemy import Connection, text

_TAKE = text(
    "INSERT INTO leaders(role, epoch, holder, until) VALUES(:role, 1, :holder, :until) ON CONFLICT(role) DO UPDATE"
    " SET epoch=leaders.epoch + CASE WHEN leaders.holder=excluded.holder THEN 0 ELSE 1 END,"
    " holder=excluded.holder, until=excluded.until"
    " WHERE leaders.until<:now OR leaders.until>:longest OR leaders.holder=excluded.holder RETURNING epoch"
)
_UNTIL = text("SELECT until FROM leaders WHERE role=:role")
#: PostgreSQL: the row is locked to the end of the transaction, so that a successor waits for what its predecessor has
#: begun to write. A process that stops meanwhile loses its transaction, and with it the lock, after ``IDLE``.
_HOLDS = {
    "sqlite": text("SELECT 1 FROM leaders WHERE role=:role AND epoch=:epoch"),
    "postgresql": text(
        "SELECT set_config('idle_in_transaction_session_timeout', :idle, true) FROM leaders"
        " WHERE role=:role AND epoch=:epoch FOR SHARE"
    ),
}
#: Milliseconds between two statements of a leader's transaction at most, on PostgreSQL.
IDLE = 5000


def take(c: Connection, role: str, holder: str, seconds: float, now: float) -> int | None:
    """Acquire or renew leadership for ``seconds``; return the epoch, or None while another process leads."""
    # A term that ends later than any renewal was taken before the clock was set back: it counts as expired.
    values = {"role": role, "holder": holder, "until": now + seconds, "now": now, "longest": now + 2 * seconds}
    epoch = c.scalar(_TAKE, values)
    return int(epoch) if epoch is not None else None


def lapsed(c: Connection, role: str, now: float) -> float | None:
    """Return for how many seconds no process has led; None while a process leads, or if none ever has."""
    until = c.scalar(_UNTIL, {"role": role})
    return now - until if until is not None and until < now else None


def holds(c: Connection, role: str, epoch: int) -> bool:
    """Return whether ``epoch`` is current; it then stays so until the transaction ends."""
    values = {"role": role, "epoch": epoch} | ({} if c.dialect.name == "sqlite" else {"idle": str(IDLE)})
    return c.execute(_HOLDS[c.dialect.name], values).first() is not None
