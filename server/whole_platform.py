"""The whole platform on this machine: `run` supervises every role."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from core.settings import Settings
from server.home import UnusableHome, make
from server.migration_record import is_migrated
from server.restart import REFUSED
from server.roles import run_role

if TYPE_CHECKING:
    from server.preparation import Preparation
    from server.supervisor import Role

#: Seconds after which the remaining roles are started even if /readyz does not answer 200 yet.
READY_TIMEOUT = 10.0
#: Age in seconds of a liveness file from which its role does not answer; the role is killed after the rest of the
#: second number, which is the same as in the chart.
SILENT_AGE, LIVENESS_AGE = 15.0, 60.0
#: File of the folder `run`, which only its owner can enter, with the URL for clients of the same user.
ADDRESS = "address"


def run(settings: Settings) -> int:
    """Supervise every role, and print the addresses that they serve."""
    from core.notifications.embedded_valkey import embedded
    from server.preparation import prepare
    from server.probes import agent_socket_probe, file_probe, http_probe, redis_probe
    from server.role_modules import RoleModules
    from server.role_processes import ForkedCall
    from server.supervisor import AlreadyRunning, Role, Supervisor, is_answered, print_line

    home, run_dir = settings.home.resolve(), settings.run_dir
    try:
        make(home)
    except UnusableHome as error:
        print_line(str(error))
        return REFUSED
    try:
        supervisor = Supervisor(home=home, run_dir=run_dir)
    except AlreadyRunning as error:
        print_line(str(error))
        return 1
    started_at = time.monotonic()
    environ = dict(os.environ)
    # In a process of its own, because it reads secrets and opens connections, which no fork of this process may have.
    preparing = ForkedCall(partial(prepare, settings))
    modules = RoleModules()
    steps = modules.steps()
    while not modules.has("migrate"):
        next(steps)
    try:
        preparation: Preparation | None = preparing.result()
    except EOFError:
        print_line("The platform did not start: its preparation failed with the error above.")
        return 1
    if preparation is None:
        return REFUSED
    on_agent = preparation.on_agent
    environ |= preparation.environ
    migrated = partial(is_migrated, settings)
    roles = []
    if preparation.valkey:
        valkey_probe = redis_probe(run_dir / "valkey.sock", (run_dir / "valkey.password").read_text)
        roles.append(
            Role(name="valkey", command=preparation.valkey, order=2, probe=valkey_probe, patience=10.0, vital=False)
        )
        environ["WINDTUNNEL_REDIS_URL"] = embedded(run_dir)
    if not migrated():
        roles.append(replace(_role("migrate"), once=True))
    address = f"http://{settings.host}:{settings.port}"
    ready = partial(is_answered, f"{address}/readyz", 1.0)
    for name, host, port in (
        ("api", settings.host, settings.port),
        ("runner-api", settings.runner_api_host, settings.runner_api_port),
    ):
        after = all_of(migrated, partial(modules.has, "api"))
        roles.append(replace(_role(name), order=1, after=after, probe=http_probe(host, port)))
    # The other roles are needed only once the API answers; starting them earlier would delay that.
    api_ready = latched(lambda: ready() or time.monotonic() - started_at > READY_TIMEOUT)
    after = all_of(partial(modules.has, "others"), api_ready)
    for name in ("dispatch", "jobs"):
        probe = file_probe(run_dir / f"{name}.beat", SILENT_AGE)
        roles.append(replace(_role(name), after=after, probe=probe, patience=LIVENESS_AGE - SILENT_AGE))
    if on_agent:
        agent_probe = agent_socket_probe(home / "run" / "agent.sock")
        roles.append(replace(_role("agent"), after=after, probe=agent_probe))
    if preparation.cache_url is not None:
        scs_probe = http_probe("127.0.0.1", settings.scs_port)
        roles.append(replace(_role("scs"), after=after, probe=scs_probe))

    def print_summary() -> None:
        (run_dir / ADDRESS).write_text(f"{client_address(settings, settings.port)}\n")
        seconds = time.monotonic() - started_at
        print_line(f"Windtunnel answers at {address} after {seconds:.1f} s; its manual is {address}/docs.")
        remote = ", ".join(
            f"{workers} workers on {name}" for name, workers in preparation.workers.items() if name not in on_agent
        )
        print_line(f"{remote or f'{settings.max_workers} workers'}; all data is stored in {home}.")
        if preparation.cache_url is not None:
            print_line(f"The cache service answers at {preparation.cache_url}.")
        elif settings.scs_port:
            print_line(f"Port {settings.scs_port} (WINDTUNNEL_SCS_PORT) is in use: no cache service is started here.")
        if preparation.sandbox is None:
            print_line("Sandbox: none. Models run with your permissions.")
        else:
            print_line(f"Sandbox: level {preparation.sandbox.number} of 3.")
            for layer in (*preparation.sandbox.missing, *filter(None, [preparation.sandbox.refusal])):
                print_line(f"  missing: {layer}")
        print_line("Ctrl-C stops it.")

    try:
        return supervisor.run(roles, environ, ready, print_summary, steps)
    finally:
        (run_dir / ADDRESS).unlink(missing_ok=True)


def client_address(settings: Settings, port: int) -> str:
    """Return the URL of a platform of this machine; never by a name, which could lead to another server's address."""
    host = settings.host
    if host in {"", "0.0.0.0", "::", "localhost"}:
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _role(name: str) -> "Role":
    """Return a role of the server, which is forked with the modules that the supervisor has imported."""
    from server.supervisor import Role

    return Role(
        name=name,
        command=[sys.executable, "-m", "server", name],
        main=lambda: run_role(name, Settings.from_env(os.environ)),
        patience=LIVENESS_AGE,
    )


def all_of(*checks: Callable[[], bool]) -> Callable[[], bool]:
    """Return a check that is true when all of the checks are; they are called in turn until one of them is false."""
    return lambda: all(check() for check in checks)


def latched(check: Callable[[], bool]) -> Callable[[], bool]:
    """Return a check that stays true once ``check`` has returned true, without calling it again."""
    passed = False

    def latched_check() -> bool:
        nonlocal passed
        passed = passed or check()
        return passed

    return latched_check
