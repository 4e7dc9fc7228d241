"""Slurm's own commands, each with a time-out and without the platform's environment."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from errors import PlatformError
from workers.executors.slurm.jobs import JOBS, NODES, Job, read_free_resources, read_jobs
from workers.executors.slurm.status_tables import TRANSIENT_ERRORS

#: Taken along from our environment. sbatch hands a job all that it has itself, and secrets have no business there.
KEPT_VARIABLES = ("HOME", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "TZ", "USER")
#: So many jobs are cancelled by one command.
BATCH = 500


class Commands:
    """A Slurm cluster by its commands. OSError: it does not answer."""

    def __init__(self, conf: str, partition: str, patience: float) -> None:
        self._partition = partition
        self._patience = patience
        self._environ = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | {
            "LC_ALL": "C.UTF-8"
        }
        if conf:
            self._environ["SLURM_CONF"] = conf

    def sbatch(self, folder: Path, script: str, arguments: list[str]) -> str:
        """Submit a script from a folder; return the job's id. Raise a PlatformError if Slurm will not have it."""
        command = ["sbatch", "--parsable", f"--chdir={folder}", *arguments]
        done = self._run(command, script)
        if done.returncode == 0:
            return done.stdout.strip().partition(";")[0]
        message = error_text(done.stderr)
        if any(sign in message for sign in TRANSIENT_ERRORS):
            raise OSError(f"Slurm does not take jobs now: {message}")
        raise PlatformError(f"Slurm refused the job: {message}")

    def squeue(self, folder: Path) -> list[Job]:
        """Return every job of ours under a folder that Slurm still knows, ended ones too, by one call."""
        jobs = read_jobs(self._ask("squeue", "--me", "--noheader", "--array", "--states=all", f"--Format={JOBS}"))
        return [job for job in jobs if Path(job.folder).parent == folder]

    def scancel(self, jobs: list[Job]) -> None:
        """Cancel jobs; those that have ended meanwhile are no error."""
        for start in range(0, len(jobs), BATCH):
            done = self._run(["scancel", "--quiet", *(job.handle for job in jobs[start : start + BATCH])])
            if done.returncode != 0 and any(sign in done.stderr for sign in TRANSIENT_ERRORS):
                raise OSError(f"Slurm does not cancel jobs now: {error_text(done.stderr)}")

    def sinfo(self) -> tuple[int, int]:
        """Return idle cores and free bytes."""
        where = [f"--partition={self._partition}"] if self._partition else []
        return read_free_resources(self._ask("sinfo", "--noheader", "--Node", f"--Format={NODES}", *where))

    def _ask(self, *command: str) -> str:
        done = self._run(list(command))
        if done.returncode != 0:
            raise OSError(f"Slurm does not answer: {error_text(done.stderr)}")
        return done.stdout

    def _run(self, command: list[str], stdin: str = "") -> "subprocess.CompletedProcess[str]":
        environ: Mapping[str, str] = self._environ
        try:
            return subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=self._patience, env=environ, check=False
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{command[0]} had no answer within {self._patience:g} s") from None


def error_text(stderr: str) -> str:
    """Return what a command complained of, in one line."""
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ").strip() for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line)) or "no word"
