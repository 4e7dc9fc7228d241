"""Entry point of the server's roles, one process per role, and of `run`, which supervises all roles on this machine."""

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
from datasets.objectstore import check_url
from server.home import UMASK

if TYPE_CHECKING:
    from server.request_bodies import BodyLimits
    from server.wsgi_gateway import Gateway

ROOT = Path(__file__).parent.parent
#: Runtime, format and dataset of the warm runner that the agent starts before the first submission: those of the 1.0
#: path's documented example.
INITIAL_WARM_KIND = ("tensorflow", "tflite", "car_street")
#: Request threads of the runner API; runners that wait for a launch have further threads of their own.
RUNNER_API_THREADS = 64
#: Seconds after which the remaining roles are started even if /readyz does not answer 200 yet.
READY_TIMEOUT = 10.0
#: Age in seconds of a liveness file from which its role's loop counts as hung; the same as in the chart.
LIVENESS_AGE = 60.0
#: Seconds to wait for a port that processes of a killed supervisor may still hold.
PORT_TIMEOUT = 3.0


# -- supervision


def run(settings: Settings) -> int:
    """Supervise every role, and print the addresses that they serve."""
    from app import eviction_policy
    from core.notifications import embedded_valkey
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
    migrated = fingerprint(settings)
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


def fingerprint(settings: Settings) -> Callable[[], bool]:
    """Return a check whether `migrate` has recorded that the database has this version's schema."""
    path = settings.run_dir / "migrated"

    def check() -> bool:
        return path.exists() and path.read_text() == _schema(settings)

    return check


def _schema(settings: Settings) -> str:
    versions = sorted(path.name for path in (ROOT / "core/store/migrations/versions").glob("*.py"))
    database = Path(settings.database.removeprefix("sqlite:///"))
    identity = str(database.stat().st_ino) if database.exists() else settings.database
    return hashlib.sha256("\n".join([*versions, identity]).encode()).hexdigest()


# -- roles


def migrate(settings: Settings) -> int:
    """Migrate the database's schema to this version, once, before the other roles start."""
    from core.store.database import Database
    from core.store.migrate import migrate
    from errors import StoreUnavailable

    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = Database(settings.database)
    try:
        migrate(database)
    except StoreUnavailable as error:  # the installer needs the message; a traceback would hide it
        logging.getLogger(__name__).error(error.detail)
        return 1
    finally:
        database.close()
    settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    (settings.run_dir / "migrated").write_text(_schema(settings))
    return 0


def api(settings: Settings) -> int:
    """Serve the public API."""
    from server.granian_server import serve

    serve("server.__main__:create_api", address=settings.host, port=settings.port)
    return 0


def runner_api(settings: Settings) -> int:
    """Serve the runner API."""
    from server.granian_server import serve

    serve("server.__main__:create_runner_api", address=settings.runner_api_host, port=settings.runner_api_port)
    return 0


def create_api() -> "Gateway":
    """Build the public application in granian's worker process."""
    settings = _prepare_process("api")
    import app
    from api import tus
    from api.request_guard import encode_refusal, head_check
    from server.wsgi_gateway import Gateway

    return Gateway(
        app.create_api(),
        threads=settings.streams + 64,  # each stream blocks a thread; 64 remain for other requests
        limits=_body_limits(settings),
        answer=encode_refusal,
        refuse=head_check(settings.names, settings.token),
        is_upload=tus.is_upload,
    )


def create_runner_api() -> "Gateway":
    """Build the runner API in granian's worker process."""
    settings = _prepare_process("runner-api")
    import app
    from api.problems import encode
    from core.notifications.launch_waiters import SLOTS
    from server.granian_server import on_shutdown
    from server.wsgi_gateway import Gateway

    callbacks: list[Callable[[], None]] = []
    return Gateway(
        app.create_runner_api(callbacks.append),
        threads=RUNNER_API_THREADS + SLOTS,
        limits=_body_limits(settings),
        answer=encode,
        on_start=lambda: on_shutdown(*callbacks),
    )


def _body_limits(settings: Settings) -> "BodyLimits":
    from server.request_bodies import BodyLimits

    return BodyLimits(
        idle=settings.body_timeout.total_seconds(),
        grace=settings.body_timeout.total_seconds(),
        rate=float(settings.body_rate),
        threads=settings.bodies,
    )


def _prepare_process(name: str) -> Settings:
    from server.granian_server import enable_keepalive
    from server.logs import configure
    from server.supervisor import die_with

    # An orphaned worker of granian would hold the port. The parent's pid is taken from multiprocessing, which recorded
    # it at spawn time: os.getppid() would name the process that adopted the orphan if granian is gone already.
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None:
        die_with(parent.pid)
    settings = Settings.from_env(os.environ)
    configure(name, settings.log_level)
    enable_keepalive()
    return settings


def dispatch(settings: Settings) -> int:
    """Run the dispatcher: state machine of simulations, launches on executors."""
    from app import confinement_here, open_platform
    from core.services.scheduling.dispatch import Dispatch
    from workers.dispatcher import Dispatcher
    from workers.executors.base import LocalPaths, Measured
    from workers.executors.registry import load_executor_configs, open_executors, with_gangs
    from workers.managed_executor import ManagedExecutor

    stop = _stop_event()
    executor_configs = load_executor_configs(settings.executors, settings.max_workers)
    here = LocalPaths(
        home=settings.home.resolve(),
        run_dir=settings.run_dir,
        environments=settings.environments,
        runner_api_url=settings.runner_api_address,
    )
    executors = open_executors(executor_configs, here)
    if settings.metrics_port:
        from server.metrics_server import start

        registries = [executor.registry for executor in executors.values() if isinstance(executor, Measured)]
        start(settings.metrics_port, registries)
    platform = open_platform(settings, confinement_here(settings))
    Dispatcher(
        platform,
        Dispatch(
            platform.database,
            platform.notifier,
            executor_configs=executor_configs,
            runner_api_url=settings.runner_api_address,
            gangs=with_gangs(executor_configs),
        ),
        [ManagedExecutor(context, executors[context.name]) for context in executor_configs],
        run_dir=settings.run_dir,
        ttl=settings.lease_ttl.total_seconds(),
        interval=settings.dispatch_interval.total_seconds(),
    ).run(stop)
    return 0


def jobs(settings: Settings) -> int:
    """Run background jobs: a supervisor of RQ workers, which this process forks with all modules imported."""
    import app
    from core.notifications.job_queue import Due
    from core.notifications.redis_notifier import embedded
    from core.services.due_jobs import DueJobs
    from core.store.database import Database
    from server.job_processes import JobProcesses
    from workers import liveness
    from workers.background_jobs import Jobs

    confinement = app.confinement_here(settings)
    app.import_platform()

    def open_functions() -> Mapping[str, Callable[[str], None]]:
        platform = app.open_platform(settings, confinement)
        return Jobs(platform, environments_folder=settings.environments, sandbox=_level(confinement)).table

    def open_due() -> Due:
        return DueJobs(Database(settings.database)).of

    settings.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    heartbeat_file = settings.run_dir / "jobs.beat"
    JobProcesses(
        settings.redis_url or embedded(settings.run_dir),
        settings.job_kinds,
        open_functions,
        open_due,
        lambda: liveness.record_iteration(heartbeat_file),
        metrics_port=settings.jobs_metrics_port,
    ).run()
    return 0


def failed_jobs(settings: Settings) -> int:
    """Print the failed background jobs with the ends of their tracebacks; return 1 if there are any."""
    from core.notifications.redis_notifier import RedisNotifier, embedded

    notifier = RedisNotifier(settings.redis_url or embedded(settings.run_dir))
    if not notifier.alive():
        print("Redis (REDIS_URL) does not answer", file=sys.stderr)
        return 2
    failures = notifier.failed_jobs()
    for job in failures:
        ended_at = job.ended_at.isoformat(timespec="seconds") if job.ended_at else "unknown"
        print(f"{job.job_id}  queue windtunnel:{job.kind}  failed at {ended_at}, {job.failures} times")
        print("".join(f"    {line}\n" for line in job.traceback.splitlines()[-5:]))
    notifier.close()
    return 1 if failures else 0


def agent(settings: Settings) -> int:
    """Run the node agent: this machine's warm runners and node cache."""
    from app import connections_of, node_cache, store_of
    from datasets.catalogue import datasets
    from runtimes.harness import sandbox
    from workers.node_agent import Agent, WarmRunnerOptions
    from workers.warm_runners import WarmKind

    level = sandbox.level() if settings.sandbox == "auto" else None
    runtime, format, dataset = INITIAL_WARM_KIND
    initial = None
    if initial_dataset := datasets().get(dataset):
        initial = WarmKind(runtime=runtime, format=format, dataset=dataset, version=initial_dataset.version)

    async def serve() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await Agent(
            home=settings.home.resolve(),
            cache=node_cache(settings, store_of(settings), connections_of(settings)),
            cores=settings.max_workers,
            sandbox=level.number if level is not None else None,
            refusal=level.refusal if level is not None else None,
            warm=WarmRunnerOptions(kinds=settings.warm_runners, initial=initial),
        ).serve(stop)

    asyncio.run(serve())
    return 0


def scs(settings: Settings) -> int:
    """Run this machine's cache service."""
    from datasets.scs import __main__ as service
    from server import cache_service

    config = cache_service.configure(settings.home.resolve(), settings.run_dir, settings.scs_port, settings.scs_config)
    return service.serve(config)


def _level(confinement: Mapping[str, Any]) -> int | None:
    """Return the sandbox level, None without a sandbox."""
    return int(confinement["level"]) or None


def _stop_event() -> threading.Event:
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
    "failed-jobs": failed_jobs,
    "agent": agent,
    "scs": scs,
}


def main() -> int:
    """Read the settings and run the role that the command line names."""
    os.umask(UMASK)  # every role, and every process that a role starts
    if len(sys.argv) != 2 or sys.argv[1] not in ROLES:
        print(f"usage: python -m server {{{'|'.join(ROLES)}}}", file=sys.stderr)
        return 2
    try:
        settings = Settings.from_env(os.environ)
        check_url(settings.objects)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if sys.argv[1] != "run":
        from server.logs import configure

        configure(sys.argv[1], settings.log_level)
    return ROLES[sys.argv[1]](settings)


if __name__ == "__main__":
    sys.exit(main())
