"""Jobs of RQ on a real Valkey, in the processes of the jobs role: retries, timeouts, kills, outages."""

import ctypes
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, RedisError
from rq.exceptions import NoSuchJobError
from rq.job import Job, JobStatus
from rq.utils import now

from core.domain.scheduling.job_kinds import KINDS, RETRY, JobKind
from core.notifications import job_maintenance, rq_overrides
from core.notifications.job_maintenance import JobMaintenance
from core.notifications.job_queue import JobQueue
from core.notifications.rq_overrides import BoundJob, queue_of
from server import job_processes
from server.job_processes import JobProcesses
from server.role_processes import die_with
from tests.ports import free_ports
from tests.severed_connections import SeveredConnections
from tests.valkey import Valkey
from tests.waiting import until

#: Kinds as in production, with retries that a test can wait for; `stage` is resident, `register` is not.
QUICK: tuple[JobKind, ...] = tuple(replace(kind, retries=(1, 1), concurrency=2) for kind in KINDS)
STAGE_AND_REGISTER = pytest.mark.parametrize("name", ["stage", "register"])


class JobsRole:
    """A jobs role in a process of its own. Its jobs append lines to a file, and wait for files that a test creates."""

    def __init__(self, server: Valkey, home: Path) -> None:
        self.server = server
        self.url = server.url
        self.home = home / "jobs"
        self.home.mkdir()
        self.record = self.home / "record"
        self.record.touch()
        self.redis = Redis.from_url(server.url)
        self.queue = JobQueue(self.redis)
        self.pid = 0

    def start(self, kinds: Sequence[JobKind] = QUICK, *, metrics_port: int = 0, stop_timeout: float = 20.0) -> None:
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid:
            return
        code = 1
        try:
            die_with(parent)
            logging.basicConfig(filename=self.home / "log", force=True)
            JobProcesses(
                self.url,
                kinds,
                self.functions,
                lambda: self.due,
                (self.home / "liveness").touch,
                metrics_port=metrics_port,
                stop_timeout=stop_timeout,
            ).run()
            code = 0
        finally:
            os._exit(code)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send the role a signal; return its exit code."""
        os.kill(self.pid, number)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return code

    def due(self, kind: str) -> list[str]:
        """Return the jobs of a kind that the test has listed as due and that have not run."""
        path = self.home / "due"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [id for name, id in lines if name == kind and ("raises" in id or id not in self.ended(kind))]

    def make_due(self, kind: str, id: str) -> None:
        """List a job as due, as SQL does."""
        with open(self.home / "due", "a") as file:
            file.write(f"{kind} {id}\n")

    def ended(self, name: str) -> list[str]:
        """Return the jobs of a kind that have ended, in order."""
        path = self.home / "ended"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [id for kind, id in lines if kind == name]

    def functions(self) -> Mapping[str, Callable[[str], None]]:
        return {kind.name: self._function(kind.name) for kind in KINDS}

    def _function(self, name: str) -> Callable[[str], None]:
        def run(id: str) -> None:
            with open(self.record, "a") as file:
                file.write(f"{name} {id} {os.getpid()}\n")
            if "hoards" in id:
                # More than any process of a test has: once it starts a thread, a fork gives back the stacks of its
                # parent's threads, which counted when its limit was set. Pages that are never written cost nothing.
                hoard = bytes(64 << 30)
                raise RuntimeError(f"{id} has {len(hoard)} bytes")
            if "raises" in id:
                raise RuntimeError(f"{id} is broken")
            if "swallows" in id:
                while True:
                    try:
                        time.sleep(60)
                    except Exception as error:  # noqa: F841
                        pass
            if "hangs" in id:  # in C, with the interpreter's lock: no exception can end it
                library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
                library.pthread_mutex_lock(mutex)
                library.pthread_mutex_lock(mutex)
            while "waits" in id and not (self.home / "go").exists():
                time.sleep(0.01)
            with open(self.home / "ended", "a") as file:
                file.write(f"{name} {id}\n")

        return run

    def release(self) -> None:
        """Let the waiting jobs end."""
        (self.home / "go").touch()

    def runs(self, name: str, id: str) -> list[int]:
        """Return the process of each run of a job."""
        lines = [line.split() for line in self.record.read_text().splitlines()]
        return [int(pid) for kind, of, pid in lines if (kind, of) == (name, id)]

    def job(self, name: str, id: str) -> Job | None:
        try:
            return Job.fetch(f"{name}-{id}", connection=self.redis, serializer="json")
        except NoSuchJobError:
            return None

    def failed_ids(self, name: str) -> list[str]:
        return queue_of(next(kind for kind in KINDS if kind.name == name), self.redis).failed_job_registry.get_job_ids()

    def is_done(self, name: str, id: str) -> bool:
        """Return whether the job has run and its record is deleted."""
        return bool(self.runs(name, id)) and self.job(name, id) is None


@pytest.fixture
def role(tmp_path: Path) -> Iterator[JobsRole]:
    server = Valkey(tmp_path)
    role = JobsRole(server, tmp_path)
    yield role
    if role.pid:
        role.release()
        role.end(signal.SIGKILL)
    role.redis.close()
    server.kill()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_of_job_is_done_from_its_own_queue(role: JobsRole, kind: JobKind) -> None:
    role.start([replace(kind, concurrency=1)])
    role.queue.enqueue(kind.name, "a")
    until(lambda: role.is_done(kind.name, "a"))
    assert role.runs(kind.name, "a")
    assert role.redis.smembers("rq:queues") == {f"rq:queue:windtunnel:{kind.name}".encode()}
    assert role.end() == 0


@STAGE_AND_REGISTER
def test_a_job_that_is_enqueued_again_while_it_waits_or_runs_is_one_job(role: JobsRole, name: str) -> None:
    for _ in range(3):
        role.queue.enqueue(name, "waits")
    role.start()
    until(lambda: role.runs(name, "waits"))
    for _ in range(3):
        role.queue.enqueue(name, "waits")
    role.release()
    until(lambda: role.is_done(name, "waits"))
    assert len(role.runs(name, "waits")) == 1
    role.queue.enqueue(name, "waits")  # due again: it runs again
    until(lambda: len(role.runs(name, "waits")) == 2)


@STAGE_AND_REGISTER
def test_a_kind_runs_as_many_jobs_at_once_as_its_concurrency_and_delays_no_other_kind(
    role: JobsRole, name: str
) -> None:
    role.start()
    for number in range(3):
        role.queue.enqueue(name, f"waits{number}")
    until(lambda: len(role.record.read_text().splitlines()) == 2)
    role.queue.enqueue("collect", "quick")
    until(lambda: role.is_done("collect", "quick"))
    assert not role.runs(name, "waits2")
    role.release()
    until(lambda: role.is_done(name, "waits2"))


@STAGE_AND_REGISTER
def test_a_job_that_raises_is_retried_and_then_listed_as_failed_with_its_traceback(role: JobsRole, name: str) -> None:
    role.start()
    role.queue.enqueue(name, "raises")
    until(lambda: role.failed_ids(name) == [f"{name}-raises"])
    assert len(role.runs(name, "raises")) == 3
    job = role.job(name, "raises")
    assert job is not None and "RuntimeError: raises is broken" in (job.latest_result().exc_string or "")
    (failure,) = role.queue.failures()
    assert (failure.kind, failure.job_id, failure.failures) == (name, f"{name}-raises", 1)
    assert failure.traceback.endswith("RuntimeError: raises is broken")
    for _ in range(5):
        role.queue.enqueue(name, "raises")  # as the dispatcher does, every two seconds
    role.queue.enqueue(name, "good")
    until(lambda: role.is_done(name, "good"))
    assert len(role.runs(name, "raises")) == 3
    assert role.failed_ids(name) == [f"{name}-raises"]


@STAGE_AND_REGISTER
def test_a_failed_job_is_enqueued_again_from_sql_after_pauses_that_double(role: JobsRole, name: str) -> None:
    role.start()
    role.queue.enqueue(name, "raises")
    for runs, pause in ((3, RETRY.first), (4, 2 * RETRY.first), (5, 4 * RETRY.first)):
        until(lambda: role.failed_ids(name) == [f"{name}-raises"])
        assert len(role.runs(name, "raises")) == runs
        set_ended_ago(role, name, "raises", pause - 30)
        role.queue.enqueue(name, "raises")
        assert role.failed_ids(name) == [f"{name}-raises"]
        set_ended_ago(role, name, "raises", pause + 1)
        role.queue.enqueue(name, "raises")
        until(lambda runs=runs: len(role.runs(name, "raises")) == runs + 1)


def set_ended_ago(role: JobsRole, name: str, id: str, seconds: float) -> None:
    """Make a failed job's record say that it failed so many seconds ago."""
    job = role.job(name, id)
    assert job is not None
    job.ended_at = now() - timedelta(seconds=seconds)
    job.save(include_meta=False, include_result=False)


@STAGE_AND_REGISTER
def test_the_job_of_a_killed_worker_is_done_again_in_seconds(role: JobsRole, name: str) -> None:
    role.start()
    role.queue.enqueue(name, "waits")
    (pid,) = until(lambda: role.runs(name, "waits"))
    os.kill(pid, signal.SIGKILL)
    role.queue.enqueue(name, "waits")  # from SQL, without effect
    until(lambda: len(role.runs(name, "waits")) == 2)
    role.release()
    until(lambda: role.is_done(name, "waits"))


def test_the_job_of_a_killed_parent_of_forked_jobs_is_done_again_and_its_process_does_not_outlive_it(
    role: JobsRole,
) -> None:
    role.start()
    role.queue.enqueue("register", "waits")
    (pid,) = until(lambda: role.runs("register", "waits"))
    os.kill(parent_of(pid), signal.SIGKILL)
    until(lambda: has_ended(pid))
    until(lambda: len(role.runs("register", "waits")) == 2)


@STAGE_AND_REGISTER
def test_the_jobs_of_a_killed_role_are_done_by_another_within_seconds(role: JobsRole, name: str) -> None:
    role.start()
    role.queue.enqueue(name, "waits")
    until(lambda: role.runs(name, "waits"))
    role.end(signal.SIGKILL)
    role.start()
    role.queue.enqueue(name, "waits")  # from SQL, without effect: RQ detects the expired heartbeat
    until(lambda: len(role.runs(name, "waits")) == 2)


@STAGE_AND_REGISTER
def test_a_job_whose_worker_dies_at_each_attempt_is_listed_as_failed(role: JobsRole, name: str) -> None:
    role.start()
    role.queue.enqueue(name, "waits")
    for attempt in (1, 2, 3):
        until(lambda attempt=attempt: len(role.runs(name, "waits")) == attempt)
        os.kill(role.runs(name, "waits")[-1], signal.SIGKILL)
    until(lambda: role.failed_ids(name) == [f"{name}-waits"])


@pytest.mark.parametrize(("name", "id"), [("stage", "waits"), ("register", "waits")])
def test_a_job_is_ended_at_its_timeout_while_others_of_its_kind_continue(role: JobsRole, name: str, id: str) -> None:
    role.start([replace(kind, timeout=1, retries=()) for kind in QUICK])
    role.queue.enqueue(name, id)
    until(lambda: role.runs(name, id))
    role.queue.enqueue(name, "other")
    until(lambda: role.is_done(name, "other"))
    until(lambda: role.failed_ids(name) == [f"{name}-{id}"])
    job = role.job(name, id)
    assert job is not None and "JobTimeoutException" in (job.latest_result().exc_string or "")
    role.queue.enqueue(name, "after")
    until(lambda: role.is_done(name, "after"))


@pytest.mark.parametrize("id", ["swallows", "hangs"])
def test_a_resident_job_that_ignores_its_timeout_is_killed_and_retried(
    role: JobsRole, id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.notifications.rq_overrides.GRACE", 1.0)
    role.start([replace(kind, timeout=1, retries=(1,)) for kind in QUICK])
    role.queue.enqueue("stage", id)
    role.queue.enqueue("stage", "other")
    until(lambda: role.is_done("stage", "other"))
    until(lambda: len(role.runs("stage", id)) == 2)
    until(lambda: role.failed_ids("stage") == [f"stage-{id}"])
    for pid in role.runs("stage", id):
        until(lambda pid=pid: has_ended(pid))


def test_jobs_continue_after_redis_is_flushed_while_they_run(role: JobsRole) -> None:
    role.start()
    for name in ("stage", "register"):
        role.queue.enqueue(name, "waits")
        until(lambda name=name: role.runs(name, "waits"))
    role.redis.flushall()
    role.release()
    for name in ("stage", "register"):
        role.queue.enqueue(name, "flushed")
        until(lambda name=name: role.is_done(name, "flushed"))


def test_jobs_continue_after_an_outage_of_redis_while_they_run(role: JobsRole) -> None:
    role.start()
    for name in ("stage", "register"):
        role.queue.enqueue(name, "waits")
        until(lambda name=name: role.runs(name, "waits"))
    role.server.kill()
    role.release()
    role.server.start()
    for name in ("stage", "register"):
        until(lambda name=name: enqueued(role, name, "later"))
        until(lambda name=name: role.is_done(name, "later"))


@pytest.fixture
def proxy(role: JobsRole) -> Iterator[SeveredConnections]:
    """A proxy between the role and Redis."""
    proxy = SeveredConnections(role.server.run / "valkey.sock")
    password = (role.server.run / "valkey.password").read_text()
    role.url = f"redis://:{password}@127.0.0.1:{proxy.port}"
    yield proxy
    if role.pid:
        role.release()
        role.end(signal.SIGKILL)
    proxy.close()


@STAGE_AND_REGISTER
@pytest.mark.parametrize("outage", ["killed", "severed"])
def test_what_is_due_is_done_without_redis_and_through_it_afterwards(
    role: JobsRole, proxy: SeveredConnections, name: str, outage: str
) -> None:
    role.start([kind for kind in QUICK if kind.name == name])
    role.queue.enqueue(name, "before")
    until(lambda: role.is_done(name, "before"))
    if outage == "killed":
        role.server.kill()
    else:
        proxy.sever()
    for number in range(3):
        role.make_due(name, f"during-{number}")
    until(lambda: {f"during-{number}" for number in range(3)} <= set(role.ended(name)))
    if outage == "killed":
        role.server.start()
    else:
        proxy.restore()
    until(lambda: enqueued(role, name, "after"))
    until(lambda: role.is_done(name, "after"))
    assert all(len(role.runs(name, f"during-{number}")) <= 2 for number in range(3))  # two workers; claims keep one


@STAGE_AND_REGISTER
def test_a_job_that_runs_when_redis_is_lost_runs_to_its_end(
    role: JobsRole, proxy: SeveredConnections, name: str
) -> None:
    role.start([replace(kind, concurrency=1) for kind in QUICK if kind.name == name])
    role.queue.enqueue(name, "waits")
    until(lambda: role.runs(name, "waits"))
    proxy.sever()
    until(lambda: "no heartbeat of job" in (role.home / "log").read_text())
    role.release()
    until(lambda: role.ended(name) == ["waits"])
    assert len(role.runs(name, "waits")) == 1


@STAGE_AND_REGISTER
def test_without_redis_jobs_fail_time_out_and_end_as_with_it(role: JobsRole, name: str) -> None:
    role.server.kill()
    role.start([replace(kind, concurrency=1, timeout=1) for kind in QUICK if kind.name == name])
    role.make_due(name, "raises")
    until(lambda: len(role.runs(name, "raises")) == 2)  # again after the first pause, one second here
    role.make_due(name, "waits")
    until(lambda: len(role.runs(name, "waits")) == 2)  # ended at its timeout, and begun again
    role.make_due(name, "last")
    role.release()
    until(lambda: "last" in role.ended(name))
    assert role.end() == 0


def test_sigterm_without_redis_lets_running_jobs_end(role: JobsRole) -> None:
    role.server.kill()
    role.start()
    for name in ("stage", "register"):
        role.make_due(name, "waits")
        until(lambda name=name: role.runs(name, "waits"))
    os.kill(role.pid, signal.SIGTERM)
    role.release()
    assert os.waitstatus_to_exitcode(os.waitpid(role.pid, 0)[1]) == 0
    role.pid = 0
    assert {*role.ended("stage")} == {*role.ended("register")} == {"waits"}


def test_what_is_due_is_enqueued_by_the_role_itself(role: JobsRole) -> None:
    role.start()
    role.make_due("stage", "due")
    until(lambda: role.is_done("stage", "due"))


def enqueued(role: JobsRole, name: str, id: str) -> bool:
    try:
        role.queue.enqueue(name, id)
    except RedisError:
        return False
    return True


def test_a_role_that_receives_sigterm_lets_running_jobs_end(role: JobsRole) -> None:
    role.start()
    for name in ("stage", "register"):
        role.queue.enqueue(name, "waits")
        until(lambda name=name: role.runs(name, "waits"))
    os.kill(role.pid, signal.SIGTERM)
    role.release()
    assert os.waitstatus_to_exitcode(os.waitpid(role.pid, 0)[1]) == 0
    role.pid = 0
    assert role.is_done("stage", "waits") and role.is_done("register", "waits")


def test_a_role_that_receives_sigterm_waits_for_jobs_until_its_timeout(role: JobsRole) -> None:
    role.start(stop_timeout=0.1)
    role.queue.enqueue("stage", "waits")
    (pid,) = until(lambda: role.runs("stage", "waits"))
    assert role.end() == 0
    assert not Path(f"/proc/{pid}").exists()
    assert role.job("stage", "waits") is not None  # another role runs it


def test_the_liveness_file_is_touched_while_every_worker_is_busy(role: JobsRole) -> None:
    role.start([replace(kind, concurrency=1) for kind in QUICK])
    role.queue.enqueue("stage", "waits")
    until(lambda: role.runs("stage", "waits"))
    until((role.home / "liveness").exists)
    before = (role.home / "liveness").stat().st_mtime
    until(lambda: (role.home / "liveness").stat().st_mtime > before)


def test_metrics_have_queues_and_attempts_of_every_kind(role: JobsRole) -> None:
    (port,) = free_ports(1)
    role.start([replace(kind, retries=()) for kind in QUICK], metrics_port=port)
    for name in ("stage", "register"):
        role.queue.enqueue(name, "good")
        role.queue.enqueue(name, "raises")
        until(lambda name=name: role.is_done(name, "good") and role.failed_ids(name))

    def metrics() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    text = metrics()
    for name in ("stage", "register"):
        assert f'windtunnel_jobs{{kind="{name}",state="failed"}} 1.0' in text
        assert f'windtunnel_jobs{{kind="{name}",state="queued"}} 0.0' in text
        assert f'windtunnel_job_attempts_total{{kind="{name}",outcome="succeeded"}} 1.0' in text
        assert f'windtunnel_job_attempts_total{{kind="{name}",outcome="failed"}} 1.0' in text
        assert f'windtunnel_job_seconds_total{{kind="{name}"}}' in text
    role.queue.enqueue("stage", "waits")
    (pid,) = until(lambda: role.runs("stage", "waits"))
    os.kill(pid, signal.SIGKILL)
    until(lambda: 'windtunnel_job_worker_ends_total{kind="stage"} 1.0' in metrics())


# -- hostile clients of Redis


def enqueue_hostile_job(role: JobsRole, name: str, **fields: Any) -> str:
    """Write a job into a queue, as any client of Redis could; return its id."""
    kind = next(kind for kind in KINDS if kind.name == name)
    data = fields.pop("data", f'["{name}", null, ["{fields.pop("id", "good")}"], {{}}]')
    record = {"data": data, "origin": kind.queue, "status": "queued", "created_at": "2026-01-01T00:00:00.000000Z"}
    role.redis.hset("rq:job:hostile", mapping=record | fields)
    role.redis.rpush(f"rq:queue:{kind.queue}", "hostile")
    return "hostile"


def call(path: Path) -> str:
    return f'["os.mkdir", null, ["{path}"], {{}}]'


@STAGE_AND_REGISTER
def test_no_function_outside_the_allow_list_is_called(role: JobsRole, name: str, tmp_path: Path) -> None:
    role.start([replace(kind, retries=()) for kind in QUICK])
    enqueue_hostile_job(role, name, data=call(tmp_path / "created"))
    until(lambda: role.failed_ids(name) == ["hostile"])
    assert not (tmp_path / "created").exists()


@STAGE_AND_REGISTER
@pytest.mark.parametrize(
    "data",
    [
        '["collect", null, ["good"], {}]',
        '["register", {"a": 1}, ["good"], {}]',
        '["register", null, [1], {}]',
        '["stage", null, ["good"], {"term": 1}]',
        '["stage", null, [], {}]',
        "no json",
        "\x80\x04pickle",
    ],
)
def test_a_job_with_other_arguments_than_a_platform_s_is_refused(role: JobsRole, name: str, data: str) -> None:
    role.start([replace(kind, retries=()) for kind in QUICK])
    enqueue_hostile_job(role, name, data=data)
    until(lambda: role.failed_ids(name) == ["hostile"])
    assert role.record.read_text() == ""
    role.queue.enqueue(name, "good")
    until(lambda: role.is_done(name, "good"))


@STAGE_AND_REGISTER
@pytest.mark.parametrize("id", ["good", "raises"])
def test_callbacks_webhooks_repeats_and_dependents_are_ignored(
    role: JobsRole, name: str, id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBACK_FILE", str(tmp_path / "called"))
    dependent = {"data": call(tmp_path / "created"), "origin": "windtunnel:sweep", "status": "deferred"}
    role.redis.hset("rq:job:dependent", mapping=dependent)
    role.redis.sadd("rq:job:hostile:dependents", "dependent")
    role.redis.sadd("rq:job:dependent:dependencies", "hostile")
    callback = "tests.contracts.test_job_workers.callback_target"
    with socket.create_server(("127.0.0.1", 0)) as webhook_listener:
        url = f"http://127.0.0.1:{webhook_listener.getsockname()[1]}/"
        role.start()
        enqueue_hostile_job(
            role,
            name,
            id=id,
            success_callback_name=callback,
            failure_callback_name=callback,
            stopped_callback_name=callback,
            webhooks=json.dumps([{"url": url, "job_status": status} for status in ("finished", "failed")]),
            repeats_left="1000",
            repeat_intervals="[1]",
            rate_limit_key="x",
            rate_limit_concurrency="1",
            retries_left="1000000",
            retry_intervals="[1]",
            timeout="-1",
            meta='{"failures": "many"}',
            result_ttl="-1",
        )
        if id == "good":
            until(lambda: role.runs(name, id) and not role.redis.exists("rq:job:hostile"))
        else:
            until(lambda: role.failed_ids(name) == ["hostile"])
        role.queue.enqueue(name, "after")
        until(lambda: role.is_done(name, "after"))
        assert len(role.runs(name, id)) == (1 if id == "good" else 3)
        webhook_listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            webhook_listener.accept()
    assert not (tmp_path / "called").exists()
    assert role.redis.hget("rq:job:dependent", "status") == b"deferred"


def callback_target(*arguments: Any) -> None:
    Path(os.environ["CALLBACK_FILE"]).touch()


@STAGE_AND_REGISTER
def test_a_scheduled_entry_of_another_client_runs_no_function_outside_the_allow_list(
    role: JobsRole, name: str, tmp_path: Path
) -> None:
    role.start()
    kind = next(kind for kind in KINDS if kind.name == name)
    role.redis.hset(
        "rq:job:hostile",
        mapping={"data": call(tmp_path / "created"), "origin": kind.queue, "status": "scheduled"},
    )
    role.redis.zadd(f"rq:scheduled:{kind.queue}", {"hostile": 1})
    until(lambda: role.failed_ids(name) == ["hostile"])
    assert not (tmp_path / "created").exists()


@STAGE_AND_REGISTER
@pytest.mark.parametrize("fields", [{"status": "no such status"}, {"timeout": "soon"}, {"enqueued_at": "yesterday"}])
def test_a_record_that_cannot_be_read_does_not_stop_its_kind(
    role: JobsRole, name: str, fields: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_maintenance, "TAKEN", 1.0)
    role.start([replace(kind, concurrency=1) for kind in QUICK])
    enqueue_hostile_job(role, name, **fields)
    role.queue.enqueue(name, "good")
    until(lambda: role.is_done(name, "good"))
    until(lambda: not role.redis.exists("rq:job:hostile"))


# -- maintenance


def test_entries_that_cannot_be_read_do_not_stop_the_maintenance_of_other_jobs(role: JobsRole) -> None:
    role.redis.hset("rq:job:hostile", mapping={"data": "x", "origin": "windtunnel:stage", "status": "no such status"})
    role.redis.zadd("rq:wip:windtunnel:stage", {"hostile:1": 1})
    role.redis.zadd("rq:scheduled:windtunnel:stage", {"hostile": 1})
    role.redis.set("rq:failed:windtunnel:prefetch", "not a sorted set")
    role.start()
    role.queue.enqueue("stage", "raises")
    until(lambda: role.failed_ids("stage") == ["stage-raises"])
    assert len(role.runs("stage", "raises")) == 3


def test_every_queue_is_listed_by_rq_info(role: JobsRole) -> None:
    role.start()
    role.redis.flushall()
    until(lambda: role.redis.scard("rq:queues") == len(KINDS))
    environ = os.environ | {"RQ_REDIS_URL": role.server.url}
    rq = Path(sys.executable).parent / "rq"
    output = subprocess.run([rq, "info", "-Q"], env=environ, capture_output=True, text=True, check=True).stdout
    for kind in KINDS:
        assert f"{kind.queue} " in output


@STAGE_AND_REGISTER
def test_failed_jobs_are_requeued_by_the_rq_command(role: JobsRole, name: str) -> None:
    role.start([replace(kind, retries=()) for kind in QUICK])
    role.queue.enqueue(name, "raises")
    until(lambda: role.failed_ids(name))
    environ = os.environ | {"RQ_REDIS_URL": role.server.url}
    rq = Path(sys.executable).parent / "rq"
    command = [rq, "requeue", "-S", "json", "--queue", f"windtunnel:{name}", "--all"]
    subprocess.run(command, env=environ, capture_output=True, check=True)
    until(lambda: len(role.runs(name, "raises")) == 2 and role.failed_ids(name))


def test_a_job_that_a_worker_fetched_and_never_started_is_put_back(
    tmp_path: Path, role: JobsRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    role.queue.enqueue("stage", "lost")
    role.redis.lmove("rq:queue:windtunnel:stage", "rq:queue:windtunnel:stage:intermediate")
    monkeypatch.setattr(job_maintenance, "TAKEN", 0.0)
    maintenance = JobMaintenance(role.server.url, QUICK)
    maintenance.step()
    assert role.redis.lrange("rq:queue:windtunnel:stage", 0, -1) == [b"stage-lost"]
    assert not role.redis.exists("rq:queue:windtunnel:stage:intermediate")
    maintenance.close()


def test_a_job_that_a_worker_has_just_fetched_is_not_put_back(role: JobsRole) -> None:
    role.queue.enqueue("stage", "fetched")
    role.redis.lmove("rq:queue:windtunnel:stage", "rq:queue:windtunnel:stage:intermediate")
    maintenance = JobMaintenance(role.server.url, QUICK)
    maintenance.step()
    assert not role.redis.llen("rq:queue:windtunnel:stage")
    maintenance.close()


def test_the_oldest_failures_are_deleted_beyond_the_limit(role: JobsRole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_maintenance, "MOST_FAILURES", 2)
    queue = queue_of(QUICK[0], role.redis)
    for number in range(4):
        role.queue.enqueue("stage", str(number))
        job = BoundJob.fetch(f"stage-{number}", connection=role.redis, serializer="json")
        job.set_status(JobStatus.FAILED)
        queue.failed_job_registry.add(job, ttl=1000 + number, exc_string="broken")
    maintenance = JobMaintenance(role.server.url, QUICK)
    maintenance.step()
    assert role.failed_ids("stage") == ["stage-2", "stage-3"]
    assert role.job("stage", "0") is None and role.job("stage", "3") is not None
    maintenance.close()


@pytest.mark.parametrize("status", [JobStatus.STARTED, JobStatus.SCHEDULED, JobStatus.QUEUED])
def test_a_record_that_no_queue_and_no_registry_lists_is_replaced_after_a_minute(
    role: JobsRole, status: JobStatus
) -> None:
    role.queue.enqueue("stage", "lost")
    role.redis.delete("rq:queue:windtunnel:stage")
    job = role.job("stage", "lost")
    assert job is not None
    job.set_status(status)
    job.last_heartbeat = now()
    job.save()
    role.queue.enqueue("stage", "lost")
    assert not role.redis.llen("rq:queue:windtunnel:stage")
    job.last_heartbeat = now() - timedelta(seconds=61)
    job.save()
    role.queue.enqueue("stage", "lost")
    assert role.redis.lrange("rq:queue:windtunnel:stage", 0, -1) == [b"stage-lost"]


@pytest.mark.parametrize(
    "record",
    [
        {"last_heartbeat": "2026-11-24T10:08:57.238471Z"},  # of a job that ran while Redis was emptied
        {"data": "x", "status": "nonsense", "created_at": "yesterday", "origin": "windtunnel:stage"},
        {"data": "x", "origin": "another queue"},
    ],
)
def test_a_record_that_cannot_be_read_does_not_keep_its_job_from_the_queue(
    role: JobsRole, record: dict[str, str]
) -> None:
    role.redis.hset("rq:job:stage-lost", mapping=record)
    role.queue.enqueue("stage", "lost")
    assert role.redis.lrange("rq:queue:windtunnel:stage", 0, -1) == [b"stage-lost"]


@pytest.mark.parametrize("place", ["its queue", "the list of jobs just taken", "the scheduled jobs"])
def test_a_job_that_waits_for_minutes_is_not_enqueued_again(role: JobsRole, place: str) -> None:
    role.queue.enqueue("stage", "patient")
    queue = "rq:queue:windtunnel:stage"
    job = role.job("stage", "patient")
    assert job is not None
    job.enqueued_at = now() - timedelta(minutes=9)
    job.save()
    if place != "its queue":
        role.redis.lmove(queue, f"{queue}:intermediate")
    if place == "the scheduled jobs":
        role.redis.delete(f"{queue}:intermediate")
        job.set_status(JobStatus.SCHEDULED)
        queue_of(QUICK[0], role.redis).scheduled_job_registry.schedule(job, now() + timedelta(minutes=9))
    role.queue.enqueue("stage", "patient")
    assert role.redis.lrange(queue, 0, -1) == ([b"stage-patient"] if place == "its queue" else [])


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, even if its parent has not reaped it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def worker_names(role: JobsRole) -> set[str]:
    """Return the kinds of the workers that RQ lists."""
    return {key.decode().rpartition(":")[2].partition(".")[0] for key in role.redis.smembers("rq:workers")}


def test_workers_of_most_kinds_are_started_when_jobs_wait_and_end_when_none_do(
    role: JobsRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_processes, "IDLE", 1)
    monkeypatch.setattr(rq_overrides, "WAIT", 1)
    role.start()
    until(lambda: worker_names(role) == {"stage", "collect"})
    for name in ("register", "log"):
        role.queue.enqueue(name, "waits")
        until(lambda name=name: role.runs(name, "waits"))  # type: ignore[misc]
    assert worker_names(role) >= {"stage", "collect", "register", "log"}
    role.release()
    until(lambda: role.is_done("register", "waits") and role.is_done("log", "waits"))
    until(lambda: worker_names(role) == {"stage", "collect"})
    role.queue.enqueue("log", "a")
    until(lambda: role.is_done("log", "a"))
    assert "started again" not in (role.home / "log").read_text(), "an idle worker's end is not a failure"


@pytest.mark.parametrize("name", ["import", "register"])
def test_a_job_that_parses_files_of_users_has_a_limit_of_memory(role: JobsRole, name: str) -> None:
    assert all(kind.memory for kind in KINDS if kind.name in {"import", "log", "register"})
    role.start([replace(kind, retries=(), concurrency=1, memory=32 << 20) for kind in KINDS if kind.name == name])
    role.queue.enqueue(name, "hoards")
    until(lambda: role.failed_ids(name))
    job = role.job(name, "hoards")
    assert job is not None and "MemoryError" in (job.latest_result().exc_string or "")
    role.queue.enqueue(name, "modest")
    until(lambda: role.is_done(name, "modest"))
