"""Machines made of Linux namespaces: each has its own processes, mounts and network, and ends with its first process.

They change no address, route, firewall rule, mount or kernel setting of the real machine, except for one network
device. So they need no cleanup either: however the tests end, the kernel ends each machine's first process and with
it everything that the machine held.
"""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.system.platform_process import census, die_with
from tests.waiting import until

#: Seconds for the start or the end of a program on a busy machine.
PATIENCE = 180.0
ENVIRON = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
#: Kernel settings that the kubelet requires. It sees these instead of the real settings, which it would change.
TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
_BOOT = """
set -eu
mount -t proc proc /proc
mount --make-rshared /
for place in /run /var/lib /var/log; do mount -t tmpfs -o mode=755 tmpfs $place; done
mkdir /run/lock
hostname "$1"
(cd "$3" && find . -type f) | while read -r tunable; do mount --bind "$3/$tunable" "/proc/sys/$tunable"; done
ip link set lo up
echo up
exec "$2" pause
"""


class Machine:
    """A machine; ``first`` is the program of its first process, which reaps orphaned processes.

    The machine and its programs end with the thread that started them: start them from the tests' main thread.
    """

    def __init__(self, name: str, folder: Path, first: Path) -> None:
        self.name, self.folder = name, folder
        self._first = first
        self._shell: subprocess.Popen[bytes] | None = None
        self._commands: dict[str, tuple[str, ...]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        #: Process id of its first process on the real machine.
        self.pid = 0
        folder.mkdir(parents=True, exist_ok=True)

    def boot(self) -> None:
        """Switch the machine on. Its folder keeps its content, its memory file systems are empty."""
        tunables = self.folder / "tunables"
        for name, value in TUNABLES.items():
            (tunables / name).parent.mkdir(parents=True, exist_ok=True)
            (tunables / name).write_text(f"{value}\n")
        parent = os.getpid()
        namespaces = ("--mount", "--uts", "--net", "--pid", "--propagation", "private")
        script = ("sh", "-c", _BOOT, "boot", self.name, str(self._first), str(tunables))
        self._shell = subprocess.Popen(
            ["unshare", *namespaces, "--fork", "--kill-child", "--", *script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRON,
            start_new_session=True,  # Ctrl-C is handled by the tests, which switch machines off afterwards
            preexec_fn=lambda: die_with(parent),
        )
        assert self._shell.stdout is not None and self._shell.stderr is not None
        if self._shell.stdout.readline() != b"up\n":
            raise RuntimeError(f"{self.name} does not boot: {self._shell.stderr.read().decode(errors='replace')}")
        self.pid = child_of(self._shell.pid)

    @property
    def on(self) -> bool:
        """Return whether the machine is switched on."""
        return self._shell is not None and self._shell.poll() is None

    def cut(self) -> None:
        """Cut the power: all processes of the machine end at once. Harmless when the machine is off."""
        if self._shell is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid or self._shell.pid, signal.SIGKILL)
            self._shell.communicate(timeout=PATIENCE)
            self._shell = None
        for process in self._running.values():
            process.kill()
            process.wait()
        self._running.clear()
        self.pid = 0

    def run(self, name: str, *command: object) -> None:
        """Start a program in the background; its output is appended to NAME.log in the machine's folder."""
        self._commands[name] = tuple(str(part) for part in command)
        self.resume(name)

    def resume(self, name: str) -> None:
        """Start a program again that was stopped, or that ended with a power cut."""
        assert name not in self._running or not self.runs(name), f"{name} is running on {self.name}"
        parent = os.getpid()
        with open(self.folder / f"{name}.log", "ab") as log:
            self._running[name] = subprocess.Popen(
                [*self._nsenter(), *self._commands[name]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=ENVIRON,
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),
            )

    def runs(self, name: str) -> bool:
        """Return whether a background program runs."""
        return name in self._running and self._running[name].poll() is None

    def end(self, name: str, *, graceful: bool = True) -> None:
        """Stop a program by SIGTERM, or by SIGKILL as in a crash; harmless when it has ended."""
        process = self._running.get(name)
        if process is None or process.poll() is not None:
            return
        # the started process is nsenter, which waits for the program, its child
        handle = os.pidfd_open(child_of(process.pid))
        try:
            for number in (signal.SIGTERM, signal.SIGKILL) if graceful else (signal.SIGKILL,):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    signal.pidfd_send_signal(handle, number)
                    process.wait(20)
                    return
            process.wait(PATIENCE)
        finally:
            os.close(handle)

    def call(self, *command: object, stdin: str | None = None, timeout: float = PATIENCE) -> str:
        """Run a program on the machine to its end, and return its output."""
        completed = subprocess.run(
            [*self._nsenter(), *(str(part) for part in command)],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            env=ENVIRON,
            timeout=timeout,
        )
        if completed.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(map(str, command))}: {completed.stdout}{completed.stderr}")
        return completed.stdout

    def log_tail(self, name: str, length: int = 3000) -> str:
        """Return the end of a program's output."""
        log = self.folder / f"{name}.log"
        return log.read_text(errors="replace")[-length:] if log.exists() else ""

    def _nsenter(self) -> list[str]:
        assert self.pid, f"{self.name} is off"
        return ["nsenter", "--target", str(self.pid), "--mount", "--uts", "--net", "--pid", "--"]


def child_of(pid: int) -> int:
    """Return a process's only child, which may be about to start."""

    def child() -> int:
        return next((child for child, (parent, _) in census() if parent == pid), 0)

    return until(child, PATIENCE, f"process {pid} has no child")
