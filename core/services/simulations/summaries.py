"""Summaries: one pass over a simulation's results in task order, for statistics, digest and the archive's size."""

import hashlib
import json
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec

from core.domain.outcomes import ErrorTally
from core.domain.statistics import MetricTally
from core.services.datasets.catalogue import played
from core.services.simulations.results import Results


class _TimedResult(msgspec.Struct):
    status: str
    scenario: dict[str, Any]
    metrics: dict[str, Any]
    error: str | None = None
    timing: dict[str, Any] = {}


_result_decoder = msgspec.json.Decoder(_TimedResult)


def summarize(
    results: Results, row: Any, bodies: Iterable[bytes], total: int | None = None
) -> tuple[dict[str, Any], ErrorTally]:
    """Summarize result lines; return the summary, with the archive's description, and the errors of tasks.

    ``row``: of the simulation. ``bodies``: its result lines in task order. ``total``: number of tasks, if not all have
    a result.
    """
    definition = played(json.loads(row.provenance)["dataset"]).definition
    tally = MetricTally(definition["metrics"], definition.get("group_by", ()))
    errors = ErrorTally()
    digest = hashlib.sha256()
    crc = size = 0
    for body in bodies:
        crc = zlib.crc32(body, crc)
        size += len(body)
        for line in body.splitlines():
            result = _result_decoder.decode(line)
            tally.add(result.status, result.scenario, result.metrics)
            tally.clock(result.timing)
            if result.status != "ok":
                errors.add(result.status, result.error)
            # Without `timing`, the last member of a line and the only one that may differ between two runs.
            digest.update(line[: line.rindex(b',"timing":')] + b"}\n")
    summary = tally.summary() | {"results_digest": "sha256:" + digest.hexdigest()}
    summary["score"] = definition.get("score")
    if total is not None:
        summary["tasks"]["total"] = total
    return summary | {"archive": results.describe_archive(row, summary, size, crc)}, errors


def summary_of_nothing(results: Results, row: Any, total: int) -> dict[str, Any]:
    """Return the summary of a simulation that ends before it was started: its archive has no model and no logs.

    It reads no object, so a simulation can be cancelled while the object store is away.
    """
    definition = played(json.loads(row.provenance)["dataset"]).definition
    summary = MetricTally(definition["metrics"], definition.get("group_by", ())).summary()
    summary |= {"results_digest": "sha256:" + hashlib.sha256().hexdigest(), "score": definition.get("score")}
    summary["tasks"]["total"] = total
    return summary | {"archive": results.describe_archive(row, summary, 0, 0, ())}
