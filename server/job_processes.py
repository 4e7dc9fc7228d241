"""Processes of the jobs role: worker processes for each kind of job, and one for maintenance, metrics and demand.

The role's own process has one thread and opens neither the database nor Redis, so that it can fork at any time. It
starts workers when jobs wait, restarts processes that fail, kills those whose job has passed its deadline, and touches
the role's liveness file.
"""

import gc
import logging
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.domain.scheduling.job_kinds import Due, Functions, JobKind
from core.notifications import job_maintenance, job_workers
from core.notifications.job_demand import DemandReader, JobDemand
from core.notifications.job_statistics import WorkerStatistics
from server.job_metrics import JobsCollector
from server.restart import decide_restart
from server.role_processes import die_with
from server.supervisor import exit_reason

logger = logging.getLogger(__name__)

#: Seconds between two passes over the processes.
INTERVAL = 1.0
#: Seconds that running jobs have to end after SIGTERM; less than the chart's terminationGracePeriodSeconds (60).
STOP_TIMEOUT = 45.0
#: Kinds of which one worker always waits: they are on the way to the first result and to the end of a simulation.
ALWAYS = frozenset({"stage", "collect"})
#: Seconds without a job after which any other worker ends; longer than the period of `sweep`, which remembers things.
IDLE = 120
#: Seconds between two looks at what waits, and seconds that jobs wait for running workers before another is started.
LOOK_INTERVAL, OVERDUE = 0.2, 0.3
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1)


@dataclass(kw_only=True, slots=True, eq=False)
class _Process:
    """A process that is kept running, or the pause before it is started again."""

    pid: int = 0
    started_at: float = 0.0
    due_at: float = 0.0
    failures: int = 0

    @property
    def label(self) -> str:
        """Return what logs call the process."""
        return "maintenance"


@dataclass(kw_only=True, slots=True, eq=False)
class _Worker(_Process):
    """A worker process. ``name``: that of the latest one, as RQ lists it; empty before the first.

    ``always``: it also waits for jobs. ``failed``: the latest one failed, and another has to take care of its job.
    """

    kind: JobKind
    statistics: WorkerStatistics
    always: bool
    name: str = ""
    failed: bool = False

    @property
    def label(self) -> str:
        """Return what logs call the process."""
        return self.kind.name


class JobProcesses:
    """Keeps the worker processes of all kinds running, until SIGTERM or SIGINT."""

    def __init__(
        self,
        url: str,
        kinds: Sequence[JobKind],
        open_functions: Callable[[], Functions],
        open_due: Callable[[], Due],
        beat: Callable[[], None],
        *,
        metrics_port: int = 0,
        stop_timeout: float = STOP_TIMEOUT,
    ) -> None:
        self._url = url
        self._kinds = kinds
        self._open_functions = open_functions
        self._open_due = open_due
        self._beat = beat
        self._metrics_port = metrics_port
        self._stop_timeout = stop_timeout
        self._demand = JobDemand(kinds, time.monotonic())
        self._workers = [
            _Worker(
                kind=kind, statistics=WorkerStatistics.of_kind(kind.name), always=number == 0 and kind.name in ALWAYS
            )
            for kind in kinds
            for number in range(kind.concurrency)
        ]
        self._processes = [_Process(), *self._workers]

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; then let running jobs end, and kill the rest."""
        gc.collect()
        gc.freeze()  # a collection in a forked process would copy every page that it shares with this one
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            while not self._pass(before):
                self._beat()
            self._stop()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _pass(self, mask: "set[signal.Signals] | set[int]") -> bool:
        """Start, reap and kill; wait for a signal; return whether the role is asked to end."""
        now = time.monotonic()
        for process in self._processes:
            if process.pid and isinstance(process, _Worker) and now > process.statistics.deadline:
                logger.error(
                    "a %s job did not end at its timeout; its process %s is killed", process.label, process.pid
                )
                process.statistics.deadline = float("inf")
                os.kill(process.pid, signal.SIGKILL)
            elif not process.pid and now >= process.due_at and self._is_wanted(process, now):
                self._start(process, mask)
        due = [process.due_at - now for process in self._processes if not process.pid and process.due_at > now]
        received = signal.sigtimedwait(_SIGNALS, max(0.0, min([self._interval(now), *due])))
        self._reap()
        return received is not None and received.si_signo in {signal.SIGTERM, signal.SIGINT}

    def _is_wanted(self, process: _Process, now: float) -> bool:
        """Return whether a process that does not run should."""
        if not isinstance(process, _Worker) or process.always or process.failed:
            return True
        name = process.kind.name
        running = [worker.started_at for worker in self._workers if worker.kind is process.kind and worker.pid]
        return is_another_wanted(
            waiting=self._demand.waiting(name, now),
            waiting_for=self._demand.seconds(name, now),
            youngest=now - max(running) if running else None,
        )

    def _interval(self, now: float) -> float:
        """Return the seconds until the next pass: soon, if jobs wait."""
        return OVERDUE if any(self._demand.waiting(kind.name, now) for kind in self._kinds) else INTERVAL

    def _start(self, process: _Process, mask: "set[signal.Signals] | set[int]") -> None:
        abandoned = ""
        if isinstance(process, _Worker):
            abandoned, process.name = process.name, job_workers.worker_name(process.kind)
            process.failed = False
        parent = os.getpid()
        if pid := os.fork():
            process.pid, process.started_at = pid, time.monotonic()
            return
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            die_with(parent)
            if isinstance(process, _Worker):
                if process.kind.memory is not None:
                    limit_memory(process.kind.memory)
                self._work(process, abandoned)
            else:
                self._maintain()
            code = 0
        except BaseException:
            logger.exception("a process of %s jobs failed", process.label)
        finally:
            os._exit(code)

    def _work(self, worker: _Worker, abandoned: str) -> None:
        """Run jobs; first give up the job of the worker before, whose name was ``abandoned``."""
        if abandoned:
            job_maintenance.abandon(self._url, worker.kind, abandoned)
        job_workers.work(
            self._url,
            job_workers.WorkerSpec(kind=worker.kind, name=worker.name, max_idle=None if worker.always else IDLE),
            self._open_functions,
            self._open_due,
            statistics=worker.statistics,
            prepare_fork=die_with,
        )

    def _maintain(self) -> None:
        """Run maintenance, look at what waits, and serve metrics, in a process that may have threads."""
        stop = False
        parent = os.getppid()

        def request_stop(*_: object) -> None:
            nonlocal stop
            stop = True

        signal.signal(signal.SIGTERM, request_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self._metrics_port:
            from core.notifications.redis_notifier import RedisNotifier
            from server.metrics_server import start

            statistics = [worker.statistics for worker in self._workers]
            start(self._metrics_port, [JobsCollector(RedisNotifier(self._url).job_counts, statistics)])
        maintenance = job_maintenance.JobMaintenance(self._url, self._kinds, self._open_due())
        reader = DemandReader(self._url, self._kinds, self._demand)

        def wait(seconds: float) -> bool:
            until = time.monotonic() + seconds
            while not stop and (left := until - time.monotonic()) > 0:
                if reader.read():
                    os.kill(parent, signal.SIGUSR1)
                time.sleep(min(left, LOOK_INTERVAL))
            return stop

        maintenance.run(wait)
        maintenance.close()
        reader.close()

    def _reap(self) -> None:
        """Record the ends of processes, and when each is started again."""
        for process in self._processes:
            if not process.pid:
                continue
            pid, status = os.waitpid(process.pid, os.WNOHANG)
            if not pid:
                continue
            now = time.monotonic()
            code = os.waitstatus_to_exitcode(status)
            process.pid = 0
            process.failures, pause = decide_restart(process.failures, uptime=now - process.started_at)
            process.due_at = now + pause
            if isinstance(process, _Worker):
                process.statistics.deadline = float("inf")
                process.failed = code != 0
                if not process.failed:  # it had no job for a while, or has lost Redis
                    continue
                process.statistics.ended += 1
            logger.warning(
                "the process of %s jobs ended (%s); it is started again in %.1f s",
                process.label,
                exit_reason(code),
                pause,
            )

    def _stop(self) -> None:
        """End every process: workers finish their jobs, until the time is over."""
        for number, ask in ((signal.SIGTERM, self._stop_timeout), (signal.SIGKILL, 5.0)):
            deadline = time.monotonic() + ask
            for process in self._processes:
                if process.pid:
                    os.kill(process.pid, number)
            while any(process.pid for process in self._processes) and time.monotonic() < deadline:
                signal.sigtimedwait({signal.SIGCHLD}, 0.5)
                self._beat()
                for process in self._processes:
                    if process.pid and os.waitpid(process.pid, os.WNOHANG)[0]:
                        process.pid = 0


def limit_memory(memory: int) -> None:
    """Let this process and those that it forks allocate ``memory`` bytes of data besides what it has (RLIMIT_DATA).

    More is a MemoryError. The hard limit stays, so that a confined program can set its own.
    """
    with open("/proc/self/statm", "rb") as file:
        pages = int(file.read().split()[5])
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def is_another_wanted(*, waiting: int | None, waiting_for: float, youngest: float | None) -> bool:
    """Return whether another worker of a kind should run beside those that do.

    ``waiting``: jobs that wait, None if that is not known, because Redis is away: then workers take jobs from SQL.
    ``waiting_for``: for how many seconds there have been any. ``youngest``: seconds since the latest worker was
    started, None if none runs. A worker that is idle takes a job at once, and a new one needs a moment.
    """
    if waiting is None:
        return True
    return waiting > 0 and (youngest is None or (waiting_for >= OVERDUE and youngest >= 2 * OVERDUE))
