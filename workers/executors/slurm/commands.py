"""Slurm's commands (sbatch, squeue, scancel), each with a time-out and a minimal environment."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from common.errors import PlatformError
from workers.executors.slurm.jobs import JOBS, Job, read_jobs
from workers.executors.slurm.status_tables import TRANSIENT_ERRORS

#: Variables that the commands inherit. sbatch passes its environment on to jobs, which must not get secrets.
KEPT_VARIABLES = ("HOME", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "TZ", "USER")
#: Jobs per scancel command.
BATCH = 500


class Commands:
    """Client of a Slurm cluster. Methods raise OSError if Slurm is unavailable, also after ``patience`` seconds."""

    def __init__(self, conf: str, patience: float) -> None:
        self._patience = patience
        self._environ = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | {
            "LC_ALL": "C.UTF-8"
        }
        if conf:
            self._environ["SLURM_CONF"] = conf

    def sbatch(self, folder: Path, script: str, arguments: list[str]) -> str:
        """Submit a script from a folder; return the job's id. Raise PlatformError if Slurm rejects it."""
        command = ["sbatch", "--parsable", f"--chdir={folder}", *arguments]
        done = self._run(command, script)
        if done.returncode == 0:
            return done.stdout.strip().partition(";")[0]
        message = error_text(done.stderr)
        if any(error in message for error in TRANSIENT_ERRORS):
            raise OSError(f"sbatch is temporarily unavailable: {message}")
        raise PlatformError(f"sbatch rejected the job: {message}")

    def squeue(self, folder: Path) -> list[Job]:
        """Return this user's jobs with a working directory in ``folder``, also ended ones that Slurm still knows."""
        done = self._run(["squeue", "--me", "--noheader", "--array", "--states=all", f"--Format={JOBS}"])
        if done.returncode != 0:
            raise OSError(f"squeue failed: {error_text(done.stderr)}")
        return [job for job in read_jobs(done.stdout) if Path(job.folder).parent == folder]

    def scancel(self, jobs: list[Job]) -> None:
        """Cancel jobs; a job that has ended in the meantime is not an error."""
        for start in range(0, len(jobs), BATCH):
            done = self._run(["scancel", "--quiet", *(job.handle for job in jobs[start : start + BATCH])])
            if done.returncode != 0 and any(error in done.stderr for error in TRANSIENT_ERRORS):
                raise OSError(f"scancel is temporarily unavailable: {error_text(done.stderr)}")

    def _run(self, command: list[str], stdin: str = "") -> "subprocess.CompletedProcess[str]":
        environ: Mapping[str, str] = self._environ
        try:
            return subprocess.run(
                command, input=stdin, capture_output=True, text=True, timeout=self._patience, env=environ, check=False
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"{command[0]} did not finish within {self._patience:g} s (the executor's option `patience`)"
            ) from None


def error_text(stderr: str) -> str:
    """Return a command's error messages on one line."""
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ").strip() for line in stderr.splitlines()]
    return "; ".join(dict.fromkeys(line for line in lines if line)) or "no error message"
