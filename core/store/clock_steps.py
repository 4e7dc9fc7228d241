"""Steps of the clock: a database's clock that is set forward or back lengthens no pause and ends nothing early.

Times of the database's clock are stored where several processes need them. `shift` takes a known step out of them;
`rewind` bounds what it cannot know: an end that lies further in the future than any term was written before the clock
was set back.
"""

from collections.abc import Iterator, Mapping
from enum import Enum

from sqlalchemy import Connection, TextClause, text

#: Seconds: a claim that ends later than this was taken before the step; it then ends after ``CLAIM_REST``, in which a
#: job that is alive renews it.
LONGEST_CLAIM, CLAIM_REST = 60.0, 9.0
#: Most seconds that a simulation, comparison, pipeline, import or the log of a run waits for its next attempt.
LONGEST_PAUSE = 900.0
#: Seconds by which clocks of the servers behind one database address may differ.
TOLERANCE = 1.0


class Time(Enum):
    """What a stored time is for."""

    BEGIN = "begin"  # of what goes on: its age decides something
    CLAIM = "claim"  # the end of a claim
    PAUSE = "pause"  # the end of a pause
    END = "end"  # the end of what may last for days
    RECORD = "record"  # when something happened, for people and for the order of lists


#: Every column that holds a time; those that are compared with the clock have the condition under which they are.
TIMES: Mapping[str, tuple[Time, str]] = {
    "models.created_at": (Time.RECORD, ""),
    "models.used_at": (Time.RECORD, ""),
    "bin_items.binned_at": (Time.BEGIN, "emptied=0"),
    "model_locks.created_at": (Time.RECORD, ""),
    "model_imports.not_before": (Time.PAUSE, "state='fetching'"),
    "model_imports.claim_until": (Time.CLAIM, "claim IS NOT NULL"),
    "model_imports.created_at": (Time.BEGIN, "state='fetching'"),
    "model_imports.ended_at": (Time.RECORD, ""),
    "run_logs.not_before": (Time.PAUSE, "state='waiting'"),
    "run_logs.claim_until": (Time.CLAIM, "claim IS NOT NULL"),
    "simulations.claim_until": (Time.CLAIM, "claim IS NOT NULL"),
    "simulations.not_before": (Time.PAUSE, "state='queued'"),
    "simulations.created_at": (Time.RECORD, ""),
    "simulations.started_at": (Time.BEGIN, "started_at IS NOT NULL AND ended_at IS NULL"),
    "simulations.ended_at": (Time.RECORD, ""),
    "simulations.deleted_at": (Time.RECORD, ""),
    "simulations.changed_at": (Time.RECORD, ""),
    "events.at": (Time.RECORD, ""),
    "audit.at": (Time.RECORD, ""),
    "looks.first_at": (Time.RECORD, ""),
    "looks.last_at": (Time.RECORD, ""),
    "tunnels.asked_at": (Time.BEGIN, "asked_at>0"),
    "look_requests.created_at": (Time.RECORD, ""),  # the process that asks waits by a clock of its own
    "launches.created_at": (Time.BEGIN, "state='live'"),
    "launches.seen_at": (Time.RECORD, ""),
    "usage_intervals.until_at": (Time.BEGIN, "open=1"),  # its length is a number beside it
    "executors.since": (Time.RECORD, ""),
    "executor_drains.since": (Time.RECORD, ""),
    "ranges.ttl": (Time.RECORD, ""),  # a number of seconds
    "ranges.rate": (Time.RECORD, ""),  # tasks per second
    "ranges.heartbeat_at": (Time.BEGIN, "state='leased'"),
    "ranges.moved_at": (Time.BEGIN, "state='leased'"),
    "idempotency.expires_at": (Time.END, "expires_at>0"),
    "leaders.until": (Time.RECORD, ""),  # renewed before it could be shifted; an election bounds it by its term
    "shares.created_at": (Time.RECORD, ""),
    "sign_ins.expires_at": (Time.END, "expires_at>0"),
    "passkeys.created_at": (Time.RECORD, ""),
    "passkeys.used_at": (Time.RECORD, ""),
    "provided_users.created_at": (Time.RECORD, ""),
    "provided_users.read_at": (Time.BEGIN, "read_at>0"),
    "known_browsers.created_at": (Time.RECORD, ""),
    "device_sign_ins.expires_at": (Time.END, "expires_at>0"),
    "users.away_since": (Time.RECORD, ""),
    "uploads.created_at": (Time.RECORD, ""),
    "uploads.expires_at": (Time.END, "expires_at>0"),
    "uploads.held_until": (Time.END, "held_until>0"),
    "dataset_versions.claim_until": (Time.CLAIM, "state='registering'"),
    "dataset_versions.created_at": (Time.RECORD, ""),
    "dataset_versions.used_at": (Time.RECORD, ""),
    "dataset_versions.ended_at": (Time.RECORD, ""),
    "dataset_prefetches.claim_until": (Time.CLAIM, "state='fetching'"),
    "dataset_prefetches.asked_at": (Time.RECORD, ""),
    "comparisons.not_before": (Time.PAUSE, "state IN ('running', 'cancelling')"),
    "comparisons.claim_until": (Time.CLAIM, "claim IS NOT NULL"),
    "comparisons.created_at": (Time.RECORD, ""),
    "comparisons.ended_at": (Time.RECORD, ""),
    "comparison_models.created_at": (Time.RECORD, ""),
    "comparison_models.ended_at": (Time.RECORD, ""),
    "pipelines.not_before": (Time.PAUSE, "state IN ('running', 'cancelling')"),
    "pipelines.claim_until": (Time.CLAIM, "claim IS NOT NULL"),
    "pipelines.created_at": (Time.RECORD, ""),
    "pipelines.ended_at": (Time.RECORD, ""),
    "pipeline_steps.started_at": (Time.RECORD, ""),
    "pipeline_steps.ended_at": (Time.RECORD, ""),
    "projects.created_at": (Time.RECORD, ""),
    "projects.closed_at": (Time.RECORD, ""),
    "users.created_at": (Time.RECORD, ""),
    "users.left_at": (Time.RECORD, ""),
    "users.invited_until": (Time.END, "invitation IS NOT NULL"),
    "members.since": (Time.RECORD, ""),
    "tokens.created_at": (Time.RECORD, ""),
    "tokens.expires_at": (Time.END, "revoked_at IS NULL"),
    "tokens.revoked_at": (Time.RECORD, ""),
    "tokens.used_at": (Time.RECORD, ""),
    "webhooks.former_until": (Time.END, "former_until>0"),
    "webhooks.failing_since": (Time.BEGIN, "failing_since IS NOT NULL"),
    "webhooks.not_before": (Time.PAUSE, "state='active'"),
    "webhooks.claim_until": (Time.CLAIM, "claim IS NOT NULL"),
    "webhooks.created_at": (Time.RECORD, ""),
    "webhook_deliveries.due_at": (Time.END, "state='waiting'"),
    "webhook_deliveries.created_at": (Time.RECORD, ""),
    "webhook_deliveries.ended_at": (Time.RECORD, ""),
}


def _statements(template: str, *kinds: Time) -> Iterator[TextClause]:
    for name, (kind, condition) in TIMES.items():
        if kind in kinds:
            table, _, column = name.partition(".")
            yield text(template.format(table=table, column=column, condition=condition))


_BEGINS = [
    *_statements(
        "UPDATE {table} SET {column}={column}+:step WHERE {condition}"
        " AND ({column}<:now-:since-:tolerance OR {column}>:now+:tolerance)",
        Time.BEGIN,
    )
]
_ENDS = [
    *_statements(
        "UPDATE {table} SET {column}={column}+:step WHERE {condition} AND {column}>:before",
        Time.CLAIM,
        Time.PAUSE,
        Time.END,
    )
]
_FUTURE = [*_statements("UPDATE {table} SET {column}=:now WHERE {condition} AND {column}>:now+:tolerance", Time.BEGIN)]
_CLAIMS = [
    *_statements("UPDATE {table} SET {column}=:now+:rest WHERE {condition} AND {column}>:now+:longest", Time.CLAIM)
]
_PAUSES = [*_statements("UPDATE {table} SET {column}=:now WHERE {condition} AND {column}>:now+:longest", Time.PAUSE)]
_PAUSED = text("SELECT id FROM simulations WHERE state='queued' AND not_before>:now+:longest")
_CHANGED = text("INSERT INTO scheduling_changes(simulation_id) VALUES(:i)")


def shift(c: Connection, step: float, now: float, since: float) -> None:
    """Take a step of the clock, by ``step`` seconds to ``now``, out of what was stored before it.

    ``since``: seconds since the last reading before the step. What began within them is left as it is: it was written
    after the step. An end that was written after it cannot be told from an earlier one: `rewind` bounds it.
    """
    for statement in _BEGINS:
        c.execute(statement, {"step": step, "now": now, "since": since, "tolerance": TOLERANCE})
    for statement in _ENDS:
        c.execute(statement, {"step": step, "before": now - step - since})
    rewind(c, now)


def rewind(c: Connection, now: float) -> None:
    """Shorten what lies too far in the future of ``now``: claims, leases, pauses, ages of launches. Idempotent."""
    for statement in _CLAIMS:
        c.execute(statement, {"now": now, "rest": CLAIM_REST, "longest": LONGEST_CLAIM})
    for statement in _FUTURE:
        c.execute(statement, {"now": now, "tolerance": TOLERANCE})
    for (id,) in c.execute(_PAUSED, {"now": now, "longest": LONGEST_PAUSE}).all():
        c.execute(_CHANGED, {"i": id})
    for statement in _PAUSES:
        c.execute(statement, {"now": now, "longest": LONGEST_PAUSE})
