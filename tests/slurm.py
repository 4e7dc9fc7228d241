"""Slurm cluster with a single node for tests: real daemons in a folder, on free ports, with their own MUNGE key."""

import contextlib
import os
import pwd
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtimes import catalogue, environments
from tests import processes
from tests.cached import ENVIRONMENTS
from tests.ports import free_ports
from tests.waiting import until
from workers.executors import slurm as slurm_kind
from workers.executors.base import LocalPaths
from workers.executors.slurm.executor import SlurmExecutor

ROOT = Path(__file__).parents[1]
#: Seconds for a daemon's start or end on a busy machine, and seconds for the installation.
TIMEOUT, INSTALL_TIMEOUT = 60.0, 900

SLURM_CONF = """
ClusterName=windtunnel
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=10000,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP
PartitionName=short Nodes=ALL MaxTime=1 State=UP
"""


class Slurm:
    """The daemons munged, slurmctld and slurmd; they end with the thread that started them."""

    def __init__(self, folder: Path, *, nodes: int = 1, cores: int = 2, memory: int = 8192) -> None:
        script = ROOT / "scripts" / "tools" / "slurm"
        script_output = subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True, timeout=INSTALL_TIMEOUT)
        self.path = script_output.stdout.strip()
        self.folder = folder
        (folder / "state").mkdir(parents=True)
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        self.host = socket.gethostname().partition(".")[0]
        controller, *ports = free_ports(1 + nodes)
        #: Names of the nodes; several are daemons on this machine.
        self.nodes = [self.host] if nodes == 1 else [f"node{number}" for number in range(nodes)]
        described = [
            f"NodeName={name} NodeHostname={self.host} NodeAddr=127.0.0.1 Port={port} CPUs={cores} RealMemory={memory}"
            for name, port in zip(self.nodes, ports, strict=True)
        ]
        self.conf = folder / "slurm.conf"
        self.conf.write_text(
            SLURM_CONF.format(
                host=self.host,
                controller=controller,
                nodes="\n".join(described),
                user=pwd.getpwuid(os.getuid()).pw_name,
                folder=folder,
            )
        )
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        # Jobs do not end with this process. The sweeper ends them after this process has ended in any way, because that
        # closes the sweeper's standard input.
        command = [sys.executable, "-m", "tests.slurm", str(self.conf)]
        self._sweeper = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True)
        self.start("munged")
        until(lambda: (folder / "munge.sock").exists())
        self.start("slurmctld")
        for name in self.nodes:
            self.start_node(name)
        until(lambda: self.ask("sinfo", "--noheader", "--format=%T", "--partition=main").strip() == "idle")

    def start_node(self, name: str) -> None:
        """Start the daemon of a node."""
        (self.folder / f"spool.{name}").mkdir(exist_ok=True)
        self.start("slurmd", *(["-N", name] if name != self.host else []), node=name)

    def start(self, name: str, *more_arguments: str, node: str = "") -> None:
        """Start a daemon; ``node``: of which node."""
        munge = [f"--key-file={self.folder}/munge.key", f"--socket={self.folder}/munge.sock"]
        munge += [f"--{kind}-file={self.folder}/munge.{kind}" for kind in ("pid", "log", "seed")]
        arguments = {"munged": ["--foreground", "--force", "--num-threads=4", *munge]}.get(name, ["-D"])
        with open(self.folder / f"{name}.out", "ab") as output:
            self._daemons[name + node] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", f"{self.path}/{name}", *arguments, *more_arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environ,
                start_new_session=True,
            )

    def stop(self, name: str, *, sign: int = signal.SIGKILL, node: str = "") -> None:
        """End a daemon with a signal, by default SIGKILL; ``node``: of which node."""
        daemon = self._daemons.pop(name + node, None)
        if daemon is not None:
            daemon.send_signal(sign)
            daemon.wait(TIMEOUT)
        if name == "munged":
            (self.folder / "munge.sock").unlink(missing_ok=True)

    def freeze(self, name: str) -> None:
        """Suspend a daemon (SIGSTOP); it can still be ended."""
        self._daemons[name].send_signal(signal.SIGSTOP)

    @property
    def environ(self) -> dict[str, str]:
        """Environment in which commands address this Slurm."""
        return {"PATH": f"{os.environ['PATH']}:{self.path}", "SLURM_CONF": str(self.conf), "LC_ALL": "C.UTF-8"}

    def ask(self, *command: str) -> str:
        """Run a Slurm command; return its output, or "" if it fails."""
        completed = subprocess.run(
            command, env=self.environ, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        return completed.stdout if completed.returncode == 0 else ""

    def clear(self) -> None:
        """Cancel every job and wait until the node is free again."""
        self.ask("scontrol", "update", f"NodeName={','.join(self.nodes)}", "State=RESUME")
        self.ask("scancel", "--me")
        until(lambda: not self.ask("squeue", "--noheader", "--states=all", "--format=%T").count("RUNNING"))
        until(lambda: "COMPLETING" not in self.ask("squeue", "--noheader", "--states=all", "--format=%T"))

    def processes(self) -> list[int]:
        """Return the ids of all processes of this cluster: daemons and jobs."""
        return processes.started_with("SLURM_CONF", self.conf)

    def close(self) -> None:
        """End all processes of this cluster."""
        for node in self.nodes:
            self.stop("slurmd", node=node)
        for name in ("slurmctld", "munged"):
            self.stop(name)
        until(lambda: not processes.kill_started_with("SLURM_CONF", self.conf))  # repeated, as new processes may start
        self._sweeper.communicate(timeout=TIMEOUT)


def prepared() -> Path:
    """Return a folder with the prepared environments of launches of `noop`."""
    for environment in (catalogue.runtimes()["python"].formats["python"].environment, catalogue.simulators()["noop"]):
        environments.prepare(environment, ENVIRONMENTS, lambda text, part: None)
    return ENVIRONMENTS


def executor_on(slurm: Slurm, home: Path, environments: Path, **options: Any) -> SlurmExecutor:
    """Open an executor on this Slurm."""
    paths = LocalPaths(home=home, run_dir=home / "run", environments=environments, runner_api_url="")
    return slurm_kind.open("slurm", slurm_kind.KIND.parse({"conf": str(slurm.conf), **options}), paths)


@contextlib.contextmanager
def slurm_alone(nodes: int = 1) -> Iterator[Slurm]:
    """Run a Slurm in a folder with a short path, as the paths of its sockets may have at most 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        slurm = Slurm(Path(folder), nodes=nodes)
        try:
            yield slurm
        finally:
            slurm.close()


@pytest.fixture(scope="module")
def shared_slurm() -> Iterator[Slurm]:
    """A Slurm for all tests of a module."""
    with slurm_alone() as slurm:
        yield slurm


@pytest.fixture
def slurm(shared_slurm: Slurm) -> Iterator[Slurm]:
    """The shared Slurm without jobs."""
    shared_slurm.clear()
    yield shared_slurm
    shared_slurm.clear()


@pytest.fixture
def own_slurm() -> Iterator[Slurm]:
    """A Slurm for a single test, which may break it."""
    with slurm_alone() as slurm:
        yield slurm


if __name__ == "__main__":
    sys.stdin.read()
    processes.kill_started_with("SLURM_CONF", sys.argv[1])
