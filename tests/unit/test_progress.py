"""Progress of a simulation: counts, speed and metrics, for any order of results."""

import json
from itertools import permutations

import pytest
from msgspec.structs import replace

from core.domain.results.outcomes import too_many
from core.domain.results.result_columns import TaskResult
from core.domain.results.result_tally import ResultTally
from core.services.scheduling.progress import Progress
from core.store.leases import Segment


def segment(start: int, stop: int, *, of: str = "new", failed: int = 0) -> Segment:
    return Segment(
        start=start, stop=stop, object=f"results/{of}/{start:012d}-0", offset=0, bytes=1, crc32=0, failed=failed
    )


def test_speed_is_the_number_of_tasks_per_elapsed_time() -> None:
    progress = Progress("new")
    progress.add([(1, segment(0, 10)), (2, segment(10, 30, failed=4))])
    progress_fields = progress.describe(120, 60.0)
    assert (progress_fields["done"], progress_fields["failed"], progress_fields["total"]) == (30, 4, 120)
    assert progress_fields["rate"] == pytest.approx(0.5) and progress_fields["eta"] == pytest.approx(180.0)
    assert progress.describe(120, 0.0)["rate"] is None


def test_a_metric_with_values_that_stand_for_never_has_no_mean_while_it_is_known_from_sums() -> None:
    progress = Progress("new", None, {"ttc": 100.0})
    sketch = {"ttc": [3, 106.0, 10020.0, 2.0, 100.0], "score": [3, 6.0, 14.0, 1.0, 3.0]}
    progress.add([(1, replace(segment(0, 3), sketch=json.dumps(sketch)))])
    metrics = progress.describe(3, 1.0)["metrics"]
    assert [metrics["ttc"][name] for name in ("count", "mean", "std", "min", "max")] == [3, None, None, 2.0, None]
    assert metrics["score"]["mean"] == 2.0


def test_results_of_earlier_launches_count_as_done_and_not_towards_the_speed() -> None:
    progress = Progress("new")
    progress.add([(1, segment(0, 980, of="old")), (2, segment(985, 990, of="older"))])
    assert progress.describe(1000, 5.0) | {"metrics": {}} == {
        "total": 1000, "done": 985, "failed": 0, "rate": 0.0, "eta": None, "metrics": {},
    }  # fmt: skip
    progress.add([(3, segment(980, 983))])
    progress_fields = progress.describe(1000, 60.0)
    assert progress_fields["done"] == 988
    assert progress_fields["rate"] == pytest.approx(3 / 60) and progress_fields["eta"] == pytest.approx(12 * 20)


def test_a_simulation_continues_with_as_many_failures_as_permitted() -> None:
    assert too_many(None, 1000) is None
    assert too_many(3, 3) is None
    assert too_many(3, 4) == "4 tasks failed; max_failures is 3"


def test_an_undeclared_metric_is_penalised_in_any_order_of_results() -> None:
    results = [("failed", {}), ("ok", {"x": 1.0}), ("ok", {"x": 3.0, "late": 5.0}), ("crashed", {})]
    summaries = []
    for order in permutations(results):
        tally = ResultTally([{"name": "score", "worst": 0.0}], ("street",))
        for status, metrics in order:
            tally.add([TaskResult(task=0, status=status, scenario={"street": "ramp"}, metrics=metrics)])
        summaries.append(tally.summary())
    assert all(summary == summaries[0] for summary in summaries)
    for metrics in (summaries[0]["metrics"], summaries[0]["groups"]["street"]["ramp"]["metrics"]):
        assert (metrics["x"]["mean_ok"], metrics["x"]["mean_penalised"]) == (2.0, None)
        assert metrics["late"]["mean_penalised"] is None


def test_an_undeclared_metric_has_its_plain_mean_when_no_task_failed() -> None:
    tally = ResultTally([], ())
    for value in (1.0, 3.0):
        tally.add([TaskResult(task=0, status="ok", scenario={}, metrics={"x": value})])
    assert tally.summary()["metrics"]["x"]["mean_penalised"] == 2.0
