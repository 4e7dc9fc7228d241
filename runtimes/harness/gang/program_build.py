"""Program build: a program's sources are compiled in a sandbox like its ranks', once for each digest on this machine.

Files that the build makes or changes in the folder of the model are kept, and laid over the model for each task. The
key of a build is made of all that its result depends on: the model, the command, and the packages.
"""

import fcntl
import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .delivered_files import Delivery, NotDeliverable
from .gang_nodes import SpreadTask
from .gang_task import FOLDER, GangEnd, GangTask, LaunchedProgram, LocalGangSpec
from .gang_transport import ReplicaLost
from .rank_ends import fault
from .sandboxed_task import SandboxedTask

#: Seconds that a build may take, and the builds that are kept on a machine: those that were used last.
PATIENCE, KEPT_BUILDS = 1800.0, 100


class BuildFailed(Exception):
    """The program cannot be compiled; says why, in the compiler's words."""


class ProgramBuild:
    """The build of a gang's program. ``digest``: of its model; ``builds``: the folder in which builds are kept;
    ``start``: starts the sandbox.
    """

    def __init__(
        self,
        gang: LocalGangSpec,
        model: str,
        digest: str,
        builds: str,
        start: Callable[[GangTask], SandboxedTask | SpreadTask],
    ) -> None:
        self._start = start
        alone = LaunchedProgram(launcher=(), environ={})
        self._gang = replace(gang, programs=[alone], command=gang.build, ranks=1, times=None, start="task")
        self._model = model
        self._builds = Path(builds)
        parts = [digest, gang.build, gang.packages, gang.python, gang.name]
        self._kept = self._builds / hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def folder(self, scratch: str, control: socket.socket) -> str:
        """Return the folder of what the build makes; build it unless it is there.

        ``scratch``: a folder for files meanwhile. Raise BuildFailed, GangStopped or ReplicaLost.
        """
        if not self._kept.is_dir():
            with tempfile.TemporaryDirectory(prefix="build-", dir=scratch, ignore_cleanup_errors=True) as folder:
                delivery = self._run(folder, control)
                try:
                    self._keep(delivery)
                finally:
                    delivery.close()
            self._remove_old()
        os.utime(self._kept)
        return str(self._kept)

    def _run(self, folder: str, control: socket.socket) -> Delivery:
        """Run the command in a sandbox; return the files that it made."""
        os.chmod(folder, 0o755)
        confinement = self._gang.confinement([self._model])
        task = GangTask(
            gang=self._gang,
            confinement=confinement,
            model=self._model,
            scenario={},
            folder=f"{folder}/own" if confinement is None else FOLDER,
            builds=True,
        )
        with self._start(task) as sandboxed:
            message = sandboxed.listen(control, time.monotonic() + PATIENCE, Delivery.close)
            if message is None:
                raise BuildFailed(f"the build took longer than {PATIENCE:g} s")
            if not message:
                raise ReplicaLost(f"the sandbox of the build ended: {sandboxed.ending}")
            try:
                end = GangEnd.of(message)
            except ValueError as error:
                raise ReplicaLost(f"the sandbox of the build told something else than its end: {error}") from None
            problem = end.problem or fault(end.ranks, 1, end.status) or sandboxed.problem or sandboxed.delivered.problem
            if problem is not None:
                sandboxed.delivered.close()
                raise BuildFailed(
                    f"the program is not compiled: {problem.replace('rank 0', ' '.join(self._gang.command))}"
                )
            return sandboxed.delivered

    def _keep(self, delivery: Delivery) -> None:
        """Write the files of a build to their place, all at once. Raise BuildFailed if they cannot be read."""
        self._builds.mkdir(parents=True, exist_ok=True)
        with open(self._builds / ".lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._remove_drafts()
            self._write(delivery)

    def _remove_drafts(self) -> None:
        """Remove what processes have left behind that were killed while they held the lock."""
        for draft in self._builds.glob(".draft-*"):
            shutil.rmtree(draft, ignore_errors=True)

    def _write(self, delivery: Delivery) -> None:
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=self._builds))
        try:
            draft.chmod(0o755)
            for file in delivery.files:
                path = draft / file.path.partition("/")[2]
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "wb") as target:
                    for chunk in file.chunks():
                        target.write(chunk)
                path.chmod(0o755 if os.fstat(file.descriptor).st_mode & 0o100 else 0o644)
            for place, _, _ in os.walk(draft):
                os.chmod(place, 0o755)
            draft.rename(self._kept)
        except NotDeliverable as error:
            raise BuildFailed(str(error)) from None
        except OSError:
            if not self._kept.is_dir():  # else another launch was faster
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _remove_old(self) -> None:
        """Remove the builds that were not used for the longest time."""
        kept = [path for path in self._builds.iterdir() if not path.name.startswith(".")]
        for path in sorted(kept, key=lambda path: path.stat().st_mtime)[:-KEPT_BUILDS]:
            shutil.rmtree(path, ignore_errors=True)
