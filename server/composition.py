"""Composition root of the servers: settings -> adapters -> services -> applications.

Each factory imports only its own dependencies: the process of the runner API does not import Flask.
"""

import atexit
import importlib
import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.client_addresses import networks
from core.domain.access import cluster_accounts, identity_providers
from core.settings import Settings
from core.store.database import Database
from datasets.objectstore import ObjectStore, connections, open_store
from runtimes.harness import sandbox
from runtimes.packages.package_options import PackageOptions
from server import first_operator, role_health
from server.home import UMASK

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication
    from flask import Flask

    from core.domain.access.identity_providers import IdentityProvider
    from core.services.access.cluster_tokens import ReviewToken
    from core.services.platform import Platform
    from datasets.model_origins.config import OriginConfig
    from datasets.nodecache.node_cache import NodeCache
    from datasets.objectstore.connections import Connection
    from datasets.scs_client.cache_nodes import Membership
    from datasets.scs_client.client import CacheClient


logger = logging.getLogger(__name__)

#: Seconds that /readyz waits for the object store.
STORE_WAIT = 2.0


def open_platform(settings: Settings, confinement: dict[str, Any]) -> "Platform":
    """Open the database, stores and notifier of the settings, and build the services; the schema must be current."""
    from core.notifications.redis_notifier import RedisNotifier, embedded
    from core.services.datasets.map_conversion import MapLimits
    from core.services.platform import PlatformOptions, build
    from runtimes.converters.confined_converter import ConverterLimits
    from runtimes.dependencies.installer import InstallerOptions
    from workers.executors.registry import load_executor_configs, with_own_environments

    executor_configs = load_executor_configs(settings.executors, settings.max_workers)
    store, connections = store_of(settings), connections_of(settings)
    return build(
        Database(settings.database),
        store,
        RedisNotifier(settings.redis_url or embedded(settings.run_dir)),
        PlatformOptions(
            home=settings.home.resolve(),
            executor_configs=executor_configs,
            own_environments=with_own_environments(executor_configs),
            sandbox=confinement,
            streams=settings.streams,
            roles=partial(role_health.problem, settings.run_dir),
            lease_ttl=settings.lease_ttl.total_seconds(),
            upload_ttl=settings.upload_ttl.total_seconds(),
            audit_retention=settings.audit_retention.total_seconds(),
            identity_providers=identity_providers_of(settings),
            review_token=token_review_of(settings),
            cluster_grants=cluster_accounts.parse(settings.cluster_accounts),
            bin_term=settings.bin_term.total_seconds(),
            max_unpacked=settings.max_unpacked,
            installer=InstallerOptions(
                indexes=settings.package_indexes,
                hosts=settings.package_hosts,
                packages=settings.allowed_packages,
                largest=settings.max_environment,
                sandbox=settings.sandbox == "auto",
            ),
            packages=PackageOptions(
                mirrors=settings.debian_mirrors,
                suite=settings.debian_suite,
                keyring=settings.debian_keyring,
                packages=settings.debian_packages,
                largest=settings.max_environment,
            ),
            max_upload=settings.max_upload,
            max_resumable=settings.max_resumable,
            max_dataset=settings.max_dataset,
            maps=MapLimits(
                largest=settings.max_map,
                edges=settings.max_map_edges,
                converter=ConverterLimits(sandbox=settings.sandbox == "auto"),
            ),
            disk_floor=settings.disk_floor,
            uploads_per_caller=settings.uploads_per_caller,
            dry_runs=settings.dry_runs,
            prices=settings.usage_prices,
            webhook_key=settings.webhook_key,
            webhook_networks=settings.webhook_networks,
            public_url=settings.public_url,
            trusted=settings.allows_trusted,
            looks=settings.look_inside,
            ports_of_programs=settings.ports_of_programs,
            connections=connections,
            model_origins=model_origins_of(settings),
            cache_nodes=cache_nodes_of(settings).nodes,
        ),
        cache=node_cache(settings, store, connections),
    )


def import_platform() -> None:
    """Import what `open_platform` imports late, for a process that forks others before they open the platform."""
    for module in ("core.notifications.redis_notifier", "core.services.platform", "datasets.nodecache.node_cache"):
        importlib.import_module(module)
    importlib.import_module("workers.executors.registry")


def store_of(settings: Settings) -> ObjectStore:
    """Open the object store of ``OBJECT_STORE_URL``, with its credentials."""
    return open_store(settings.objects, (settings.object_store_access_key, settings.object_store_secret_key))


def connections_of(settings: Settings) -> "Mapping[str, Connection]":
    """Return the object storage connections of ``CONNECTIONS``, by name."""
    return connections.load(settings.connections_file)


def identity_providers_of(settings: Settings) -> "Mapping[str, IdentityProvider]":
    """Return the identity providers of ``IDENTITY_PROVIDERS``, by name. Raise ValueError."""
    file = settings.identity_providers_file
    if not settings.multi_user or not (settings.identity_providers or file.exists()):
        return {}
    try:
        return identity_providers.parse(file.read_bytes())
    except OSError as error:
        raise ValueError(f"the file {file} (IDENTITY_PROVIDERS) cannot be read: {error.strerror}") from None


def token_review_of(settings: Settings) -> "ReviewToken | None":
    """Return what asks the API server of ``CLUSTER_KUBECONFIG`` about tokens; None if ``CLUSTER_ACCOUNTS`` has none."""
    if not (settings.multi_user and settings.cluster_accounts):
        return None
    from server.token_review import TokenReview

    return TokenReview(settings.cluster_kubeconfig)


def model_origins_of(settings: Settings) -> "OriginConfig":
    """Return the other origins of models of ``CONNECTIONS``: addresses and MLflow servers."""
    from datasets.model_origins import config

    return config.load(settings.connections_file)


def node_cache(settings: Settings, store: ObjectStore, known: "Mapping[str, Connection]") -> "NodeCache":
    """Open the node cache."""
    from datasets.nodecache.node_cache import NodeCache

    return NodeCache(
        settings.cache,
        store,
        known,
        capacity=settings.cache_capacity or None,
        policy=eviction_policy(settings),
        cache_client=near_of(settings),
    )


def eviction_policy(settings: Settings) -> str:
    """Return the name of the node cache's eviction policy; raise ValueError if there is no such policy."""
    from datasets.eviction.policies import load_policy

    try:
        load_policy(settings.cache_eviction)
    except ValueError as error:
        raise ValueError(f"WINDTUNNEL_CACHE_EVICTION: {error}") from None
    return settings.cache_eviction


def near_of(settings: Settings) -> "CacheClient | None":
    """Return the cache service that reads go to first, None where there is none."""
    if not settings.scs_nodes:
        return None
    from datasets.scs_client.client import SimpleCache
    from datasets.scs_client.membership import open_membership

    token = Path(settings.scs_token_file) if settings.scs_token_file else None
    nodes = open_membership(settings.scs_nodes)
    return SimpleCache(nodes, bucket=settings.scs_bucket, zone=settings.scs_zone, token=token)


def cache_nodes_of(settings: Settings) -> "Membership":
    """Return the nodes of the cache service whose use is shown: those that are read, or this machine's own."""
    from datasets.scs_client.membership import open_membership

    own = (f"http://127.0.0.1:{settings.scs_port}",) if settings.scs_port else ()
    return open_membership(settings.scs_nodes or own)


def confinement_here(settings: Settings) -> dict[str, Any]:
    """Return the sandbox level of this machine, and the missing layers."""
    if settings.sandbox == "none":
        return {"level": 0, "missing": ["everything: WINDTUNNEL_SANDBOX is none"]}
    level = sandbox.level()
    return {"level": level.number, "missing": list(level.missing)}


def checks(platform: "Platform") -> dict[str, Callable[[], str | None]]:
    """Return the checks of /readyz, by component: each returns None if healthy, else the problem."""

    def database() -> str | None:
        try:
            with platform.database.read() as c:
                platform.database.now(c)
        except Exception as error:
            return f"the database (DATABASE_URL) does not answer ({type(error).__name__})"
        return None

    def notifier() -> str | None:
        return None if platform.notifier.alive() else "Redis (REDIS_URL) does not answer; every consumer polls instead"

    def dispatcher() -> str | None:
        try:
            with platform.database.read() as c:
                return platform.standstill.leaderless(c)
        except Exception:  # the check of the database says so
            return None

    return {
        "database": database,
        "notifier": notifier,
        "store": lambda: platform.scheduling.store_health.problem(STORE_WAIT),
        "roles": platform.standstill.roles,
        "dispatcher": dispatcher,
        "webhooks": lambda: webhook_key_problem(platform),
    }


def webhook_key_problem(platform: "Platform") -> str | None:
    """Return the problem if this process cannot sign for the webhooks that there are, else None."""
    try:
        return platform.operations.webhooks.key_problem()
    except Exception:  # the check of the database says so
        return None


def disk_problem(home: Path) -> str | None:
    """Return the problem if the disk of ``home`` is too full for new objects and rows, else None."""
    from datasets.objectstore.filesystem import reserve_of

    try:
        disk = os.statvfs(home)
    except OSError as error:
        return f"the folder {home} (HOME) cannot be used: {error.strerror}"
    free, reserve = disk.f_bavail * disk.f_frsize, reserve_of(disk)
    if free >= reserve:
        return None
    return f"the disk of {home} (HOME) is full: {free >> 20} MiB are free, {reserve >> 20} MiB are kept free"


def create_flask(platform: "Platform", settings: Settings, confinement: dict[str, Any] | None = None) -> "Flask":
    """Build the public application, API and web page, on open services."""
    from api import application, identification
    from api.context import Context
    from api.request_guard import RequestGuard
    from web import application as web
    from web.mounting import mount

    identities: identification.Identification = identification.OneToken(settings.token)
    if settings.multi_user:
        access, proxies = platform.access, networks(settings.trusted_proxies)
        first_operator.begin(access.accounts, settings.home.resolve(), settings.token)
        identities = identification.ByAccounts(
            access.authentication, platform.sign_in.sessions, proxies, settings.legacy_project
        )
    if (
        problem := webhook_key_problem(platform)
    ) is not None:  # found at the start, not by a receiver that misses events
        logger.error("%s", problem)
    spool = settings.home.resolve() / "uploads"
    spool.mkdir(parents=True, exist_ok=True)
    flask = application.create(
        Context(
            files=platform.files,
            catalogue=platform.catalogue,
            submissions=platform.submissions,
            analysis=platform.analysis,
            comparisons=platform.comparisons,
            pipelines=platform.pipelines,
            operations=platform.operations,
            names=settings.names,
            max_upload=settings.max_upload,
            streams=settings.streams,
            project_share=settings.project_share,
            project_rate=settings.project_rate if settings.multi_user else 0,
            project_burst=settings.project_burst,
            spool=spool,
            sandbox=confinement or {},
            identification=identities,
            access=platform.access if settings.multi_user else None,
            sign_in=platform.sign_in if settings.multi_user else None,
            proxies=networks(settings.trusted_proxies),
            checks=checks(platform) | {"disk": lambda: disk_problem(settings.home)},
        )
    )
    # `mount` passes only requests of pages to this application.
    page = RequestGuard(web.create(flask.wsgi_app).wsgi_app, names=settings.names, is_page=lambda path: True)
    both = mount(flask.wsgi_app, page, flask.url_map.bind("localhost"))
    flask.wsgi_app = both  # type: ignore[method-assign, assignment]
    return flask


def create_api() -> "Flask":
    """Build the public application."""
    os.umask(UMASK)  # a server other than `python -m server` has its own
    settings = Settings.from_env(os.environ)
    confinement = confinement_here(settings)
    platform = open_platform(settings, confinement)
    atexit.register(platform.access.audit.close)
    return create_flask(platform, settings, confinement)


def create_runner_api(on_shutdown: "Callable[[Callable[[], None]], None]" = lambda _: None) -> "WSGIApplication":
    """Build the runner API.

    ``on_shutdown`` registers a callback that runs when the process is asked to end: runners that wait are answered.
    """
    from api import runner_api
    from core.notifications.redis_notifier import RedisNotifier, embedded
    from core.services.datasets.file_sources import Sources
    from core.services.datasets.scenario_specs import ScenarioSpecs
    from core.services.scheduling.leases import LeaseOptions, Leases

    os.umask(UMASK)
    settings = Settings.from_env(os.environ)
    notifier = RedisNotifier(settings.redis_url or embedded(settings.run_dir))
    options = LeaseOptions(
        ttl=settings.lease_ttl.total_seconds(),
        max_unpacked=settings.max_unpacked,
        max_output=settings.max_output,
        looks=settings.look_inside,
        ports=settings.ports_of_programs,
    )
    database, store = Database(settings.database), store_of(settings)
    specs = ScenarioSpecs(database, store, Sources(store, connections_of(settings)))
    leases = Leases(database, store, notifier, options=options, specs=specs)
    on_shutdown(leases.close)
    return runner_api.create(leases)
