"""Pods of a gang without a cluster: its runner, and replicas with what a restricted pod has, on this machine.

A replica has its own user, no capabilities, and its own namespaces for mounts, processes, IPC and names; /tmp, /dev/shm
and /etc/hosts are its own. All share this machine's network, in place of a cluster's. Needs root.
"""

import contextlib
import dataclasses
import json
import os
import secrets
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.domain.scheduling.communications.members import ORDERS, GangMembers, ReplicaPosition
from core.domain.scheduling.launches import Gang, Launch, Placement
from runtimes import catalogue, environments
from tests import processes
from tests.cached import ENVIRONMENTS
from tests.sandbox.attacks import python_for_all
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from tests.unit.launch_samples import gang
from workers.executors.kubernetes.gang_pods import LEVEL, members_of
from workers.gang_job import free_offset

ROOT = Path(__file__).parents[1]
SITE = sysconfig.get_path("purelib")
USER = 10003
TIMEOUT = 120
#: Mounts what is a pod's own, and becomes its first process.
ENTER = (
    "set -e; mount -t tmpfs -o mode=1777 tmpfs /dev/shm; "
    "mount -t tmpfs tmpfs /run; mkdir -p /run/windtunnel/files /run/python; "
    'mount --bind "$FOLDER/files" /run/windtunnel/files; mount --bind "$FOLDER/../python" /run/python; '
    'mount --bind "$FOLDER/hosts" /etc/hosts; hostname "$NAME"; '
    'mount --bind "$FOLDER/tmp" /tmp; '  # the last, because the folder may be in it
    'exec setpriv --reuid "$0" --regid "$0" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"'
)


class Replica:
    """A replica's pod."""

    def __init__(self, folder: Path, python: Path, members: GangMembers, position: ReplicaPosition, key: str) -> None:
        for path in (folder / "tmp", folder / "files"):
            path.mkdir(parents=True)
            os.chown(path, USER, USER)
        hosts = [members.leader, *members.hosts(position.slice)]
        (folder / "hosts").write_text("".join(f"127.0.0.1 {name}\n" for name in ("localhost", *hosts)))
        environ = {
            **{"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": f"{ROOT}:{SITE}", "FOLDER": str(folder)},
            **{"WINDTUNNEL_GANG_KEY": key, "NAME": members.host(position).partition(".")[0]},
            **{"WINDTUNNEL_GANG_SLICE": position.slice, "WINDTUNNEL_GANG_INDEX": position.index},
            "WINDTUNNEL_GANG_LEADER": f"127.0.0.1:{members.ports + ORDERS}",
        }
        namespaces = ["--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = ["-m", "runtimes.harness.gang.replica", "--site", SITE]
        self.log = folder / "log"
        with open(self.log, "wb") as output:
            enter = ["unshare", *namespaces, "--propagation", "private", "sh", "-c", ENTER, str(USER)]
            self.process = subprocess.Popen(
                [*enter, str(python), "-S", "-B", *command],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
            )

    def kill(self) -> None:
        """Kill all of its processes, as a lost node does; a change of user has undone that they die with `unshare`."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def processes(self) -> list[int]:
        """Return the processes that it runs, seen from outside."""
        found, waiting = [], [self.process.pid]
        while waiting:
            pid = waiting.pop()
            with contextlib.suppress(OSError):
                waiting += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            found.append(pid)
        return found[1:]


class GangPods:
    """The pods of one gang. ``launch``: other fields of its launch."""

    def __init__(
        self, folder: Path, runner_api: RunnerApi, options: Gang, *, level: int = LEVEL, **launch: Any
    ) -> None:
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        described = gang(options.size, options.communication, Placement(memory=1 << 30))
        url = {"id": LAUNCH, "token": "", "url": runner_api.url, "gang": options}
        self.launch: Launch = dataclasses.replace(described, **url, **launch)
        self.members = dataclasses.replace(members_of(self.launch), ports=free_offset())
        key = secrets.token_hex()
        (folder / "token").write_text(TOKEN)
        (folder / "gang").write_text(key)
        (folder / "files").mkdir()
        document = {
            "launch": dataclasses.asdict(self.launch),
            "token_file": str(folder / "token"),
            "folder": str(folder / "files"),
            "environments": str(ENVIRONMENTS),
            "builds": str(folder / "builds"),
            "level": level,
            "ports": self.members.ports,
        }
        (folder / "launch.json").write_text(json.dumps(document))
        (folder / "python").mkdir()
        python = python_for_all(folder / "python")
        if python.is_relative_to(folder):  # where other users can read it
            python = Path("/run/python/bin", python.name)
        self.log = folder / "runner.txt"
        with open(self.log, "wb") as output:
            self.runner = subprocess.Popen(
                [sys.executable, "-m", "workers.gang_runner", "--launch", str(folder / "launch.json")],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        gang_options = self.members.gang
        self.replicas = [
            Replica(folder / f"replica-{slice}-{index}", python, self.members, position, key)
            for slice in range(gang_options.slices)
            for index in range(gang_options.size)
            for position in (ReplicaPosition(slice=str(slice), index=str(index)),)
        ]

    @property
    def output(self) -> str:
        """What all processes have printed."""
        logs = [self.log, *(replica.log for replica in self.replicas)]
        return "\n".join(f"{log.parent.name}/{log.name}: {log.read_text(errors='replace')}" for log in logs)

    def ranks(self, word: str) -> list[int]:
        """Return the processes of ranks, of which the command line ends with a word, by their pods."""
        return processes.ending_with(word, [pid for replica in self.replicas for pid in replica.processes()])

    def end(self) -> None:
        """Kill what still runs."""
        for replica in self.replicas:
            replica.kill()
        self.runner.send_signal(signal.SIGKILL)
        self.runner.wait()


def platform_mpi() -> Path:
    """Prepare the platform's MPI, as the runner's image brings it."""
    return environments.prepare(catalogue.communications()["mpi"], ENVIRONMENTS, lambda message, fraction: None)


@contextlib.contextmanager
def pods(folder: Path, runner_api: RunnerApi, options: Gang, **more: Any) -> Iterator[GangPods]:
    """Start the pods of a gang; end them with the context."""
    started = GangPods(folder, runner_api, options, **more)
    try:
        yield started
    finally:
        started.end()
