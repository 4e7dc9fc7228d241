"""Progress of a simulation: counts and live metrics, accumulated from its segments as they arrive."""

import json
from collections.abc import Mapping

from core.domain.results.score_series import ArrivalSeries
from core.domain.results.simulation_answer import answer_of, one_task_each
from core.domain.results.statistics import merged, sketched
from core.store.leases import Segment
from runtimes.harness.evaluator.result_batch import FAILURE


class Progress:
    """Sums over the segments of one simulation that have arrived; a restarted dispatcher starts from zero.

    ``metric``: the score of its dataset, None if it has none. ``never``: by metric, the value that stands for "never":
    a batch has only the sum of all its values, so such a metric has no mean until the simulation has ended.
    Results that a retry inherited lie in objects of another simulation: they count as done but not towards the rate.
    """

    def __init__(
        self, simulation: str | None = None, metric: str | None = None, never: Mapping[str, float] | None = None
    ) -> None:
        self._never = never or {}
        self.arrived = 0
        self._own = "" if simulation is None else f"results/{simulation}/"
        self._done = 0
        self._played = 0
        self.failed = 0
        self._sums: dict[str, list[float]] = {}
        self._scores = ArrivalSeries(metric)
        self._failures: dict[str, int] = {}

    def add(self, page: list[tuple[int, Segment]]) -> None:
        """Add segments with their arrival numbers."""
        for number, segment in page:
            self.arrived = number
            self._done += segment.stop - segment.start
            if segment.object.startswith(self._own):
                self._played += segment.stop - segment.start
            self.failed += segment.failed
        sketches = [json.loads(segment.sketch) for _, segment in page if segment.sketch]
        for sketch in sketches:
            for name in [name for name in sketch if name.startswith(FAILURE)]:
                outcome = name.removeprefix(FAILURE)
                self._failures[outcome] = self._failures.get(outcome, 0) + int(sketch.pop(name)[1])
            self._scores.add(sketch)
        merged(sketches, self._sums)

    def describe(self, total: int, seconds: float) -> dict[str, object]:
        """Return the event's body; rate in tasks a second, ETA in seconds."""
        rate = self._played / seconds if seconds > 0 else None
        return {
            "total": total,
            "done": self._done,
            "failed": self.failed,
            "rate": rate,
            "eta": (total - self._done) / rate if rate else None,
            "metrics": self._metrics(),
        }

    def _metrics(self) -> dict[str, dict[str, float | int | None]]:
        metrics = sketched(self._sums)
        for name, value in self._never.items():
            figures = metrics.get(name, {})
            if extremes := [end for end in ("min", "max") if figures.get(end) == value]:
                figures |= dict.fromkeys(("mean", "std", *extremes))
        return metrics

    def answer(self, definition: Mapping[str, object], plan: Mapping[str, object]) -> dict[str, object] | None:
        """Return the answer so far (core/domain/results/simulation_answer.py). ``plan``: of the simulation's tasks."""
        return answer_of(
            definition,
            done=self._done,
            failed=self.failed,
            metrics=self._metrics(),
            failures=self._failures or None,  # runners of earlier versions do not count them
            alone=one_task_each(plan),
        )

    def score(self) -> dict[str, object] | None:
        """Return the series of the score, in order of arrival; None without a score."""
        return self._scores.described()
