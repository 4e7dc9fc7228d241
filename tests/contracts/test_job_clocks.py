"""Jobs of RQ under clocks that differ, or are set: what a clock an hour ahead has written is taken in seconds."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from redis import Redis
from rq import Queue
from rq.executions import Execution
from rq.job import JobStatus
from rq.utils import now

from core.domain.scheduling.job_kinds import BY_NAME, KINDS
from core.notifications.job_maintenance import JobMaintenance
from core.notifications.job_queue import JobQueue
from core.notifications.rq_overrides import TERM, job_class_of, queue_of
from tests.valkey import Valkey

HOUR = 3600.0
KIND = BY_NAME["collect"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def redis(server: Valkey) -> Iterator[Redis]:
    connection = Redis.from_url(server.url)
    yield connection
    connection.close()


@pytest.fixture
def queue(redis: Redis) -> Queue:
    return queue_of(KIND, redis, job_class_of(KIND))


@pytest.fixture
def maintenance(server: Valkey) -> Iterator[JobMaintenance]:
    maintenance = JobMaintenance(server.url, KINDS)
    yield maintenance
    maintenance.close()


def begun(queue: Queue, redis: Redis, *, ahead: float) -> str:
    """Start a job as a worker does whose clock is ahead; return the entry of its registry."""
    JobQueue(redis).enqueue(KIND.name, "s1")
    job = queue.fetch_job(KIND.job_id("s1"))
    assert job is not None
    queue.empty()
    with redis.pipeline() as pipeline:
        job.save(pipeline=pipeline)
        execution = Execution.create(job, TERM, pipeline=pipeline, worker_name="w")
        job.prepare_for_execution("w", pipeline=pipeline)
        pipeline.execute()
    job.last_heartbeat = now() + timedelta(seconds=ahead)
    job.save()
    redis.zincrby(queue.started_job_registry.key, ahead, execution.composite_key)
    return execution.composite_key


def test_the_job_of_a_dead_worker_whose_clock_was_ahead_is_abandoned_after_a_term(
    redis: Redis, queue: Queue, maintenance: JobMaintenance
) -> None:
    entry = begun(queue, redis, ahead=HOUR)
    maintenance.step()
    ends = redis.zscore(queue.started_job_registry.key, entry)
    assert isinstance(ends, float) and ends <= time.time() + TERM
    redis.zadd(queue.started_job_registry.key, {entry: ends - TERM - 1.0})  # a term later
    maintenance.step()
    assert redis.zscore(queue.started_job_registry.key, entry) is None
    assert redis.zcard(queue.scheduled_job_registry.key) == 1  # RQ tries it again


def test_a_worker_that_is_alive_keeps_its_job_though_its_clock_is_ahead(
    redis: Redis, queue: Queue, maintenance: JobMaintenance
) -> None:
    entry = begun(queue, redis, ahead=HOUR)
    for _ in range(3):
        maintenance.step()
        assert redis.zscore(queue.started_job_registry.key, entry) is not None
        redis.zadd(queue.started_job_registry.key, {entry: time.time() + HOUR + TERM})  # its heartbeat
        JobQueue(redis).enqueue(KIND.name, "s1")
        assert queue.count == 0, "it is not enqueued beside itself"


def test_a_retry_that_was_scheduled_before_the_clock_was_set_back_is_done(
    redis: Redis, queue: Queue, maintenance: JobMaintenance
) -> None:
    JobQueue(redis).enqueue(KIND.name, "s1")
    id = KIND.job_id("s1")
    queue.remove(id)
    job = queue.fetch_job(id)
    assert job is not None
    job.set_status(JobStatus.SCHEDULED)
    redis.zadd(queue.scheduled_job_registry.key, {id: time.time() + HOUR + max(KIND.retries)})
    maintenance.step()
    maintenance.step()
    assert queue.get_job_ids() == [id]


def test_a_pause_within_its_length_is_left_alone(redis: Redis, queue: Queue, maintenance: JobMaintenance) -> None:
    at = int(time.time()) + max(KIND.retries)
    redis.zadd(queue.scheduled_job_registry.key, {"collect-s1": at})
    maintenance.step()
    assert redis.zscore(queue.scheduled_job_registry.key, "collect-s1") == at


@pytest.mark.parametrize("status", [JobStatus.FAILED, JobStatus.STARTED])
def test_a_record_of_the_future_that_no_registry_lists_is_enqueued_again(
    redis: Redis, queue: Queue, status: JobStatus
) -> None:
    JobQueue(redis).enqueue(KIND.name, "s1")
    id = KIND.job_id("s1")
    queue.remove(id)
    job = queue.fetch_job(id)
    assert job is not None
    job.ended_at = job.last_heartbeat = now() + timedelta(seconds=HOUR)
    job.save()
    job.set_status(status)
    JobQueue(redis).enqueue(KIND.name, "s1")
    assert queue.get_job_ids() == [id]
