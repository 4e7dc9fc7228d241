"""Headlines of simulations: the members of a summary that every view of a simulation has, stored apart from it.

A summary also has groups and a sweep: it may be a hundred times larger, and a page of a list would read fifty.
"""

import json
from collections.abc import Mapping

import msgspec

from core.domain.submissions.stored_documents import decode_document
from core.store.simulations import HeadlineRow, SimulationRow

#: Statistics by metric.
Statistics = dict[str, dict[str, float | int | None]]


class Headline(msgspec.Struct):
    """Counts of the tasks, statistics of the metrics, digest of the results, and what older summaries lack.

    That are the series of the score, and the failures by outcome (results/simulation_answer.py: `FailureTally`).
    """

    tasks: dict[str, int]
    metrics: Statistics
    score_series: dict[str, object] | None = None
    failures: dict[str, int] | None = None
    results_digest: str | None = None


class ProgressSoFar(msgspec.Struct):
    """Live metrics of a simulation, in place of a headline, from its results in order of arrival."""

    metrics: Statistics = {}
    score: dict[str, object] | None = None
    eta: float | None = None
    answer: dict[str, object] | None = None
    running: dict[str, object] | None = None


def summary_columns(summary: Mapping[str, object]) -> dict[str, str]:
    """Return the columns that hold a summary."""
    headline = {name: summary.get(name) for name in Headline.__struct_fields__}
    return {"summary": json.dumps(summary), "headline": json.dumps(headline)}


def headline_of(row: SimulationRow | HeadlineRow) -> Headline | None:
    """Return the headline of a simulation's row; None if it has no summary."""
    source = row.headline or row.summary
    return decode_document(source, Headline) if source else None


def progress_of(row: SimulationRow) -> ProgressSoFar:
    """Return the progress that the dispatcher computed last."""
    return decode_document(row.progress or "{}", ProgressSoFar)
