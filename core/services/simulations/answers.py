"""Answers of simulations, from their headlines after the end; while they run, their progress has the answer so far."""

import json
from collections.abc import Mapping

import msgspec

from common.errors import PlatformError
from core.domain.results.simulation_answer import answer_of, failures_of_older, one_task_each
from core.domain.submissions.records import Simulation
from core.services.datasets.catalogue import played
from core.store import simulations as store

Outcomes = Mapping[str, Mapping[str, int]]


class _Outcomes(msgspec.Struct):
    """Number of tasks by value, of each text metric of a summary."""

    outcomes: dict[str, dict[str, int]] = {}


class _Failures(msgspec.Struct):
    failures: dict[str, int] | None = None


_outcomes_decoder, _failures_decoder = msgspec.json.Decoder(_Outcomes), msgspec.json.Decoder(_Failures)


def _outcomes_of_older(summary: str) -> Outcomes:
    """Return the outcomes of a simulation that 0.2.0 has ended, whose row has no headline."""
    try:
        return _outcomes_decoder.decode(summary).outcomes
    except msgspec.DecodeError:  # summaries of earlier versions may have Infinity
        outcomes: Outcomes = json.loads(summary).get("outcomes", {})
        return outcomes


def answer(simulation: Simulation, row: store.SimulationRow) -> Mapping[str, object] | None:
    """Return the answer of a simulation, of its row; None without a result, and if its dataset is not installed."""
    if simulation.approximate:
        return simulation.answer
    try:
        definition = played(simulation.provenance.dataset).definition
    except PlatformError:
        return None
    failures = (
        failures_of_older(definition, _outcomes_of_older(row.summary))
        if row.summary and not row.headline
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
