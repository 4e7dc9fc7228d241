"""Answers of simulations, from their headlines after the end; while they run, their progress has the answer so far."""

from collections.abc import Mapping

import msgspec

from common.errors import PlatformError
from core.domain.results.simulation_answer import answer_of, failures_of_older, one_task_each
from core.domain.submissions.provenance import Provenance
from core.domain.submissions.records import Tasks
from core.domain.submissions.stored_documents import decode_document
from core.services.datasets.catalogue import played
from core.services.simulations.headlines import Headline
from core.store import simulations as store


class _Outcomes(msgspec.Struct):
    """Number of tasks by value, of each text metric of a summary."""

    outcomes: dict[str, dict[str, int]] = {}


def answer_at_end(
    provenance: Provenance, tasks: Tasks, headline: Headline, row: store.SimulationRow
) -> Mapping[str, object] | None:
    """Return the answer of a simulation that has ended; None without a result, and if its dataset is not installed."""
    try:
        definition = played(provenance.dataset).definition
    except PlatformError:
        return None
    failures = headline.failures
    if row.summary and not row.headline:  # 0.2.0 has ended it
        failures = failures_of_older(definition, decode_document(row.summary, _Outcomes).outcomes)
    return answer_of(
        definition,
        done=tasks.done,
        failed=tasks.failed,
        metrics=headline.metrics,
        failures=failures,
        alone=one_task_each(provenance.play.tasks),
    )
