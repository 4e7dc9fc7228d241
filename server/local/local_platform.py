"""Local platform: the platform that runs in this home, or a new one on free ports; never another server.

Servers are recognised by the process that listens on a port, not by their answers: any server can answer 200.
"""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from core.settings import Settings
from server import first_operator
from server.ports import free
from server.restart import REFUSED
from server.role_processes import die_with
from server.supervisor import direct, is_answered
from server.whole_platform import client_address

#: Further ports that are tried if the configured port is in use.
FURTHER_PORTS = 200
#: Starts of the platform: another program may take a port between its check and the platform's start.
STARTS = 3
#: Seconds until a started platform must be ready.
START_TIMEOUT = 120.0
POLL_INTERVAL = 0.1
#: Seconds that a platform has to say whether it is ready.
READY_TIMEOUT = 5.0
STOPPING = "Stopping Windtunnel ..."
#: Signals that end this process, and with it the platform.
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROC = Path("/proc")
LISTENING = "0A"


class NotStarted(Exception):
    """There is no platform; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of the public API and of the runner API."""

    api: int
    runner_api: int


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform that is ready: its URL, and the token that every request must have, or an empty text.

    ``token_in_shell``: how a person writes that token. ``server``: its process if it was started here; it ends with
    this process.
    """

    url: str
    token: str = field(default="", repr=False)
    token_in_shell: str = "$WINDTUNNEL_TOKEN"
    server: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)


def choose_ports(
    preferred: Ports,
    api_is_free: Callable[[int], bool],
    runner_is_free: Callable[[int], bool],
    *,
    further: int = FURTHER_PORTS,
) -> Ports:
    """Return two free ports: the preferred ones where possible, else the next ones; raise NotStarted without any.

    ``further``: ports of the public API that are tried after the preferred one.
    """

    def first(port: int, is_free: Callable[[int], bool], taken: int | None, further: int) -> int:
        candidates = range(port, min(port + further, (1 << 16) - 1) + 1)
        found = next((candidate for candidate in candidates if candidate != taken and is_free(candidate)), None)
        if found is None:
            tried = f"Ports {port} to {candidates[-1]} are" if further else f"Port {port} is"
            raise NotStarted(f"{tried} in use. Set WINDTUNNEL_PORT or --port to a free port.")
        return found

    runner_port = preferred.runner_api if runner_is_free(preferred.runner_api) else None
    api = first(preferred.api, api_is_free, None if further == 0 else runner_port, further)
    if api == runner_port:
        runner_port = None
    return Ports(api, runner_port or first(preferred.runner_api, runner_is_free, api, FURTHER_PORTS))


# -- processes


def process_tree(root: int) -> set[int]:
    """Return the ids of a process and of its descendants."""
    children: dict[int, list[int]] = {}
    for stat in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            # the name in parentheses may contain anything, so fields are counted from its end
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    tree, waiting = set(), [root]
    while waiting:
        pid = waiting.pop()
        tree.add(pid)
        waiting += children.get(pid, [])
    return tree


def listens(root: int, port: int) -> bool:
    """Return whether a process or one of its descendants listens on a TCP port."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{columns[9]}]")
    for pid in process_tree(root) if inodes else ():
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(PROC / str(pid) / "fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(PROC / str(pid) / "fd" / descriptor) in inodes:
                        return True
    return False


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment with which a process was started; empty if it has ended."""
    try:
        entries = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries if entry)
    return {name: value for name, _, value in pairs}


def supervisor_of_home(home: Path) -> int | None:
    """Return the id of the process that holds this home's supervisor lock, None if the home is not in use."""
    lock = home.resolve() / "run" / "supervisor.lock"
    try:
        inode, pid = lock.stat().st_ino, int(lock.read_text() or 0)
    except (OSError, ValueError):
        return None
    held = (line.split() for line in (PROC / "locks").read_text().splitlines())
    return pid if any(columns[1] == "FLOCK" and columns[5].endswith(f":{inode}") for columns in held) else None


# -- platforms


def token_of(settings: Settings) -> tuple[str, str]:
    """Return the token of who may do everything, and how a shell has it.

    The token is empty if none is needed, and if the first operator has deleted the file that it was in.
    """
    file = settings.home.resolve() / first_operator.FILE
    if settings.token or not settings.multi_user or not file.exists():
        return settings.token, "$WINDTUNNEL_TOKEN"
    return file.read_text().strip(), f"$(cat {shlex.quote(str(file))})"


def document(platform: Platform) -> Any:
    """Return the OpenAPI document of a platform; None if it has none."""
    headers = {"Authorization": f"Bearer {platform.token}"} if platform.token else {}
    try:
        request = urllib.request.Request(f"{platform.url}/openapi.json", headers=headers)
        with direct.open(request, timeout=10) as response:
            return msgspec.json.decode(response.read())
    except (OSError, msgspec.MsgspecError):
        return None


def running(settings: Settings) -> Platform | None:
    """Return the platform that runs in this home, with the token of its own environment; None if none runs.

    Raise NotStarted if it does not answer, or is of another version: its OpenAPI document is not that of this code.
    """
    supervisor = supervisor_of_home(settings.home)
    if supervisor is None:
        return None
    stop = f"Stop it (Ctrl-C, or `kill {supervisor}`), then start again."
    try:
        its_settings = Settings.from_env(environment_of(supervisor))
    except ValueError:
        raise NotStarted(f"Another version of Windtunnel (process {supervisor}) runs in this home. {stop}") from None
    url = client_address(its_settings, its_settings.port)
    if not listens(supervisor, its_settings.port) or not is_answered(f"{url}/readyz", READY_TIMEOUT):
        raise NotStarted(f"Windtunnel (process {supervisor}) runs in this home, but does not answer at {url}. {stop}")
    from api import application  # imported where it is needed: this takes a second

    platform = Platform(url, *token_of(its_settings))
    if document(platform) != msgspec.to_builtins(application.describe()):
        raise NotStarted(f"Another version of Windtunnel (process {supervisor}) runs in this home. {stop}")
    return platform


@contextlib.contextmanager
def open_platform(
    environ: Mapping[str, str], tell: Callable[[str], None], *, further: int = FURTHER_PORTS
) -> Iterator[Platform]:
    """Yield a platform that is ready; one that is started here ends with the block.

    ``further``: ports that are tried after the configured one, if that is in use.
    """
    try:
        settings = Settings.from_env(environ)
    except ValueError as error:
        raise NotStarted(str(error)) from None
    platform = running(settings)
    if platform is not None:
        tell(f"Windtunnel runs in this home already, at {platform.url}.{_unused_port(environ, platform)}")
        yield platform
        return
    server, url = _start(settings, environ, tell, further)
    try:
        _wait_until_ready(server, url, settings)
        yield Platform(url, *token_of(settings), server)
    except KeyboardInterrupt:  # its end takes seconds while simulations run
        tell(STOPPING)
        raise
    finally:
        _stop(server)


def _unused_port(environ: Mapping[str, str], platform: Platform) -> str:
    """Return a sentence if another port was asked for than that of the platform that runs already."""
    port = environ.get("WINDTUNNEL_PORT")
    if port is None or platform.url.endswith(f":{port}"):
        return ""
    return f" --port (WINDTUNNEL_PORT) {port} has no effect."


def _stop(server: "subprocess.Popen[bytes]") -> None:
    server.terminate()
    server.wait(timeout=30)


def _start(
    settings: Settings, environ: Mapping[str, str], tell: Callable[[str], None], further: int
) -> tuple["subprocess.Popen[bytes]", str]:
    """Start a platform on free ports; return it once it listens."""
    preferred = Ports(settings.port, settings.runner_api_port)
    for _ in range(STARTS):
        ports = choose_ports(
            preferred,
            lambda port: free(settings.host, port) and not _other_family_answers(port),
            lambda port: free(settings.runner_api_host, port),
            further=further,
        )
        url = client_address(settings, ports.api)
        if ports.api != preferred.api:
            tell(f"Port {preferred.api} is in use by another program; port {ports.api} is taken instead.")
        tell(f"Starting Windtunnel at {url} ...")
        variables = {"WINDTUNNEL_PORT": str(ports.api), "WINDTUNNEL_RUNNER_API_PORT": str(ports.runner_api)}
        # A signal would be lost in the handlers of a fork, which ignore exceptions.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
        try:
            server = subprocess.Popen(
                [sys.executable, "-m", "server", "run"],
                env={**environ, **variables},
                start_new_session=True,  # Ctrl-C reaches this process, which passes it on once: a second would kill
                preexec_fn=partial(_begin, os.getpid(), before),
            )
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                while server.poll() is None and not listens(server.pid, ports.api):
                    time.sleep(POLL_INTERVAL)
            except BaseException:
                tell(STOPPING)
                _stop(server)
                raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if server.returncode is None:
            return server, url
        if server.returncode != REFUSED or free(settings.host, ports.api):
            break
    raise NotStarted(_not_started("The platform did not start", server, settings))


def _not_started(what: str, server: "subprocess.Popen[bytes]", settings: Settings) -> str:
    """Return what did not happen, and where the reason is: on the terminal, or in logs if there are any."""
    if server.poll() == REFUSED:
        return f"{what}, for the reason above."
    logs = settings.home.resolve() / "logs"
    return f"{what}. Its logs are in {logs}." if logs.is_dir() else f"{what}."


def _begin(parent: int, mask: set[int | signal.Signals]) -> None:
    """Begin a server's process: it ends with its parent, and has the parent's usual signal mask."""
    die_with(parent, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _other_family_answers(port: int) -> bool:
    """Return whether a server listens on this port of IPv6's loopback, to which `localhost` may lead."""
    if not socket.has_ipv6:
        return False
    with socket.socket(socket.AF_INET6) as client:
        client.settimeout(1.0)
        return client.connect_ex(("::1", port)) == 0


def _wait_until_ready(server: "subprocess.Popen[bytes]", url: str, settings: Settings) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not is_answered(f"{url}/readyz", READY_TIMEOUT):
        if server.poll() is not None or time.monotonic() > deadline:
            raise NotStarted(_not_started("The platform did not become ready", server, settings))
        time.sleep(POLL_INTERVAL)
