"""Worker limits: how many workers fit, by every limit that holds, and which one holds a simulation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.scheduling.admission import AdmissionQueue, FreeCapacity, QueuedSimulation
from core.domain.scheduling.launches import Placement
from core.domain.scheduling.worker_limits import WorkersInUse, WorkLimits, WorkOwner
from core.domain.scheduling.worker_resources import ONE_WORKER, counted_amount, resources_of_worker, shown_amount
from tests.executor_configs import LOCAL

RED, ADA, BOB = WorkOwner("red", ""), WorkOwner("red", "ada"), WorkOwner("red", "bob")
EVERY = WorkOwner("", "")
NAMES = st.sampled_from(["running_workers", "cpu", "memory", "nvidia.com/gpu"])
LIMITS = st.dictionaries(st.sampled_from([RED, ADA, EVERY]), st.dictionaries(NAMES, st.integers(0, 50)))
EACH = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 20))


@given(LIMITS, st.lists(st.tuples(st.sampled_from([ADA, BOB]), st.integers(1, 6), EACH), max_size=30))
def test_an_owner_who_takes_what_is_left_stays_within_every_limit(amounts, taken) -> None:  # type: ignore[no-untyped-def]
    limits = WorkLimits(amounts)
    in_use = WorkersInUse(limits)
    used = {owner: dict.fromkeys(limits.names, 0) for owner in (RED, ADA, BOB)}
    for owner, asked, each in taken:
        left = in_use.left(owner, each)
        held = in_use.why_held(owner, 1, each)
        assert (held is not None) == (left is not None and left < 1)
        workers = asked if left is None else min(asked, left)
        if workers < 1:
            continue
        in_use.take(owner, workers, each)
        for counted in (RED, owner):
            for name in used[counted]:
                used[counted][name] += workers * (1 if name == "running_workers" else each.get(name, 0))
        for counted in (RED, ADA):
            of_all = amounts.get(EVERY, {}) if counted == RED else {}
            for name, amount in {**of_all, **amounts.get(counted, {})}.items():
                assert used[counted][name] <= amount


@given(LIMITS, st.integers(1, 64), EACH)
def test_a_simulation_gets_at_least_one_worker_and_never_more_than_it_asks_for(amounts, workers, each) -> None:  # type: ignore[no-untyped-def]
    assert 1 <= WorkLimits(amounts).within(ADA, workers, each) <= workers


def test_no_device_stands_for_cores_or_memory() -> None:
    tricky = Placement(cpu=2.5, memory=1 << 30, resources={"cpu": "0", "memory": "0", "nvidia.com/gpu": "2"})
    assert resources_of_worker(tricky) == {"cpu": 2500, "memory": 1 << 30, "nvidia.com/gpu": 2}


def test_a_gang_waits_whole_and_smaller_ones_of_its_owner_pass() -> None:
    gpus = {**ONE_WORKER, "nvidia.com/gpu": 4}
    queue = AdmissionQueue(
        QueuedSimulation(id, workers, float(number), owner=ADA, fixed=True, each=gpus)
        for number, (id, workers) in enumerate((("large", 3), ("small", 1)))
    )
    in_use = WorkersInUse(WorkLimits({RED: {"nvidia.com/gpu": 4}}))
    capacity = FreeCapacity(LOCAL, 100)
    assert [id for id, _ in queue.admit([capacity], 10.0, in_use=in_use)] == ["small"]


def test_who_waits_for_a_device_holds_nobody_back_who_needs_none() -> None:
    gpu = QueuedSimulation("gpu", 1, 0.0, owner=ADA, each={**ONE_WORKER, "nvidia.com/gpu": 1})
    queue = AdmissionQueue([gpu, QueuedSimulation("none", 1, 1.0, owner=ADA)])
    in_use = WorkersInUse(WorkLimits({RED: {"nvidia.com/gpu": 0}}))
    assert [id for id, _ in queue.admit([FreeCapacity(LOCAL, 100)], 10.0, in_use=in_use)] == ["none"]


@pytest.mark.parametrize(("name", "counted"), [("cpu", 7000), ("memory", 7), ("running_workers", 7), ("x.com/fpga", 7)])
def test_a_limit_is_shown_as_it_was_given_and_cores_are_counted_in_thousandths(name: str, counted: int) -> None:
    assert counted_amount(name, 7) == counted
    assert shown_amount(name, counted) == 7
