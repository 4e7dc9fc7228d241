"""Leaderboards of datasets: the pooled simulations of each model, from the newest simulations of a version."""

import threading
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from common.errors import Invalid
from core.domain.access.scopes import Caller
from core.domain.results.declared_results import declared_results
from core.domain.results.dependence import finite
from core.domain.results.leaderboard import Place, PlayedScore, penalised, places, plays_all
from core.domain.results.metric_statistics import MetricStatistics, metric_statistics
from core.domain.results.score import Score
from core.domain.scheduling.states import State
from core.domain.submissions.listing import Listing
from core.domain.submissions.provenance import provenance_of
from core.domain.submissions.selection import checked_params
from core.services.datasets.datasets import Datasets
from core.services.datasets.descriptions import moment
from core.services.simulations.headlines import headline_of
from core.services.unreadable_rows import readable
from core.store import listing, simulations
from core.store.database import Database
from datasets.catalogue import Dataset

#: Most simulations of a version that are searched, the newest; and rows per query, which hold their headlines.
SEARCHED, ROWS = 5000, 500
#: Versions whose scores are kept in memory, those that were asked for last: some megabytes each.
KEPT = 4


class _Headline(msgspec.Struct):
    """A headline whose metrics are not decoded: a leaderboard reads one of them, of thousands of simulations."""

    tasks: dict[str, int]
    metrics: dict[str, msgspec.Raw]


_headline_decoder = msgspec.json.Decoder(_Headline)
_statistics_decoder = msgspec.json.Decoder(MetricStatistics)


class Leaderboards:
    """Ranks models on the version of a dataset. The cost is bounded by SEARCHED, whatever the number of simulations.

    Results of a simulation that has succeeded do not change: each is read once, and its score kept.
    """

    def __init__(self, database: Database, datasets: Datasets, searched: int = SEARCHED) -> None:
        self._database = database
        self._datasets = datasets
        self._searched = searched
        self._kept: dict[str | None, Mapping[str, PlayedScore | None]] = {}  # by version's digest, then by simulation
        self._lock = threading.Lock()

    def leaderboard(self, caller: Caller, ref: str, limit: int, *, trusted: bool = False) -> dict[str, object]:
        """Return up to ``limit`` places; ``trusted``: whether trusted simulations count.

        Raise Invalid for a dataset without a score, or without fixed scenarios.
        """
        dataset = self._datasets.find(caller, ref)
        score = Score.of(dataset.definition)
        if score.metric is None or dataset.tasks is None:
            lacks = "score" if score.metric is None else "fixed number of scenarios"
            raise Invalid(
                f"The dataset {dataset.name} has no {lacks}, so its simulations have no order."
                f" `GET /v1/simulations?dataset={dataset.name}` lists them."
            )
        with self._database.read() as c:
            filters = Listing(states=(State.SUCCEEDED,), dataset_digest=dataset.digest)
            ids = listing.page_ids(c, caller.scope, filters, after=None, limit=self._searched + 1)
        searched = ids[: self._searched]
        scores = list(filter(None, self._scores(caller, dataset, score.metric, searched).values()))
        counted = [played for played in scores if trusted or not played.trusted]
        ranked = places(counted, lower_is_better=score.lower_is_better)
        return {
            "dataset": dataset.name,
            "version": dataset.version,
            "digest": dataset.digest,
            "metric": score.metric,
            "better": "lower" if score.lower_is_better else "higher",
            "searched": len(searched),
            "complete": len(searched) == len(ids),
            "trusted_left_out": len(scores) - len(counted),
            "items": [_described(number, place) for number, place in enumerate(ranked[:limit], start=1)],
        }

    def _scores(
        self, caller: Caller, dataset: Dataset, metric: str, ids: Sequence[str]
    ) -> Mapping[str, PlayedScore | None]:
        """Return the score of each simulation, None of one that is not ranked; read are those that are not known."""
        known = self._kept.get(dataset.digest, {})
        read = {score.id: score for score in self._read(caller, dataset, metric, [id for id in ids if id not in known])}
        scores = {id: known[id] if id in known else read.get(id) for id in ids}
        with self._lock:
            self._kept.pop(dataset.digest, None)
            self._kept[dataset.digest] = scores
            if len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return scores

    def _read(self, caller: Caller, dataset: Dataset, metric: str, ids: Sequence[str]) -> Iterator[PlayedScore]:
        """Yield the scores of those simulations whose tasks are all scenarios, with the default parameters."""
        declared = dataset.declared.params
        defaults = checked_params(declared, {}, dataset.name)
        worst = declared_results(dataset.definition).worst_values.get(metric)

        def score_of(row: simulations.HeadlineRow) -> PlayedScore | None:
            provenance = provenance_of(row.provenance)
            if not plays_all(provenance.play.tasks, dataset.tasks or 0, defaults):
                return None
            tasks, statistics = _score_of(row, metric)
            repeat = int(provenance.play.tasks.get("repeat", 1))
            figures = penalised(statistics, tasks.get("failed", 0), worst, repeat) if statistics else None
            if figures is None:
                return None
            mean, low, high = figures
            return PlayedScore(
                id=row.id,
                model=row.model,
                digest=row.digest,
                version=provenance.model.version,
                repeat=repeat,
                seed=int(provenance.play.tasks["seed"]),
                tasks=tasks,
                ended_at=row.ended_at or 0.0,
                mean=mean,
                low=low,
                high=high,
                trusted=provenance.play.trusted,
            )

        for start in range(0, len(ids), ROWS):
            with self._database.read() as c:
                rows = simulations.headline_rows(c, caller.scope, ids[start : start + ROWS])
            yield from filter(None, readable(rows, score_of, "simulation"))


def _score_of(row: simulations.HeadlineRow, metric: str) -> tuple[Mapping[str, int], MetricStatistics | None]:
    """Return the numbers of a simulation's tasks, and the statistics of a metric; None if it has none."""
    try:
        headline = _headline_decoder.decode(row.headline or "")
    except msgspec.DecodeError:  # a row of an earlier version, without headline or with Infinity
        older = headline_of(row)
        if older is None:
            return {}, None
        return older.tasks, metric_statistics(older.metrics[metric]) if metric in older.metrics else None
    statistics = headline.metrics.get(metric)
    return headline.tasks, None if statistics is None else _statistics_decoder.decode(statistics)


def _described(number: int, place: Place) -> dict[str, object]:
    score = place.score
    return {
        "place": number,
        "simulation": score.id,
        "pooled": score.pooled,
        "model": {"name": score.model, "version": score.version, "digest": score.digest},
        "tasks": dict(score.tasks),
        "mean": score.mean,
        "low": finite(score.low),
        "high": finite(score.high),
        "better_than_next": place.better,
        "trusted": score.trusted,
        "ended_at": moment(score.ended_at),
    }
