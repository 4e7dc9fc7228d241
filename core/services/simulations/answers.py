"""Answers of simulations, from their headlines after the end; while they run, their progress has the answer so far."""

import json
from collections.abc import Mapping, Sequence

import msgspec

from common.errors import PlatformError
from core.domain.results.simulation_answer import answer_of, failures_of_older, one_task_each
from core.domain.submissions.records import Simulation
from core.services.datasets.catalogue import played
from core.store import simulations as store
from core.store.database import Connection

Outcomes = Mapping[str, Mapping[str, int]]


class _Outcomes(msgspec.Struct):
    """Number of tasks by value, of each text metric of a summary."""

    outcomes: dict[str, dict[str, int]] = {}


class _Failures(msgspec.Struct):
    failures: dict[str, int] | None = None


_outcomes_decoder, _failures_decoder = msgspec.json.Decoder(_Outcomes), msgspec.json.Decoder(_Failures)


def outcomes_of_older(c: Connection, rows: Sequence[store.SimulationRow]) -> dict[str, Outcomes]:
    """Return the outcomes of the simulations that an earlier version has ended, whose headlines have no failures.

    Their summaries are read, which may be a hundred times larger than a headline.
    """
    older = [row.id for row in rows if row.headline and '"failures":' not in row.headline]
    texts = store.summaries(c, older) | {row.id: row.summary for row in rows if not row.headline and row.summary}
    return {id: _decoded(text) for id, text in texts.items()}


def _decoded(text: str) -> Outcomes:
    try:
        return _outcomes_decoder.decode(text).outcomes
    except msgspec.DecodeError:  # summaries of earlier versions may have Infinity
        outcomes: Outcomes = json.loads(text).get("outcomes", {})
        return outcomes


def answer(simulation: Simulation, row: store.SimulationRow, older: Outcomes | None) -> Mapping[str, object] | None:
    """Return the answer of a simulation; None without a result, and if its dataset is not installed any more.

    ``row``: of the simulation. ``older``: see `outcomes_of_older`.
    """
    if simulation.approximate:
        return simulation.answer
    try:
        definition = played(simulation.provenance.dataset).definition
    except PlatformError:
        return None
    failures = (
        failures_of_older(definition, older)
        if older is not None
        else _failures_decoder.decode(row.headline or "{}").failures
    )
    return answer_of(
        definition,
        done=simulation.tasks.done,
        failed=simulation.tasks.failed,
        metrics=simulation.metrics,
        failures=failures,
        alone=one_task_each(simulation.provenance.play.tasks),
    )
