"""Summaries: one pass over a simulation's results in task order, for statistics, digest and the archive's size."""

import gc
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import msgspec

from core.domain.access.scopes import Caller
from core.domain.results.outcomes import ErrorTally
from core.domain.results.result_columns import TaskResult
from core.domain.results.result_tally import BLOCK, ResultTally
from core.domain.results.score import Score
from core.domain.results.score_series import TaskSeries
from core.domain.results.simulation_answer import FailureTally
from core.domain.results.worst_tasks import WorstTasks
from core.domain.submissions.provenance import Provenance, provenance_of
from core.domain.submissions.records import Tasks
from core.services.datasets.catalogue import played
from core.services.simulations.archive_extras import ArchiveDescription, ArchiveExtra
from core.services.simulations.headlines import summary_columns
from core.services.simulations.plan_units import units_of_plan
from core.services.simulations.results import Results
from core.store.simulations import SimulationRow
from datasets.catalogue.never_values import never_values
from runtimes.harness.evaluator.tasks import TaskPlan

_result_decoder = msgspec.json.Decoder(TaskResult)


@dataclass(frozen=True, slots=True)
class SimulationSummary:
    """A summary: ``statistics`` has all its members but the archive. ``errors``: of its tasks."""

    statistics: Mapping[str, object]
    tasks: Tasks
    archive: ArchiveDescription
    errors: ErrorTally

    def columns(self) -> dict[str, str]:
        """Return the columns of a row that hold the summary."""
        return summary_columns({**self.statistics, "archive": msgspec.to_builtins(self.archive)})


def summarize(
    caller: Caller,
    results: Results,
    row: SimulationRow,
    bodies: Iterable[bytes],
    total: int,
    *,
    extras: Sequence[ArchiveExtra] | None = None,
) -> SimulationSummary:
    """Summarize result lines.

    ``row``: of the simulation. ``bodies``: its result lines in task order. ``total``: number of its tasks. ``extras``:
    of its archive; None to measure them.
    """
    provenance = provenance_of(row.provenance)
    definition = played(provenance.dataset).definition
    tally = tally_of(provenance)
    score = Score.of(definition)
    worst, scores = WorstTasks(score), TaskSeries(score.metric, total)
    errors, failures = ErrorTally(), FailureTally(definition)
    digest = hashlib.sha256()
    crc = size = 0
    with without_collections():
        for body in bodies:
            crc = zlib.crc32(body, crc)
            size += len(body)
            for block in blocks_of(body):
                task_results = list(map(_result_decoder.decode, block))
                tally.add(task_results)
                worst.add(task_results)
                scores.add(task_results)
                for result in task_results:
                    if result.status == "ok":
                        failures.add(result)
                    else:
                        errors.add(result.status, result.error)
                # Without `timing`, the last member of a line and the only one that may differ between two runs.
                digest.update(b"".join([line[: line.rindex(b',"timing":')] + b"}\n" for line in block]))
    summary = tally.summary() | {"worst": worst.described(), "results_digest": "sha256:" + digest.hexdigest()}
    summary["score"] = definition.get("score")
    summary["score_series"] = scores.described()
    summary["failures"] = failures.described()
    summary["tasks"]["total"] = total
    if provenance.play.trusted:
        summary |= {"trusted": True}
    archive = results.describe_archive(caller, row, summary, size, crc, extras)
    return SimulationSummary(summary, Tasks(**summary["tasks"]), archive, errors)


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no cyclic garbage: decoded results have no cycles, and the search for them takes a quarter of a pass."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def tally_of(provenance: Provenance) -> ResultTally:
    """Return the empty tally of a simulation."""
    definition = played(provenance.dataset).definition
    plan = provenance.play.tasks
    swept = tuple(plan.get("sweep") or ())
    per_combination = TaskPlan(plan).per_combination if swept else 1
    return ResultTally(
        definition["metrics"],
        definition.get("group_by", ()),
        swept,
        per_combination,
        units_of_plan(plan),
        never_values(definition),
    )


def blocks_of(body: bytes) -> Iterator[list[bytes]]:
    """Yield lines in blocks: decoded results take several times the memory of their lines."""
    lines = iter(body.splitlines())
    while block := list(islice(lines, BLOCK)):
        yield block
