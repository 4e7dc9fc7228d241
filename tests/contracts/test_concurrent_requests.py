"""Concurrent equal requests: both succeed, on each database engine."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from core.domain.access.scopes import LOCAL_CALLER
from core.domain.submissions.records import Model
from core.domain.submissions.submission import Submission
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.services.simulations.bulk import Outcome, Status
from core.store.database import Database
from datasets.objectstore.filesystem import FilesystemStore
from tests.api.answers import MODEL
from tests.executor_configs import LOCAL

T = TypeVar("T")
ROUNDS = 20


@pytest.fixture
def platform(database: Database, tmp_path: Path) -> Platform:
    store = FilesystemStore(tmp_path / "objects")
    return build(
        database,
        store,
        LocalNotifier(),
        PlatformOptions(home=tmp_path, executor_configs=[LOCAL], sandbox={"level": 3}),
    )


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def call_twice_at_once(pool: ThreadPoolExecutor, request: Callable[[int], T]) -> list[T]:
    """Call a function twice at the same moment; return both results."""
    barrier = threading.Barrier(2)

    def request_at_barrier(number: int) -> T:
        barrier.wait(30.0)
        return request(number)

    return list(pool.map(request_at_barrier, range(2)))


def test_two_submissions_with_the_same_idempotency_key_make_one_simulation(
    platform: Platform, pool: ThreadPoolExecutor
) -> None:
    platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
    submission = Submission(dataset="noop", runtime="python", model="mine", scenarios={"range": [0, 5]})
    for round in range(ROUNDS):

        def ask(_: int, key: str = f"key-{round}") -> tuple[str, bool]:
            simulation, replayed = platform.submissions.simulations.submit(
                LOCAL_CALLER, submission, key=key, request_digest="same"
            )
            return simulation.id, replayed

        (first, _), (second, _) = answers = call_twice_at_once(pool, ask)
        assert first == second and sorted(replayed for _, replayed in answers) == [False, True]
    assert len(platform.submissions.simulations.list(LOCAL_CALLER, limit=200)[0]) == ROUNDS


def test_two_models_added_under_the_same_name_are_two_versions(platform: Platform, pool: ThreadPoolExecutor) -> None:
    for round in range(ROUNDS):

        def ask(number: int, name: str = f"model-{round}") -> Model:
            return platform.files.models.add(LOCAL_CALLER, (MODEL, b"# %d\n" % number), filename="model.py", name=name)

        models = call_twice_at_once(pool, ask)
        assert sorted(model.version for model in models) == [1, 2]
        assert len({model.digest for model in models}) == 2


def test_two_pages_of_retries_retry_each_simulation_once(platform: Platform, pool: ThreadPoolExecutor) -> None:
    platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
    submission = Submission(dataset="noop", runtime="python", model="mine", scenarios={"range": [0, 5]})
    for _ in range(ROUNDS // 4):
        ids = [platform.submissions.simulations.accept(LOCAL_CALLER, submission)[0] for _ in range(6)]
        platform.submissions.bulk.cancel(LOCAL_CALLER, ids)

        def ask(number: int, ids: list[str] = ids) -> list[Outcome]:
            return platform.submissions.bulk.retry(LOCAL_CALLER, ids if number else ids[::-1])

        outcomes = [outcome for answer in call_twice_at_once(pool, ask) for outcome in answer]
        assert Counter(outcome.status for outcome in outcomes) == {Status.DONE: 6, Status.SKIPPED: 6}
        assert len({outcome.result for outcome in outcomes}) == 6
