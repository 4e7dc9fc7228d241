"""Roles of the server: what each process of the platform runs, until SIGTERM unless it is a single step."""

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from core.settings import Settings
from server.home import UnusableHome, make
from server.migration_record import record_migration
from server.restart import REFUSED

if TYPE_CHECKING:
    from server.request_bodies import BodyLimits
    from server.wsgi_gateway import Gateway

logger = logging.getLogger(__name__)

#: Runtime, format and dataset of the warm runner that the agent starts before the first submission: those of the 1.0
#: path's documented example.
INITIAL_WARM_KIND = ("tensorflow", "tflite", "car_street")
#: Request threads of the runner API; runners that wait for a launch have further threads of their own.
RUNNER_API_THREADS = 64


class CannotStart(Exception):
    """A role cannot start, whenever it is tried; the text says why, with the next step."""


def migrate(settings: Settings) -> int:
    """Migrate the database's schema to this version, once, before the other roles start."""
    from common.errors import StoreUnavailable
    from core.store.database import Database
    from core.store.migrate import LaterSchema, migrate

    _make_home(settings)
    database = Database(settings.database)
    try:
        migrate(database)
    except StoreUnavailable as error:  # the installer needs the message; a traceback would hide it
        logger.error(error.detail)
        return 1
    except LaterSchema as error:
        raise CannotStart(str(error)) from None
    finally:
        database.close()
    record_migration(settings)
    return 0


def api(settings: Settings) -> int:
    """Serve the public API."""
    from server.granian_server import serve

    ends: list[Callable[[], None]] = []
    serve(partial(create_api, settings, ends.append), address=settings.host, port=settings.port)
    for end in ends:  # a fork does not run what `atexit` has
        end()
    return 0


def runner_api(settings: Settings) -> int:
    """Serve the runner API."""
    from server.granian_server import serve

    serve(partial(create_runner_api, settings), address=settings.runner_api_host, port=settings.runner_api_port)
    return 0


def create_api(settings: Settings, on_end: Callable[[Callable[[], None]], None] = lambda _: None) -> "Gateway":
    """Build the public application; called by granian before it listens. ``on_end`` registers what ends with it."""
    from api import context, credentials, request_audit, tus
    from api.request_guard import encode_refusal, head_check
    from common.client_addresses import networks
    from server import composition
    from server.token_check import TokenCheck
    from server.wsgi_gateway import Gateway, HeadRules
    from web.paths import SIGN_IN, is_page

    _prepare_server("api", settings)
    application = composition.create_api()
    served = context.context_of(application)
    identification = served.identification
    if served.access is not None:
        on_end(served.access.audit.close)
    return Gateway(
        application,
        threads=settings.streams + 64,  # each stream blocks a thread; 64 remain for other requests
        limits=_body_limits(settings),
        answer=encode_refusal,
        rules=HeadRules(
            delay=TokenCheck(identification, networks(settings.trusted_proxies), (SIGN_IN, credentials.PASSWORD_FORM)),
            refuse=head_check(settings.names, identification, is_page, rates=served.request_rates, io=False),
            observe=request_audit.refusal_observer(served),
            is_upload=tus.is_upload,
        ),
    )


def create_runner_api(settings: Settings) -> "Gateway":
    """Build the runner API; called by granian before it listens."""
    from api.problems import encode
    from core.services.scheduling.leases import WAITING_REQUESTS
    from server import composition
    from server.granian_server import on_shutdown
    from server.wsgi_gateway import Gateway

    _prepare_server("runner-api", settings)
    callbacks: list[Callable[[], None]] = []
    return Gateway(
        composition.create_runner_api(callbacks.append),
        threads=RUNNER_API_THREADS + WAITING_REQUESTS,
        limits=_body_limits(settings),
        answer=encode,
        on_start=lambda: on_shutdown(*callbacks),
    )


def _prepare_server(name: str, settings: Settings) -> None:
    from server.granian_server import enable_keepalive
    from server.logs import configure

    configure(name, settings.log_level)  # again: granian has configured logging meanwhile
    enable_keepalive()


def _body_limits(settings: Settings) -> "BodyLimits":
    from server.request_bodies import BodyLimits

    return BodyLimits(
        idle=settings.body_timeout.total_seconds(),
        grace=settings.body_timeout.total_seconds(),
        rate=float(settings.body_rate),
        threads=settings.bodies,
    )


def dispatch(settings: Settings) -> int:
    """Run the dispatcher: state machine of simulations, launches on executors."""
    from core.services.scheduling.dispatch import Dispatch
    from server.composition import confinement_here, open_platform
    from workers.dispatcher import Dispatcher
    from workers.dispatcher_metrics import DispatcherMetrics
    from workers.executors.base import LocalPaths, Measured
    from workers.executors.registry import load_executor_configs, open_executors
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
    metrics = DispatcherMetrics()
    if settings.metrics_port:
        from server.metrics_server import start

        registries = [executor.registry for executor in executors.values() if isinstance(executor, Measured)]
        start(settings.metrics_port, [metrics.registry, *registries])
    platform = open_platform(settings, confinement_here(settings))
    Dispatcher(
        platform.scheduling,
        Dispatch(
            platform.database,
            platform.notifier,
            executor_configs=executor_configs,
            runner_api_url=settings.runner_api_address,
            trusted=settings.allows_trusted,
        ),
        [ManagedExecutor(context, executors[context.name]) for context in executor_configs],
        run_dir=settings.run_dir,
        ttl=settings.lease_ttl.total_seconds(),
        interval=settings.dispatch_interval.total_seconds(),
        metrics=metrics,
    ).run(stop)
    return 0


def jobs(settings: Settings) -> int:
    """Run background jobs: a supervisor of RQ workers, which this process forks with all modules imported."""
    from core.domain.scheduling.job_kinds import Due
    from core.notifications.redis_notifier import embedded
    from core.services.due_jobs import DueJobs
    from core.store.database import Database
    from server import composition
    from server.job_processes import JobProcesses
    from workers import liveness
    from workers.background_jobs import Jobs

    confinement = composition.confinement_here(settings)
    composition.import_platform()

    def open_functions() -> Mapping[str, Callable[[str], None]]:
        platform = composition.open_platform(settings, confinement)
        folder, level = settings.environments, int(confinement["level"]) or None  # None: no sandbox
        return Jobs(
            platform.jobs,
            platform.files,
            platform.catalogue,
            platform.pipelines,
            platform.upkeep,
            environments_folder=folder,
            sandbox=level,
        ).table

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
    from datasets.catalogue import datasets
    from datasets.nodecache.model_files import ModelFiles
    from runtimes.harness import sandbox
    from server.composition import connections_of, node_cache, store_of
    from workers.node_agent import Agent, AlreadyRunning
    from workers.warm_runner_pool import WarmRunnerOptions
    from workers.warm_runners import WarmKind

    _make_home(settings)
    level = sandbox.level() if settings.sandbox == "auto" else None
    runtime, format, dataset = INITIAL_WARM_KIND
    initial = None
    if initial_dataset := datasets().get(dataset):
        initial = WarmKind(runtime=runtime, format=format, dataset=dataset, version=initial_dataset.version)

    cache = node_cache(settings, store_of(settings), connections_of(settings))

    async def serve() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await Agent(
            home=settings.home.resolve(),
            models=ModelFiles(cache, largest=settings.max_unpacked),
            cores=settings.max_workers,
            sandbox=level.number if level is not None else None,
            refusal=level.refusal if level is not None else None,
            warm=WarmRunnerOptions(
                kinds=settings.warm_runners, memory=settings.warm_memory, forks=settings.warm_forks, initial=initial
            ),
        ).serve(stop)

    try:
        asyncio.run(serve())
    except AlreadyRunning as error:
        raise CannotStart(str(error)) from None
    return 0


def scs(settings: Settings) -> int:
    """Run this machine's cache service."""
    from datasets.scs import __main__ as service
    from server import cache_service

    _make_home(settings)
    try:
        config = cache_service.configure(
            settings.home.resolve(), settings.run_dir, settings.scs_port, settings.scs_config
        )
        return service.serve(config)
    except (ValueError, OSError) as error:
        raise CannotStart(f"{error} (WINDTUNNEL_SCS_PORT, WINDTUNNEL_SCS_CONFIG)") from None


def _make_home(settings: Settings) -> None:
    try:
        make(settings.home.resolve())
    except UnusableHome as error:
        raise CannotStart(str(error)) from None


def _stop_event() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


ROLES: Mapping[str, Callable[[Settings], int]] = {
    "migrate": migrate,
    "api": api,
    "runner-api": runner_api,
    "dispatch": dispatch,
    "jobs": jobs,
    "failed-jobs": failed_jobs,
    "agent": agent,
    "scs": scs,
}


def run_role(name: str, settings: Settings) -> int:
    """Run a role in this process until its end; return the exit status, REFUSED if it cannot start."""
    from server.logs import configure

    configure(name, settings.log_level)
    try:
        return ROLES[name](settings)
    except CannotStart as error:  # one line, which the supervisor repeats on the terminal
        logger.error(str(error))
        return REFUSED
