"""A pod without a cluster: a runner and two container inits, isolated from each other by users and namespaces.

Each has its own user, no capabilities, no new privileges, and its own namespaces for mounts, processes, IPC and (except
for the runner) network; the folders that the containers share are mounted as in a pod. Needs root.
"""

import json
import os
import signal
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.sandbox.attacks import python_for_all
from tests.waiting import until

ROOT = Path(__file__).parents[2]
SITE = sysconfig.get_path("purelib")
USERS = {"runner": 10001, "evaluator": 10002, "model_server": 10003}
#: Switches to the container's user, without capabilities, and then to the container's first process.
ENTER_CONTAINER = (
    'mount --rbind / "$ROOT"; exec chroot "$ROOT" setpriv --reuid "$0" --regid "$0" --clear-groups'
    ' --no-new-privs --bounding-set=-all --inh-caps=-all "$@"'
)


class Image:
    """An interpreter that every user may run."""

    def __init__(self, folder: Path) -> None:
        assert os.geteuid() == 0, "These tests create containers; run them as root."
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        self.python = python_for_all(folder)
        #: The root of each container: a process in a chroot cannot create user namespaces, as in a pod.
        self.root = folder / "root"
        self.root.mkdir()


class Container:
    """The first process of a container."""

    def __init__(
        self,
        image: Image,
        name: str,
        command: list[str],
        *,
        read_only: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
    ) -> None:
        namespaces = ["--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        namespaces += ["--net"] if name != "runner" else []
        mounts = [f"mount --bind '{path}' '{path}'; mount -o remount,bind,ro '{path}'" for path in read_only]
        mounts += [f"mount -t tmpfs -o ro,mode=0 none '{path}'" for path in hidden]
        script = "; ".join(["set -e", *mounts, ENTER_CONTAINER])
        self.name = name
        self.process = subprocess.Popen(
            ["unshare", *namespaces, "sh", "-c", script, str(USERS[name]), str(image.python), "-S", "-B", *command],
            env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONPATH": f"{ROOT}:{SITE}", "ROOT": str(image.root)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
        )

    @property
    def first_pid(self) -> int:
        """Return the id of the container's first process outside its namespace."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")

        def child_pids() -> list[str]:
            assert self.process.poll() is None, f"{self.name} has ended"
            return children.read_text().split()

        return int(until(child_pids, message=f"{self.name} did not start")[0])

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the first process."""
        os.kill(self.first_pid, number)

    def children(self) -> list[int]:
        """Return the children of the first process."""
        return list(map(int, Path(f"/proc/{self.first_pid}/task/{self.first_pid}/children").read_text().split()))

    def wait(self, seconds: float = 30.0) -> int:
        """Wait for the end of the container; its output is in ``output``."""
        self.output = self.process.communicate(timeout=seconds)[0].decode()
        return self.process.returncode

    def end(self) -> None:
        """Kill the container if it runs."""
        if self.process.poll() is None:
            self.process.kill()  # unshare kills its child as well (--kill-child)
        self.process.communicate()


class Pod:
    """Three containers and their shared folders. ``model_site``: packages of the model's format."""

    def __init__(
        self,
        image: Image,
        folder: Path,
        document: Mapping[str, Any],
        token: str,
        *,
        model_site: str = SITE,
        trusted: bool = False,
    ) -> None:
        folder.chmod(0o755)
        self.sockets, self.files, self.secret = folder / "sockets", folder / "files", folder / "token"
        for path in (self.sockets, self.files, self.secret):
            path.mkdir()
            os.chown(path, USERS["runner"], USERS["runner"])
        self.sockets.chmod(0o755)
        self.secret.chmod(0o700)
        (self.secret / "token").write_text(token)
        users = {name: USERS[name] for name in ("evaluator", "model_server")}
        config = {"token_file": str(self.secret / "token"), "files": str(self.files), "workers": 2}
        config["container_users"] = users
        (self.secret / "launch.json").write_text(json.dumps(config | dict(document)))
        for path in self.secret.iterdir():
            os.chown(path, USERS["runner"], USERS["runner"])
        launch = ["--launch", str(self.secret / "launch.json"), "--sockets", str(self.sockets)]
        self.runner = Container(image, "runner", ["-m", "workers.standalone_runner", *launch])
        shared = folder / "trusted"
        shared.mkdir()
        os.chown(shared, USERS["model_server"], USERS["model_server"])
        sites = {"evaluator": SITE, "model_server": model_site}
        sharing = ["--trusted", str(shared)] if trusted else []
        init = ["-m", "runtimes.harness.runner.container_init"]
        self.evaluator, self.model_server = (
            Container(
                image,
                name,
                [*init, name, "--sockets", str(self.sockets), "--site", sites[name], *sharing],
                read_only=[self.sockets, self.files],
                hidden=[self.secret],
            )
            for name in ("evaluator", "model_server")
        )

    @property
    def containers(self) -> tuple[Container, Container, Container]:
        """Return the three containers."""
        return self.runner, self.evaluator, self.model_server

    def end(self) -> None:
        """Kill the containers that still run."""
        for container in self.containers:
            container.end()
