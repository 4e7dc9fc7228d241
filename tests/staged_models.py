"""Staging for tests: on a node cache of their own, with an installer that has no package index by default."""

from pathlib import Path

from core.domain.access.scopes import PLATFORM
from core.domain.scheduling.preparation import Preparation
from core.domain.scheduling.states import State
from core.services.platform import Platform
from core.services.scheduling.model_environments import ModelEnvironments
from core.services.scheduling.staging import Staging
from core.services.store_health import StoreHealth
from core.store import simulations
from datasets.download.downloader import RetryLimits
from datasets.nodecache.model_files import ModelFiles
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.connections import Connection
from datasets.objectstore.s3 import S3Store
from runtimes.dependencies.installer import Installer, InstallerOptions
from runtimes.packages.package_installer import PackageInstaller
from runtimes.packages.package_options import PackageOptions
from tests.ports import free_ports


def staging_on(
    platform: Platform,
    cache: NodeCache,
    home: Path,
    indexes: tuple[str, ...] = (),
    store_health: StoreHealth | None = None,
) -> Staging:
    """Return a platform's staging on another node; no model has dependencies, unless there are ``indexes``."""
    installer = Installer(home / "packages", InstallerOptions(indexes=indexes, hosts=(), environ={}))
    packages = PackageInstaller(PackageOptions(mirrors=()), platform.store)
    models = ModelEnvironments(platform.database, ModelFiles(cache), installer, packages, home / "scratch")
    datasets, health = platform.catalogue.datasets, store_health or platform.scheduling.store_health
    return Staging(platform.database, platform.notifier, datasets, models, health, home=home)


def unreachable_cache(home: Path) -> NodeCache:
    """Return the cache of a node whose object store refuses connections."""
    nowhere = Connection(name="own", endpoint=f"http://127.0.0.1:{free_ports(1)[0]}", access_key="a", secret_key="b")
    retry_limits = RetryLimits(connect=1.0, tries=1, first=0.01)
    return NodeCache(home / "elsewhere", S3Store(nowhere, "objects"), retry_limits=retry_limits)


def stage(platform: Platform, staging: Staging, id: str) -> None:
    """Stage a queued simulation as a job does that may take long."""
    changes = {"preparation": Preparation.LONG.value}
    platform.database.write(lambda c: simulations.move(c, id, State.QUEUED, State.STAGING, 0.0, **changes))
    staging.stage(id)


def is_prepared(platform: Platform, id: str) -> bool:
    """Return whether a simulation has been staged and waits for workers."""
    with platform.database.read() as c:
        row = simulations.find(c, PLATFORM, id)
    return (row.state, row.preparation) == (State.QUEUED, Preparation.DONE)
