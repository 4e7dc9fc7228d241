"""Steps of the clock: what a database's clock that was set back would keep from expiring is shortened to its term.

Claims, leases and pauses are stored with times of the database's clock. Their ends are never far away: an end that lies
further in the future than any term was written before the clock was set back.
"""

from sqlalchemy import Connection, text

#: Seconds: a claim that ends later than this was taken before the step; it then ends after ``CLAIM_REST``, in which a
#: job that is alive renews it.
LONGEST_CLAIM, CLAIM_REST = 60.0, 9.0
#: Seconds that a simulation waits for its next attempt at most.
LONGEST_PAUSE = 900.0
#: Seconds by which clocks of the servers behind one database address may differ.
TOLERANCE = 1.0

_CLAIMS = [
    text(f"UPDATE {table} SET claim_until=:now+:rest WHERE claim_until>:now+:longest AND {condition}")
    for table, condition in (
        ("simulations", "claim IS NOT NULL"),
        ("dataset_versions", "state='registering'"),
        ("dataset_prefetches", "state='fetching'"),
    )
]
_PAUSED = text("UPDATE simulations SET not_before=:now WHERE state='queued' AND not_before>:now+:longest RETURNING id")
_CHANGED = text("INSERT INTO scheduling_changes(simulation_id) VALUES(:i)")
_HEARTBEATS = text("UPDATE ranges SET heartbeat_at=:now WHERE state='leased' AND heartbeat_at>:now+:tolerance")
_MOVES = text("UPDATE ranges SET moved_at=:now WHERE state='leased' AND moved_at>:now+:tolerance")
_LAUNCHES = text("UPDATE launches SET created_at=:now WHERE state='live' AND created_at>:now+:tolerance")


def rewind(c: Connection, now: float) -> None:
    """Shorten what lies too far in the future of ``now``: claims, leases, pauses, ages of launches. Idempotent."""
    for claims in _CLAIMS:
        c.execute(claims, {"now": now, "rest": CLAIM_REST, "longest": LONGEST_CLAIM})
    for statement in (_HEARTBEATS, _MOVES, _LAUNCHES):
        c.execute(statement, {"now": now, "tolerance": TOLERANCE})
    for (id,) in c.execute(_PAUSED, {"now": now, "longest": LONGEST_PAUSE}).all():
        c.execute(_CHANGED, {"i": id})
