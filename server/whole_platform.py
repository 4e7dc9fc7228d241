"""The whole platform on this machine: `run` supervises every role."""

import compileall
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from core.settings import Settings
from server.migration_record import is_migrated

#: Seconds after which the remaining roles are started even if /readyz does not answer 200 yet.
READY_TIMEOUT = 10.0
#: Age in seconds of a liveness file from which its role's loop counts as hung; the same as in the chart.
LIVENESS_AGE = 60.0
#: Seconds to wait for a port that processes of a killed supervisor may still hold.
PORT_TIMEOUT = 3.0


def run(settings: Settings) -> int:
    """Supervise every role, and print the addresses that they serve."""
    from app import eviction_policy
    from core.notifications import embedded_valkey
    from datasets.model_origins import config
    from datasets.objectstore import connections, prepare_store
    from errors import StoreUnavailable
    from runtimes import harness
    from runtimes.harness import sandbox
    from server.home import close, close_folder, open_bytecode
    from server.ports import free
    from server.probes import agent_socket_probe, file_probe, http_probe, redis_probe
    from server.supervisor import AlreadyRunning, Role, Supervisor, print_line, url_check
    from workers.executors.registry import load_executor_configs, with_node_agent

    home, run_dir = settings.home.resolve(), settings.run_dir
    try:
        supervisor = Supervisor(home=home, run_dir=run_dir)
    except AlreadyRunning as error:
        print_line(str(error))
        return 1
    environ = dict(os.environ)
    try:  # a configuration error that every role would fail with is reported once, here
        connections.load(settings.connections_file)
        config.load(settings.connections_file)
        executor_configs = load_executor_configs(settings.executors, settings.max_workers)
        eviction_policy(settings)
        cache_url = _configure_cache(settings, environ)
        prepare_store(settings.objects, (settings.object_store_access_key, settings.object_store_secret_key))
    except StoreUnavailable as error:  # it may answer later
        print_line(f"{error.detail} What needs it waits.")
    except (ValueError, OSError) as error:
        print_line(str(error))
        return 2
    confinement = sandbox.level() if settings.sandbox == "auto" else None
    close(home, passable=confinement is not None and confinement.number == 2 and sandbox.may_change_user())
    if settings.objects.startswith("file://"):
        close_folder(Path(settings.objects.removeprefix("file://")))
    for name, host, port in (
        ("PORT", settings.host, settings.port),
        ("RUNNER_API_PORT", settings.runner_api_host, settings.runner_api_port),
    ):
        if not free(host, port, PORT_TIMEOUT):
            print_line(
                f"{host}:{port} is in use, or is not an address of this machine. Set WINDTUNNEL_{name} to another port."
            )
            return 2
    started_at = time.monotonic()
    # Evaluators and model servers cannot write bytecode, so each of them would compile the harness again.
    harness_folder = Path(harness.__file__).parent
    compileall.compile_dir(str(harness_folder), quiet=2)
    open_bytecode(harness_folder)
    migrated = partial(is_migrated, settings)
    roles = []
    if not settings.redis_url:
        command = embedded_valkey.command(home, run_dir)
        valkey_probe = redis_probe(run_dir / "valkey.sock", (run_dir / "valkey.password").read_text)
        roles.append(Role(name="valkey", command=command, order=2, probe=valkey_probe, patience=10.0))
        environ["WINDTUNNEL_REDIS_URL"] = embedded_valkey.embedded(run_dir)
    if not migrated():
        roles.append(Role(name="migrate", command=role("migrate"), once=True))
    address = f"http://{settings.host}:{settings.port}"
    ready = url_check(f"{address}/readyz")
    for name, host, port in (
        ("api", settings.host, settings.port),
        ("runner-api", settings.runner_api_host, settings.runner_api_port),
    ):
        roles.append(Role(name=name, command=role(name), order=1, after=migrated, probe=http_probe(host, port)))
    # The other roles are needed only once the API answers; starting them earlier would delay that.
    api_ready = latched(lambda: ready() or time.monotonic() - started_at > READY_TIMEOUT)
    on_agent = with_node_agent(executor_configs)
    for name in ("dispatch", "jobs"):
        liveness = file_probe(run_dir / f"{name}.beat", LIVENESS_AGE)
        roles.append(Role(name=name, command=role(name), after=api_ready, probe=liveness))
    if on_agent:
        agent_probe = agent_socket_probe(home / "run" / "agent.sock")
        roles.append(Role(name="agent", command=role("agent"), after=api_ready, probe=agent_probe))
    if cache_url is not None:
        roles.append(
            Role(name="scs", command=role("scs"), after=api_ready, probe=http_probe("127.0.0.1", settings.scs_port))
        )

    def print_summary() -> None:
        seconds = time.monotonic() - started_at
        print_line(f"Windtunnel answers at {address} after {seconds:.1f} s; its manual is {address}/docs.")
        remote = ", ".join(
            f"{config.workers} workers on {config.name}" for config in executor_configs if config.name not in on_agent
        )
        print_line(f"{remote or f'{settings.max_workers} workers'}; all data is stored in {home}.")
        if cache_url is not None:
            print_line(f"The cache service answers at {cache_url}.")
        elif settings.scs_port:
            print_line(f"Port {settings.scs_port} (WINDTUNNEL_SCS_PORT) is in use: no cache service is started here.")
        if confinement is None:
            print_line("Sandbox: none. Models run with your permissions.")
        else:
            print_line(f"Sandbox: level {confinement.number} of 3.")
            for layer in (*confinement.missing, *filter(None, [confinement.refusal])):
                print_line(f"  missing: {layer}")
        print_line("Ctrl-C stops it.")

    supervisor.run(roles, environ, ready, print_summary)
    return 0


def _configure_cache(settings: Settings, environ: dict[str, str]) -> str | None:
    """Return the URL of this machine's cache service, None if none is started; sets its address in ``environ``."""
    from server import cache_service

    if not settings.scs_port:
        return None
    config = cache_service.configure(settings.home.resolve(), settings.run_dir, settings.scs_port, settings.scs_config)
    if not cache_service.free(config):
        return None
    url = f"http://127.0.0.1:{config.port}"
    # An object store in a local folder is not cached: every object would be on this disk twice.
    remote_store = not settings.objects.startswith("file://")
    if remote_store and not settings.scs_nodes and not settings.scs_config:
        environ["WINDTUNNEL_SCS_NODES"] = url
        environ["WINDTUNNEL_SCS_TOKEN_FILE"] = str(cache_service.token_file(settings.run_dir))
    return url


def latched(check: Callable[[], bool]) -> Callable[[], bool]:
    """Return a check that stays true once ``check`` has returned true, without calling it again."""
    passed = False

    def latched_check() -> bool:
        nonlocal passed
        passed = passed or check()
        return passed

    return latched_check


def role(name: str) -> list[str]:
    """Return the command line of a role's process."""
    return [sys.executable, "-m", "server", name]
