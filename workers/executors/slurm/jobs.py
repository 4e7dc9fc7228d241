"""Slurm jobs as values: sbatch's arguments for a launch, parsing of squeue, and the launch status of jobs."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from core.domain.scheduling.launches import Launch, LaunchStatus, Note, Phase
from runtimes.harness.runner.runner import STOPPED
from workers.executors.slurm.status_tables import ENDINGS, REASONS, STATES, UNKNOWN_ENDING, PendingReason

#: Prefix of job names. Platforms that share a cluster are told apart by the jobs' working directories.
PREFIX = "wt-"
#: Columns of squeue, each followed by a bar: unlike Slurm's JSON, they are the same in every release.
JOBS = "ArrayJobID:|,ArrayTaskID:|,Name:|,State:|,exit_code:|,Reason:|,WorkDir:|"
#: Argument of sbatch that only gangs have.
NODES = "--nodes="
#: Bytes of a runner in addition to its evaluator and model server, and seconds for the delivery of the last results.
RUNNER_MEMORY, DRAIN_SECONDS = 256 << 20, 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmOptions:
    """Options of a Slurm executor. ``account`` and ``wckey`` may contain ``{project}``.

    ``folder`` contains the launches' folders, on a file system that the nodes mount at the same path, like the
    environments and the platform's source. ``minutes`` is a job's longest run time; 0: the partition's limit. ``gres``
    maps resource names to Slurm's. Without ``sandbox``, models run with the platform user's permissions: only where
    every model is trusted. ``patience``: seconds that a Slurm command may take. ``gang_network``: gangs may have
    several nodes, whose network is then open to their programs.
    """

    conf: str = ""
    folder: str = ""
    runner_api_url: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    wckey: str = ""
    reservation: str = ""
    constraint: str = ""
    minutes: int = 0
    python: str = ""
    prolog: str = ""
    sandbox: bool = True
    template: str = ""
    patience: float = 15.0
    gang_network: bool = False
    gres: Mapping[str, str] = field(default_factory=lambda: {"nvidia.com/gpu": "gpu", "amd.com/gpu": "gpu"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A task of a job array, as squeue reports it; ``task`` is None if it was cancelled before its task id existed."""

    id: str  # the array's
    task: int | None
    name: str
    state: str
    exit: int
    reason: str
    folder: str

    @property
    def phase(self) -> Phase:
        return STATES.get(self.state, Phase.ENDED)

    @property
    def handle(self) -> str:
        """The job's id for scancel."""
        return self.id if self.task is None else f"{self.id}_{self.task}"


@dataclass(frozen=True, slots=True)
class TaskRecords:
    """Records in a launch's folder: tasks that started, exit codes by task, tasks that the platform dismissed."""

    started: frozenset[int] = frozenset()
    exits: Mapping[int, int] = field(default_factory=dict)
    dismissed: frozenset[int] = frozenset()

    def by_themselves(self) -> frozenset[int]:
        """Return the tasks that ended by themselves: not because a signal asked them to stop."""
        return frozenset(task for task, code in self.exits.items() if code != STOPPED)


def array_of(tasks: Iterable[int]) -> str:
    """Return task ids in the syntax of sbatch's --array: ``0-2,5``."""
    parts: list[list[int]] = []
    for task in sorted(tasks):
        if parts and parts[-1][-1] == task - 1:
            parts[-1][1:] = [task]
        else:
            parts.append([task])
    return ",".join("-".join(map(str, part)) for part in parts)


def arguments(launch: Launch, options: SlurmOptions) -> list[str]:
    """Return sbatch's options except --array. In the script, a project's name could inject further options."""
    placement = launch.placement
    shares = 1 if launch.gang is None else launch.gang.size // launch.gang.nodes  # replicas on a node
    labels = {"project": launch.project, "simulation": launch.simulation_id, "attempt": launch.attempt}
    minutes = [options.minutes] if options.minutes else []
    if launch.timeout is not None:
        minutes.append(math.ceil((launch.timeout + DRAIN_SECONDS) / 60))
    gres = [f"{options.gres.get(key, key.rpartition('/')[2])}:{count}" for key, count in placement.resources.items()]
    sbatch_options = {
        "job-name": PREFIX + launch.id,
        "comment": ";".join(f"{key}={value}" for key, value in labels.items()),
        "cpus-per-task": math.ceil(placement.cpu * shares),
        "mem": f"{math.ceil((placement.memory * shares + RUNNER_MEMORY) / (1 << 20))}M",
        "time": min(minutes, default=""),
        "partition": placement.queue or options.partition,
        "qos": placement.priority or options.qos,
        "account": options.account.format(project=launch.project),
        "wckey": options.wckey.format(project=launch.project),
        "reservation": options.reservation,
        "constraint": options.constraint,
        "gres": ",".join(sorted(gres)),
        "output": "runner.%a.log",
        "open-mode": "append",
    }
    nodes = ["--ntasks=1"]
    if launch.gang is not None:
        count = launch.gang.nodes
        nodes = [f"{NODES}{count}", f"--ntasks={count}", "--ntasks-per-node=1"]
    return [*nodes, "--no-requeue", *(f"--{key}={value}" for key, value in sbatch_options.items() if value != "")]


def read_jobs(text: str) -> list[Job]:
    """Parse squeue's output."""
    jobs = []
    for line in text.splitlines():
        id, task, name, state, exit, reason, folder = (part.strip() for part in line.split("|")[:7])
        number = int(task) if task.isdecimal() else None
        jobs.append(
            Job(
                id=id,
                task=number,
                name=name,
                state=state,
                exit=exit_code(exit),
                reason=reason,
                folder=folder,
            )
        )
    return jobs


def exit_code(value: str) -> int:
    """Parse squeue's exit code: a wait status, or ``code:signal`` in newer releases."""
    if ":" in value:
        code, _, number = value.partition(":")
        return int(code) or (128 + int(number) if int(number) else 0)
    status = int(value) if value.isdecimal() else 0
    return 128 + (status & 0x7F) if status & 0x7F else status >> 8


def launch_status(launch_id: str, jobs: Iterable[Job], records: TaskRecords) -> LaunchStatus:
    """Return a launch's status from its jobs and records: the most advanced phase among its unfinished tasks."""
    counted = [job for job in jobs if job.phase is not Phase.ENDED or job.task not in records.dismissed]
    # A task that has recorded its exit code has ended, even if Slurm still cleans up after it. One that a signal has
    # stopped has not: only the job's last state tells why.
    ended = records.by_themselves()
    unfinished = [job for job in counted if job.phase is not Phase.ENDED and job.task not in ended]
    pending = {job.reason: pending_state for job in unfinished if (pending_state := pending_reason(job)) is not None}
    notes = tuple(
        Note(key=reason, message=f"The job is pending in Slurm: {pending_state.message}.")
        for reason, pending_state in sorted(pending.items())
    )
    for phase in (Phase.RUNNING, Phase.STARTING, Phase.SUSPENDED):
        if any(job.phase is phase for job in unfinished):
            message = next((pending_state.message for pending_state in pending.values() if pending_state.never), None)
            if phase is Phase.SUSPENDED and message is not None:
                return LaunchStatus(id=launch_id, phase=Phase.ENDED, reason=message, notes=notes, hopeless=True)
            return LaunchStatus(id=launch_id, phase=phase, notes=notes + lost_runner_notes(counted))
    exit, reason = exit_of(counted, records)
    return LaunchStatus(id=launch_id, phase=Phase.ENDED, exit=exit, reason=reason)


def pending_reason(job: Job) -> PendingReason | None:
    """Return why a job is pending; None if it is not, or Slurm gives no reason."""
    if job.phase is not Phase.SUSPENDED or job.reason in {"", "None"}:
        return None
    prefixes = [prefix for prefix in REASONS if job.reason.startswith(prefix)]
    return REASONS[max(prefixes, key=len)] if prefixes else PendingReason(f"Slurm's reason is {job.reason}")


def lost_runner_notes(jobs: Iterable[Job]) -> tuple[Note, ...]:
    """Return notes on runners that Slurm ended while others continue, which take over their work."""
    lost = [job for job in jobs if job.state in ENDINGS and job.task is not None]
    return tuple(
        Note(key=f"{job.state} {job.task}", message=f"Runner {job.task} was lost: {ENDINGS[job.state]}.")
        for job in lost
    )


def exit_of(jobs: Iterable[Job], records: TaskRecords) -> tuple[int | None, str | None]:
    """Return exit code and reason of a launch whose tasks have ended: Slurm's reason, else the largest exit code.

    Slurm's reason counts too for a task that Slurm has asked to stop and that did so before it was killed.
    """
    exits = {task: code for task, code in records.exits.items() if task not in records.dismissed}
    ended = records.by_themselves()
    unexplained = [job for job in jobs if job.task not in ended]
    for job in unexplained:
        if job.state in ENDINGS:
            return job.exit or None, ENDINGS[job.state]
    codes = [*exits.values(), *(job.exit for job in unexplained if job.task not in exits)]
    if not codes:
        return None, UNKNOWN_ENDING
    worst = max(codes)
    return worst, f"it exited with code {worst}" if worst else None
