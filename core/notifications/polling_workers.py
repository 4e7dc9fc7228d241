"""Polling workers: run the jobs that SQL shows as due while Redis does not answer; a claim in SQL keeps them single."""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Connection
from typing import Protocol

from rq.timeouts import JobTimeoutException, UnixSignalDeathPenalty

from core.domain.scheduling.due_jobs import Attempts
from core.domain.scheduling.job_kinds import Due, Functions, JobKind
from core.notifications.job_statistics import WorkerStatistics

logger = logging.getLogger(__name__)
_FORKING = multiprocessing.get_context("fork")

#: Seconds between two polls of SQL that find nothing to do: in a resident worker, and with a forked process for each.
POLL, FORKED_POLL = 1.0, 5.0
#: Seconds between two attempts to reach Redis.
REDIS_RETRY = 2.0
#: Seconds after a job's timeout at which its process is killed, if the timeout's exception did not end it.
GRACE = 30.0


class _Penalty(Protocol):
    """RQ's timeout of a job, which has no types of its own."""

    def __call__(self, timeout: float, error: type[Exception], /, *, job_id: str) -> AbstractContextManager[object]: ...


class PollingWorker:
    """A worker of one kind that needs no Redis. A resident kind runs in this process, another in a forked one."""

    def __init__(
        self,
        kind: JobKind,
        functions: Functions | None,
        open_functions: Callable[[], Functions],
        open_due: Callable[[], Due],
        *,
        statistics: WorkerStatistics,
        prepare_fork: Callable[[int], None],
    ) -> None:
        """``functions``: those of a resident kind, open already; None: they are opened in each forked process."""
        self._kind = kind
        self._functions = functions
        self._open_functions = open_functions
        self._open_due = open_due
        self._due: Due | None = None
        self._statistics = statistics
        self._prepare_fork = prepare_fork
        self._attempts = Attempts(kind)
        self._stop = threading.Event()
        self._replace = False

    def run(self, redis_answers: Callable[[], bool]) -> bool:
        """Run due jobs until Redis answers; return False if the process has to end instead (SIGTERM, a timeout)."""
        if redis_answers():
            return True
        handlers = {number: signal.signal(number, lambda *_: self._stop.set()) for number in (2, 15)}
        retry_at, poll_at = time.monotonic() + REDIS_RETRY, 0.0
        try:
            while not self._stop.is_set() and not self._replace:
                if time.monotonic() >= retry_at:
                    if redis_answers():
                        return True
                    retry_at = time.monotonic() + REDIS_RETRY
                if time.monotonic() >= poll_at and not self._step():
                    poll_at = time.monotonic() + (POLL if self._functions is not None else FORKED_POLL)
                self._stop.wait(max(0.0, min(poll_at, retry_at) - time.monotonic()))
            return False
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _step(self) -> bool:
        """Run one due job; return whether there was one."""
        began = time.monotonic()
        self._statistics.deadline = began + self._kind.timeout + GRACE
        try:
            id, failed = self._run_here() if self._functions is not None else self._run_forked()
        finally:
            self._statistics.deadline = float("inf")
        if id is None:
            return False
        self._attempts.ended(id, time.monotonic(), failed=failed)
        self._statistics.add_attempt(failed=failed, seconds=time.monotonic() - began)
        return True

    def _next(self) -> str | None:
        """Return the next job; None also if the database does not answer."""
        if self._due is None:
            self._due = self._open_due()
        try:
            return self._attempts.next(self._due(self._kind.name), time.monotonic())
        except Exception as error:
            logger.warning("worker of %s jobs: the database (DATABASE_URL) does not answer: %s", self._kind.name, error)
            return None

    def _run_here(self) -> tuple[str | None, bool]:
        """Run a job in this process; return its id and whether it failed."""
        assert self._functions is not None
        if (id := self._next()) is None:
            return None, False
        try:
            penalty: _Penalty = UnixSignalDeathPenalty
            with penalty(self._kind.timeout, JobTimeoutException, job_id=self._kind.job_id(id)):
                self._functions[self._kind.name](id)
        except JobTimeoutException:
            logger.exception("job %s was ended at its timeout", self._kind.job_id(id))
            self._replace = True  # it was interrupted anywhere, so its locks may be held for ever
            return id, True
        except Exception:
            logger.exception("job %s failed", self._kind.job_id(id))
            return id, True
        return id, False

    def _run_forked(self) -> tuple[str | None, bool]:
        """Fork a process that finds a job and runs it; return the job's id and whether it failed."""
        reader, writer = _FORKING.Pipe(duplex=False)
        process = _FORKING.Process(target=self._run_in_fork, args=(os.getpid(), writer))
        process.start()
        writer.close()
        id: str | None = None
        with reader, suppress(EOFError):
            id = reader.recv()
        process.join(self._kind.timeout)
        if process.is_alive():
            logger.error("a job did not end at its timeout; its process %s is killed", process.pid)
            process.kill()
            process.join()
        return id, process.exitcode != 0

    def _run_in_fork(self, parent: int, writer: "Connection[str | None, None]") -> None:
        code = 1
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # its parent lets it end, or dies and takes it along
            self._prepare_fork(parent)
            id = self._next()
            writer.send(id)
            if id is not None:
                self._open_functions()[self._kind.name](id)
            code = 0
        except BaseException:
            logger.exception("a %s job failed", self._kind.name)
        finally:
            os._exit(code)  # what the job has left running holds up nothing
