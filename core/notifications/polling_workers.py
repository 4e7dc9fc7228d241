"""Polling workers: run the jobs that SQL shows as due while Redis does not answer; a claim in SQL keeps them single."""

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rq.timeouts import JobTimeoutException, UnixSignalDeathPenalty

from core.domain.scheduling.due_jobs import Attempts
from core.domain.scheduling.job_kinds import JobKind
from core.notifications.job_queue import Due, Functions
from core.notifications.job_statistics import WorkerStatistics

logger = logging.getLogger(__name__)

#: Seconds between two polls of SQL that find nothing to do: in a resident worker, and with a forked process for each.
POLL, FORKED_POLL = 1.0, 5.0
#: Seconds between two attempts to reach Redis.
REDIS_RETRY = 2.0
#: Seconds after a job's timeout at which its process is killed, if the timeout's exception did not end it.
GRACE = 30.0


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
            penalty: Any = UnixSignalDeathPenalty  # RQ's; it has no types
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
        reader, writer = os.pipe()
        parent = os.getpid()
        if not (pid := os.fork()):
            code = 1
            try:
                os.close(reader)
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)  # its parent lets it end, or dies and takes it along
                self._prepare_fork(parent)
                if (id := self._next()) is not None:
                    os.write(writer, id.encode())
                    os.close(writer)
                    self._open_functions()[self._kind.name](id)
                code = 0
            except BaseException:
                logger.exception("a %s job failed", self._kind.name)
            finally:
                os._exit(code)
        os.close(writer)
        with open(reader, "rb") as pipe:
            found = pipe.read().decode()
        return found or None, _exit_code(pid, self._kind.timeout) != 0


def _exit_code(pid: int, timeout: float) -> int:
    """Wait for a child; kill it at the timeout in seconds."""
    descriptor = os.pidfd_open(pid)
    try:
        ended = select.poll()  # select.select takes no descriptor above 1,023
        ended.register(descriptor, select.POLLIN)
        if not ended.poll(timeout * 1000):
            logger.error("a job did not end at its timeout; its process %s is killed", pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(descriptor)
