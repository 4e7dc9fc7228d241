"""The executor port on Slurm: a launch is an array of runners, its folder what both sides know of it."""

import shlex
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any

from core.domain.launches import Launch, LaunchStatus, Phase
from errors import PlatformError, Unsupported
from workers.executors.slurm.commands import Commands
from workers.executors.slurm.folders import Folders
from workers.executors.slurm.jobs import PREFIX, Job, SlurmOptions, arguments, array_of, launch_status
from workers.warm_runners import Kind, kit_for

SOURCE = Path(__file__).parents[3]
#: Stands for the number of a runner in what all of a launch read.
TASK = "%TASK%"
#: Seconds between two looks at a log that is still being written, and between two questions whether it still is.
LOG_POLL, QUEUE_POLL = 0.5, 5.0


class SlurmExecutor:
    """Launches of one platform on one Slurm cluster. Nothing is remembered but in launches' folders and in Slurm."""

    def __init__(self, name: str, options: SlurmOptions, folder: Path, environments: Path, plays: Path) -> None:
        self.name = name
        self._options = options
        self._environments = environments.resolve()
        self._plays = plays.resolve()
        self._folders = Folders(folder)
        self._commands = Commands(options.conf, options.partition, options.patience)
        self._template = Template(Path(options.template or Path(__file__).with_name("job.sh")).read_text())

    def submit(self, launch: Launch) -> None:
        """Write the launch's folder, then submit it, unless that was done before."""
        if launch.gang is not None:
            raise Unsupported("Gangs are not run on Slurm; choose another executor.")
        with self._folders.locked():
            if self._folders.submitted(launch.id):
                return
            # It may have been taken by a submission that did not live to note it.
            if launch.id not in self._jobs():
                sbatch_arguments = arguments(launch, self._options)
                self._folders.write(launch.id, self._document(launch), launch.token, sbatch_arguments)
                try:
                    self._sbatch(launch.id, sbatch_arguments, range(launch.workers))
                except OSError:
                    raise  # perhaps it was taken all the same: who comes again looks first, and cancelling looks too
                except BaseException:
                    self._folders.remove(launch.id)
                    raise
            self._folders.note_submitted(launch.id)

    def observe(self, ids: Iterable[str]) -> Mapping[str, LaunchStatus]:
        """Bring together what one look at the queue tells and what lies in the launches' folders."""
        submitted = [id for id in ids if self._folders.submitted(id)]
        jobs = self._jobs() if submitted else {}
        return {id: self._status(id, jobs.get(id, [])) for id in submitted}

    def cancel(self, launch_id: str) -> None:
        """Cancel its jobs, whatever its folder tells of them, then remove the folder."""
        self._scancel(self._jobs().get(launch_id, []))
        self._folders.remove(launch_id)

    def logs(self, launch_id: str, replica: int) -> Iterator[bytes]:
        """Yield a runner's output as Slurm writes it into the folder."""
        offset, sbatch_arguments = 0, time.monotonic()
        while True:
            # Asked before the look: what is written between the two is found by it.
            ended = not self._folders.submitted(launch_id) or replica in self._folders.task_records(launch_id).exits
            if not ended and time.monotonic() - sbatch_arguments > QUEUE_POLL:
                sbatch_arguments = time.monotonic()
                ended = all(job.task != replica for job in unfinished(self._jobs().get(launch_id, [])))
            piece = self._folders.log(launch_id, replica, offset)
            if piece:
                offset += len(piece)
                yield piece
            elif ended:
                return
            else:
                time.sleep(LOG_POLL)

    def capacity(self) -> Mapping[str, int]:
        """Return what no job holds, less what jobs of ours wait for."""
        # In this order: a job that starts in between is counted twice rather than not at all.
        waiting = [job for jobs in self._jobs().values() for job in jobs if job.phase is Phase.SUSPENDED]
        cores, memory = self._commands.sinfo()
        return {
            "cpu": max(0, cores - sum(job.cpus for job in waiting)),
            "memory": max(0, memory - sum(job.memory for job in waiting)),
        }

    def resize(self, launch_id: str, workers: int) -> None:
        """Submit further runners, or cancel those with the highest numbers."""
        with self._folders.locked():
            if not self._folders.submitted(launch_id):
                return
            jobs, task_records = self._jobs().get(launch_id, []), self._folders.task_records(launch_id)
            at_work = [job for job in unfinished(jobs) if job.task is not None and job.task not in task_records.exits]
            lacking = workers - len(at_work)
            if lacking > 0:
                first = 1 + max({job.task for job in jobs if job.task is not None} | task_records.began, default=-1)
                self._sbatch(launch_id, self._folders.arguments(launch_id), range(first, first + lacking))
            elif lacking < 0:
                doomed = sorted(at_work, key=lambda job: job.task or 0)[lacking:]
                for job in doomed:
                    self._folders.note_dismissed(launch_id, job.task or 0)
                self._scancel(doomed)

    def orphans(self, known: Collection[str]) -> Sequence[str]:
        """Return launches that have a folder or a living job here and are not known."""
        at_work = {
            id for id, jobs in self._jobs().items() if any(job.state != "COMPLETING" for job in unfinished(jobs))
        }
        return sorted((self._folders.all() | at_work) - set(known))

    # -- what these are made of

    def _jobs(self) -> dict[str, list[Job]]:
        """Look at the queue, once; return the jobs of each launch."""
        jobs_by_launch: dict[str, list[Job]] = {}
        for job in self._commands.squeue(self._folders.home):
            if job.name.startswith(PREFIX):
                jobs_by_launch.setdefault(job.name.removeprefix(PREFIX), []).append(job)
        return jobs_by_launch

    def _status(self, id: str, jobs: list[Job]) -> LaunchStatus:
        status = launch_status(id, jobs, self._folders.task_records(id))
        if status.exit and (last_line := self._folders.last_log_line(id)):
            return replace(status, reason=f"{status.reason} ({last_line})")
        return status

    def _document(self, launch: Launch) -> dict[str, Any]:
        """Return what every runner of a launch reads; each puts its own number in."""
        kind = Kind(launch.runtime, launch.format, launch.dataset, launch.version, launch.play)
        # Level 0: what a node can confine is seen there.
        kit = kit_for(kind, self._environments, 0 if self._options.sandbox else None, self._plays)
        if kit is None:
            raise PlatformError(f"The environments for {kind.runtime} and {kind.dataset} are not ready.")
        return {
            "id": launch.id,
            "url": self._options.runner_api_url or launch.url,
            "token_file": str(self._folders.of(launch.id) / "token"),
            "workers": 1,
            "kit": kit.describe(),
            "files": str(self._folders.of(launch.id) / f"task.{TASK}" / "files"),
            "name": TASK,
        }

    def _sbatch(self, launch_id: str, sbatch_arguments: Sequence[str], tasks: Iterable[int]) -> None:
        array = f"--array={array_of(tasks)}"
        self._commands.sbatch(self._folders.of(launch_id), self.script(), [*sbatch_arguments, array])

    def script(self) -> str:
        """Return the script that every job of this executor runs."""
        return self._template.substitute(
            python=shlex.quote(self._options.python or sys.executable),
            source=shlex.quote(str(SOURCE)),
            prolog=self._options.prolog,
        )

    def _scancel(self, jobs: Iterable[Job]) -> None:
        if alive := unfinished(jobs):
            self._commands.scancel(alive)


def unfinished(jobs: Iterable[Job]) -> list[Job]:
    """Return those that have not ended."""
    return [job for job in jobs if job.phase is not Phase.ENDED]
