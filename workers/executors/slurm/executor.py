"""Slurm executor: a launch is a job array of runners, with a folder on the shared file system for its documents."""

import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from string import Template
from typing import Any

from common.errors import NotPrepared, Unsupported
from core.domain.scheduling.launches import PACKAGED, Launch, LaunchStatus, Phase
from datasets.versions.program_files import files_of
from workers.executors.slurm.commands import Commands
from workers.executors.slurm.folders import Folders
from workers.executors.slurm.jobs import NODES, PREFIX, Job, SlurmOptions, arguments, array_of, launch_status
from workers.local_gangs import gang_packages
from workers.warm_runners import PreparedFolders, WarmKind, own_environment, worker_spec_for

SOURCE = Path(__file__).parents[3]
#: Placeholder in the launch document that job.sh replaces with the runner's array task id.
TASK = "%TASK%"
#: Starts a process on each node of a job; arguments follow, and the node's number is the last one.
START = (
    "srun --ntasks-per-node=1 --mpi=none --unbuffered --kill-on-bad-exit=1 --overlap sh -c"
    """ 'exec {python} -m runtimes.harness.gang.gang_node "$@" "$SLURM_NODEID"' sh"""
)


class SlurmExecutor:
    """Runs one platform's launches on one Slurm cluster. All state is in Slurm and in the launches' folders.

    ``folder`` contains the launches' folders, ``prepared`` has what staging prepared.
    """

    def __init__(self, name: str, options: SlurmOptions, folder: Path, *, prepared: PreparedFolders) -> None:
        self.name = name
        self._options = options
        self._prepared = prepared
        self._folders = Folders(folder)
        self._commands = Commands(options.conf, options.patience)
        self._template = Template(Path(options.template or Path(__file__).with_name("job.sh")).read_text())

    def submit(self, launch: Launch) -> None:
        """Write the launch's folder and submit its job array; no-op if that was done before."""
        with self._folders.locked():
            if self._folders.submitted(launch.id):
                return
            # A previous submission may have been accepted by Slurm, but ended before it recorded that.
            if launch.id not in self._jobs():
                sbatch_arguments = arguments(launch, self._options)
                self._folders.write(launch.id, self._document(launch), launch.token, sbatch_arguments)
                try:
                    self._sbatch(launch.id, sbatch_arguments, range(launch.workers if launch.gang is None else 1))
                except OSError:
                    raise  # the job may have been accepted: the next submission and a cancellation query Slurm first
                except BaseException:
                    self._folders.remove(launch.id)
                    raise
            self._folders.note_submitted(launch.id)

    def observe(self, ids: Iterable[str]) -> Mapping[str, LaunchStatus]:
        """Return statuses from one squeue call and the launches' folders."""
        submitted = [id for id in ids if self._folders.submitted(id)]
        jobs = self._jobs() if submitted else {}
        return {id: self._status(id, jobs.get(id, [])) for id in submitted}

    def cancel(self, launch_id: str) -> None:
        """Cancel the launch's jobs, whatever its folder records, then remove the folder."""
        self._scancel(self._jobs().get(launch_id, []))
        self._folders.remove(launch_id)

    def resize(self, launch_id: str, workers: int) -> None:
        """Submit further runners, or cancel those with the highest task ids."""
        with self._folders.locked():
            if not self._folders.submitted(launch_id):
                return
            if any(argument.startswith(NODES) for argument in self._folders.arguments(launch_id)):
                raise Unsupported("The size of a gang cannot change. Cancel the simulation and submit it again.")
            jobs, task_records = self._jobs().get(launch_id, []), self._folders.task_records(launch_id)
            active = [job for job in unfinished(jobs) if job.task is not None and job.task not in task_records.exits]
            missing = workers - len(active)
            if missing > 0:
                first = 1 + max({job.task for job in jobs if job.task is not None} | task_records.started, default=-1)
                self._sbatch(launch_id, self._folders.arguments(launch_id), range(first, first + missing))
            elif missing < 0:
                surplus = sorted(active, key=lambda job: job.task or 0)[missing:]
                for job in surplus:
                    self._folders.note_dismissed(launch_id, job.task or 0)
                self._scancel(surplus)

    def orphans(self, known: Collection[str]) -> Sequence[str]:
        """Return launches that have a folder or an unfinished job here and are not in ``known``."""
        active = {id for id, jobs in self._jobs().items() if any(job.state != "COMPLETING" for job in unfinished(jobs))}
        return sorted((self._folders.all() | active) - set(known))

    # -- internals

    def _jobs(self) -> dict[str, list[Job]]:
        """Return the jobs of each launch, from one squeue call."""
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
        """Return the launch document of standalone_runner.py; job.sh puts each runner's task id in."""
        if launch.gang is not None:
            return self._gang_document(launch)
        kind = WarmKind.of(launch)
        # Sandbox level 0: the runner determines the best level on its node.
        spec = worker_spec_for(kind, self._prepared, 0 if self._options.sandbox else None)
        if spec is None:
            raise NotPrepared(
                f"The environments of runtime {kind.runtime}, or the scenarios of dataset {kind.dataset}, are not in"
                " the shared folder; they are staged again."
            )
        return {
            "id": launch.id,
            "url": self._options.runner_api_url or launch.url,
            "token_file": str(self._folders.of(launch.id) / "token"),
            "workers": 1,
            "worker_spec": spec.describe(),
            "files": str(self._folders.of(launch.id) / f"task.{TASK}" / "files"),
            "name": TASK,
        }

    def _gang_document(self, launch: Launch) -> dict[str, object]:
        """Return the launch document of gang_job.py."""
        folder, prepared = self._folders.of(launch.id), self._prepared
        if launch.gang is not None and launch.gang.nodes > 1 and not self._options.gang_network:
            raise Unsupported("Gangs of several nodes are not allowed here (`gang_network`).")
        environment = own_environment(launch.environment, prepared.cache) if launch.environment else None
        packaged = launch.gang is not None and launch.gang.communication == PACKAGED
        missing = environment is None if packaged else gang_packages(launch, prepared.environments, environment) is None
        data = files_of(prepared.plays, launch.play) if launch.play else None
        if missing or (launch.environment and environment is None) or (launch.play and data is None):
            raise NotPrepared(
                f"What the program of simulation {launch.simulation_id} needs is not in the shared folder; it is staged"
                " again."
            )
        return {
            "launch": {**asdict(launch), "token": "", "url": self._options.runner_api_url or launch.url},
            "token_file": str(folder / "token"),
            "folder": str(folder / f"task.{TASK}"),
            "environments": str(prepared.environments),
            "environment": None if environment is None else str(environment),
            "data": None if data is None else str(data),
            "builds": str(prepared.builds),
            "level": 3 if self._options.sandbox else 0,
        }

    def _sbatch(self, launch_id: str, sbatch_arguments: Sequence[str], tasks: Iterable[int]) -> None:
        array = f"--array={array_of(tasks)}"
        gang = any(argument.startswith(NODES) for argument in sbatch_arguments)
        self._commands.sbatch(self._folders.of(launch_id), self.script(gang=gang), [*sbatch_arguments, array])

    def script(self, *, gang: bool = False) -> str:
        """Return the batch script of every job of this executor."""
        python = shlex.quote(self._options.python or sys.executable)
        return self._template.substitute(
            program="workers.gang_job" if gang else "workers.standalone_runner",
            start=f" {START.format(python=python)}" if gang else "",
            python=python,
            source=shlex.quote(str(SOURCE)),
            prolog=self._options.prolog,
        )

    def _scancel(self, jobs: Iterable[Job]) -> None:
        if remaining := unfinished(jobs):
            self._commands.scancel(remaining)


def unfinished(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs that have not ended."""
    return [job for job in jobs if job.phase is not Phase.ENDED]
