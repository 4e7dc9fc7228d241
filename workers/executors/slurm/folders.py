"""Launch folders of the Slurm executor: documents for runners, exit codes and logs, on the shared file system."""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.executors.slurm.jobs import TaskRecords


class Folders:
    """One folder per launch."""

    def __init__(self, home: Path) -> None:
        self.home = home.resolve()
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)

    def of(self, launch_id: str) -> Path:
        """Return a launch's folder."""
        return self.home / launch_id

    def all(self) -> set[str]:
        """Return the launches that have a folder."""
        return {path.name for path in self.home.iterdir() if path.is_dir()}

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold a lock so that only one process submits at a time: two could both find no job, and both submit one."""
        lock = os.open(self.home / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def write(self, launch_id: str, config: Mapping[str, Any], token: str, arguments: Sequence[str]) -> None:
        """Write the launch document, the token in a file of its own, and sbatch's arguments."""
        folder = self.of(launch_id)
        folder.mkdir(mode=0o700, exist_ok=True)
        secret = os.open(folder / "token", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(secret, "w") as file:
            file.write(token)
        (folder / "launch.json").write_text(json.dumps(config))
        (folder / "arguments.json").write_text(json.dumps(list(arguments)))

    def arguments(self, launch_id: str) -> list[str]:
        """Return sbatch's arguments for the launch."""
        arguments: list[str] = json.loads((self.of(launch_id) / "arguments.json").read_bytes())
        return arguments

    def submitted(self, launch_id: str) -> bool:
        """Return whether it is recorded that Slurm has accepted the launch."""
        return (self.of(launch_id) / "submitted").exists()

    def note_submitted(self, launch_id: str) -> None:
        """Record that Slurm has accepted the launch."""
        (self.of(launch_id) / "submitted").touch()

    def note_dismissed(self, launch_id: str, task: int) -> None:
        """Record that the platform cancels this runner."""
        (self.of(launch_id) / f"dismissed.{task}").touch()

    def task_records(self, launch_id: str) -> TaskRecords:
        """Return the tasks that have started, their exit codes, and the dismissed tasks."""
        started, exits, dismissed = set(), {}, set()
        with contextlib.suppress(FileNotFoundError):  # the launch may have been cancelled in the meantime
            for path in self.of(launch_id).iterdir():
                kind, _, number = path.name.partition(".")
                if kind == "task" and number.isdecimal():
                    started.add(int(number))
                    with contextlib.suppress(FileNotFoundError, ValueError):
                        exits[int(number)] = int((path / "exit").read_text())
                elif kind == "dismissed":
                    dismissed.add(int(number))
        return TaskRecords(started=frozenset(started), exits=exits, dismissed=frozenset(dismissed))

    def last_log_line(self, launch_id: str) -> str:
        """Return the last line of the log that was written last."""
        logs = sorted(self.of(launch_id).glob("runner.*.log"), key=lambda path: path.stat().st_mtime)
        for path in reversed(logs):
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - 2000))
                lines = file.read().decode(errors="replace").split("\n")
            if text := next((line.strip() for line in reversed(lines) if line.strip()), ""):
                return text[:300]
        return ""

    def remove(self, launch_id: str) -> None:
        """Remove a launch's folder."""
        shutil.rmtree(self.of(launch_id), ignore_errors=True)
