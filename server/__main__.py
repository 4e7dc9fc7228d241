"""The roles, one process each, and `run`, which keeps all of them running on this machine."""

import asyncio
import compileall
import hashlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.settings import Settings

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

ROOT = Path(__file__).parent.parent
#: What a laptop's agent keeps a warm runner warm for before it knows better: the pair that the oldest promise names.
PROMISED = ("tensorflow", "tflite", "car_street")
#: Threads of the runners' listener, for those at work; those that wait for a launch have others.
RUNNER_API_THREADS = 64
#: Seconds after which every role is started, whether people can be answered already or not.
PATIENCE = 10.0
#: Seconds for which a port may still be held by those whom a killed supervisor leaves behind.
FREED = 3.0


# -- everything


def run(settings: Settings) -> int:
    """Keep every role running, and say where to find them."""
    from core.notifications import embedded_valkey
    from datasets.objectstore import connections, open_store
    from runtimes import harness
    from runtimes.harness import sandbox
    from server.ports import free
    from server.supervisor import AlreadyRunning, Role, Supervisor, answers, tell
    from workers.executors.registry import load_executor_configs

    home, run_dir = settings.home.resolve(), settings.run_dir
    try:
        supervisor = Supervisor(home=home, run_dir=run_dir)
    except AlreadyRunning as error:
        tell(str(error))
        return 1
    environ = dict(os.environ)
    try:  # what no role could start with is said once, here
        connections.load(settings.connections_file)
        open_store(settings.objects, (settings.object_store_access_key, settings.object_store_secret_key))
        executor_configs = load_executor_configs(settings.executors, settings.max_workers)
        cache = _cache_here(settings, environ)
    except (ValueError, OSError) as error:
        tell(str(error))
        return 2
    for name, host, port in (
        ("PORT", settings.host, settings.port),
        ("RUNNER_API_PORT", settings.runner_api_host, settings.runner_api_port),
    ):
        if not free(host, port, FREED):
            tell(f"{host}:{port} is taken, or no address of this machine. WINDTUNNEL_{name} says another port.")
            return 2
    began = time.monotonic()
    # Evaluators and hosts write nothing, their own bytecode included; without this each would compile the harness anew.
    compileall.compile_dir(str(Path(harness.__file__).parent), quiet=2)
    confinement = sandbox.level() if settings.sandbox == "auto" else None
    migrated = fingerprint(settings)
    roles = []
    if not settings.redis_url:
        roles.append(Role(name="valkey", command=embedded_valkey.command(home, run_dir), order=2))
        environ["WINDTUNNEL_REDIS_URL"] = embedded_valkey.embedded(run_dir)
    if not migrated():
        roles.append(Role(name="migrate", command=role("migrate"), once=True))
    address = f"http://{settings.host}:{settings.port}"
    ready = answers(f"{address}/readyz")
    roles += [Role(name=name, command=role(name), order=1, after=migrated) for name in ("api", "runner-api")]
    # These only matter once somebody can ask for something, and would slow that down.
    late = once_true(lambda: ready() or time.monotonic() - began > PATIENCE)
    needed = ["dispatch", "jobs", *(["agent"] if any(one.kind == "local" for one in executor_configs) else [])]
    roles += [Role(name=name, command=role(name), after=late) for name in needed]
    if cache is not None:
        roles.append(Role(name="scs", command=role("scs"), after=late))

    def greet() -> None:
        tell(f"Windtunnel answers at {address} after {time.monotonic() - began:.1f} s; its manual is {address}/docs.")
        places = ", ".join(f"{one.workers} workers on {one.name}" for one in executor_configs if one.kind != "local")
        tell(f"{places or f'{settings.max_workers} workers'}; all it keeps lies in {home}.")
        if cache is not None:
            tell(f"The cache service answers at {cache}.")
        elif settings.scs_port:
            tell(f"Port {settings.scs_port} is taken: no cache service is started here.")
        if confinement is None:
            tell("Sandbox: none. Models run with your rights.")
        else:
            tell(f"Sandbox: level {confinement.number} of 3.")
            for words in (*confinement.missing, *filter(None, [confinement.refusal])):
                tell(f"  missing: {words}")
        tell("Ctrl-C stops it.")

    supervisor.run(roles, environ, ready, greet)
    return 0


def _cache_here(settings: Settings, environ: dict[str, str]) -> str | None:
    """Return where this machine's cache service will answer, and tell the other roles; None if there is to be none."""
    from server import cache_service

    if not settings.scs_port:
        return None
    config = cache_service.configure(settings.home.resolve(), settings.run_dir, settings.scs_port, settings.scs_config)
    if not cache_service.free(config):
        return None
    url = f"http://127.0.0.1:{config.port}"
    # What is read from a folder of this machine would only be kept twice.
    far = not settings.objects.startswith("file://")
    if far and not settings.scs_nodes and not settings.scs_config:
        environ["WINDTUNNEL_SCS_NODES"] = url
        environ["WINDTUNNEL_SCS_TOKEN_FILE"] = str(cache_service.token_file(settings.run_dir))
    return url


def once_true(check: Callable[[], bool]) -> Callable[[], bool]:
    """Return a check that is asked no more once it has said yes."""
    said: list[bool] = []

    def remembered() -> bool:
        if not said and check():
            said.append(True)
        return bool(said)

    return remembered


def role(name: str) -> list[str]:
    """Return the command of a role."""
    return [sys.executable, "-m", "server", name]


def fingerprint(settings: Settings) -> Callable[[], bool]:
    """Return a check whether the database has this version's schema already, as `migrate` noted."""
    path = settings.run_dir / "migrated"

    def check() -> bool:
        return path.exists() and path.read_text() == _schema(settings)

    return check


def _schema(settings: Settings) -> str:
    versions = sorted(path.name for path in (ROOT / "core/store/migrations/versions").glob("*.py"))
    database = Path(settings.database.removeprefix("sqlite:///"))
    born = str(database.stat().st_ino) if database.exists() else settings.database
    return hashlib.sha256("\n".join([*versions, born]).encode()).hexdigest()


# -- roles


def migrate(settings: Settings) -> int:
    """Bring the database's schema up to this version, once for all roles."""
    from core.store.database import Database
    from core.store.migrate import migrate
    from errors import StoreUnavailable

    settings.home.mkdir(parents=True, exist_ok=True)
    database = Database(settings.database)
    try:
        migrate(database)
    except StoreUnavailable as error:  # said to whoever installs us: a traceback would hide it
        logging.getLogger(__name__).error(error.detail)
        return 1
    finally:
        database.close()
    settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    (settings.run_dir / "migrated").write_text(_schema(settings))
    return 0


def api(settings: Settings) -> int:
    """Serve people and their clients."""
    from server.granian_server import serve

    threads = settings.streams + 64  # streams block theirs, and everybody else wants one too
    serve("server.__main__:create_api", address=settings.host, port=settings.port, threads=threads)
    return 0


def runner_api(settings: Settings) -> int:
    """Serve runners."""
    from core.notifications.launch_waiters import SLOTS
    from server.granian_server import serve

    target = "server.__main__:create_runner_api"
    serve(target, address=settings.runner_api_host, port=settings.runner_api_port, threads=RUNNER_API_THREADS + SLOTS)
    return 0


def create_api() -> "WSGIApplication":
    """Build the public application in granian's worker."""
    _settle("api")
    import app

    return app.create_api()


def create_runner_api() -> "WSGIApplication":
    """Build the runners' surface in granian's worker."""
    _settle("runner-api")
    import app
    from server.granian_server import at_end

    return app.create_runner_api(at_end)


def _settle(name: str) -> None:
    from server.granian_server import ask_the_silent
    from server.logs import configure
    from server.supervisor import die_with

    # Granian's worker, orphaned, would keep the port. Who its parent is was noted when it was spawned: asking now would
    # name whoever took it in, if granian itself is gone already.
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        die_with(parent.pid)
    configure(name, Settings.from_env(os.environ).log_level)
    ask_the_silent()


def dispatch(settings: Settings) -> int:
    """Move simulations on."""
    from app import confinement_here, open_platform
    from core.services.scheduling.dispatch import Dispatch
    from workers.dispatcher import Dispatcher
    from workers.executors.base import Measured
    from workers.executors.registry import Here, gangs, load_executor_configs, open_executors
    from workers.managed_executor import ManagedExecutor

    stop = _told_to_stop()
    executor_configs = load_executor_configs(settings.executors, settings.max_workers)
    here = Here(
        home=settings.home.resolve(),
        run_dir=settings.run_dir,
        environments=settings.environments,
        runner_api_url=settings.runner_api_address,
    )
    executors = open_executors(executor_configs, here)
    if settings.metrics_port:
        from server.metrics_server import tell

        tell(settings.metrics_port, [one.registry for one in executors.values() if isinstance(one, Measured)])
    platform = open_platform(settings, confinement_here(settings))
    Dispatcher(
        platform,
        Dispatch(
            platform.database,
            platform.notifier,
            executor_configs=executor_configs,
            runner_api_url=settings.runner_api_address,
            gangs=gangs(executor_configs),
        ),
        [ManagedExecutor(context, executors[context.name]) for context in executor_configs],
        run_dir=settings.run_dir,
        ttl=settings.lease_ttl.total_seconds(),
        interval=settings.dispatch_interval.total_seconds(),
    ).run(stop)
    return 0


def jobs(settings: Settings) -> int:
    """Do what waits: downloads, sums, replays."""
    from app import confinement_here, open_platform
    from core.notifications.redis_notifier import embedded, work
    from workers import liveness
    from workers.background_jobs import Jobs

    confinement = confinement_here(settings)
    stop = _told_to_stop()
    platform = open_platform(settings, confinement)
    table = Jobs(platform, environments_folder=settings.environments, sandbox=_level(confinement)).table
    settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    life = settings.run_dir / "jobs.beat"
    work(settings.redis_url or embedded(settings.run_dir), table, stop, lambda: liveness.beat(life))
    return 0


def agent(settings: Settings) -> int:
    """Hold this machine's warm runners."""
    from app import connections_of, node_cache, store_of
    from datasets.catalogue import datasets
    from runtimes.harness import sandbox
    from workers.node_agent import Agent
    from workers.warm_runners import Kind

    level = sandbox.level() if settings.sandbox == "auto" else None
    promised = datasets().get(PROMISED[-1])

    async def serve() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await Agent(
            home=settings.home.resolve(),
            cache=node_cache(settings, store_of(settings), connections_of(settings)),
            cores=settings.max_workers,
            kinds=settings.warm_runners,
            sandbox=level.number if level is not None else None,
            refusal=level.refusal if level is not None else None,
            promised=Kind(*PROMISED, promised.version) if promised is not None else None,
        ).serve(stop)

    asyncio.run(serve())
    return 0


def scs(settings: Settings) -> int:
    """Keep objects near."""
    from datasets.scs import __main__ as service
    from server import cache_service

    config = cache_service.configure(settings.home.resolve(), settings.run_dir, settings.scs_port, settings.scs_config)
    return service.serve(config)


def _level(confinement: Mapping[str, Any]) -> int | None:
    """Return the level to confine at, None where there is to be no sandbox."""
    return int(confinement["level"]) or None


def _told_to_stop() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


ROLES: Mapping[str, Callable[[Settings], int]] = {
    "run": run,
    "migrate": migrate,
    "api": api,
    "runner-api": runner_api,
    "dispatch": dispatch,
    "jobs": jobs,
    "agent": agent,
    "scs": scs,
}


def main() -> int:
    """Read the settings and be the role that was named."""
    if len(sys.argv) != 2 or sys.argv[1] not in ROLES:
        print(f"usage: python -m server {{{'|'.join(ROLES)}}}", file=sys.stderr)
        return 2
    try:
        settings = Settings.from_env(os.environ)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if sys.argv[1] != "run":
        from server.logs import configure

        configure(sys.argv[1], settings.log_level)
    return ROLES[sys.argv[1]](settings)


if __name__ == "__main__":
    sys.exit(main())
