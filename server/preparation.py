"""Preparation of this machine for the whole platform: settings checked, ports free, home closed, bytecode written."""

import compileall
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.settings import Settings
from runtimes import harness
from runtimes.harness.sandbox.levels import Level
from server.ports import free
from server.supervisor import print_line

#: Seconds to wait for a port that processes of a killed supervisor may still hold.
PORT_TIMEOUT = 3.0
#: Most bytes of the path of a Unix socket (sun_path, less its end).
SOCKET_PATH = 107


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """What the supervisor knows of this machine. It has no secrets, because every role inherits it.

    ``environ``: settings of the roles that follow from this machine. ``valkey``: command of the embedded Valkey.
    ``sandbox``: None without a sandbox. ``workers``: by executor; ``on_agent``: executors of this machine's node agent.
    """

    environ: Mapping[str, str]
    cache_url: str | None
    valkey: tuple[str, ...]
    sandbox: Level | None
    workers: Mapping[str, int]
    on_agent: frozenset[str]


def prepare(settings: Settings) -> Preparation | None:
    """Prepare this machine; print what prevents that, and return None.

    A configuration error that every role would fail with is printed once, here.
    """
    from common.errors import StoreUnavailable
    from core.notifications import embedded_valkey
    from datasets.model_origins import config
    from datasets.objectstore import connections, prepare_store
    from runtimes.harness import sandbox
    from server.composition import eviction_policy
    from server.home import close, close_folder, open_bytecode
    from workers.executors.registry import load_executor_configs, with_node_agent

    home = settings.home.resolve()
    if len(os.fsencode(settings.run_dir / "valkey.sock")) > SOCKET_PATH:
        print_line(
            f"The path of the home folder is too long for the sockets in it: {home}. Set WINDTUNNEL_HOME (--home) to a"
            f" path of at most {SOCKET_PATH - len('/run/valkey.sock')} bytes."
        )
        return None
    environ: dict[str, str] = {}
    cache_url: str | None = None
    try:
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
        return None
    level = sandbox.level() if settings.sandbox == "auto" else None
    close(home, passable=level is not None and level.number == 2 and sandbox.may_change_user())
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
            return None
    # Evaluators and model servers cannot write bytecode, so each of them would compile the harness again.
    harness_folder = Path(harness.__file__).parent
    compileall.compile_dir(str(harness_folder), quiet=2)
    open_bytecode(harness_folder)
    return Preparation(
        environ=environ,
        cache_url=cache_url,
        valkey=() if settings.redis_url else tuple(embedded_valkey.command(home, settings.run_dir)),
        sandbox=level,
        workers={config.name: config.workers for config in executor_configs},
        on_agent=with_node_agent(executor_configs),
    )


def _configure_cache(settings: Settings, environ: dict[str, str]) -> str | None:
    """Return the URL of this machine's cache service, None if none is started; sets its address in ``environ``."""
    from server import cache_service

    if not settings.scs_port:
        return None
    config = cache_service.configure(settings.home.resolve(), settings.run_dir, settings.scs_port, settings.scs_config)
    if not cache_service.free(config):
        environ["WINDTUNNEL_SCS_PORT"] = "0"  # what answers at this port is not this platform's
        return None
    url = f"http://127.0.0.1:{config.port}"
    # An object store in a local folder is not cached: every object would be on this disk twice.
    remote_store = not settings.objects.startswith("file://")
    if remote_store and not settings.scs_nodes and not settings.scs_config:
        environ["WINDTUNNEL_SCS_NODES"] = url
        environ["WINDTUNNEL_SCS_TOKEN_FILE"] = str(cache_service.token_file(settings.run_dir))
    return url
