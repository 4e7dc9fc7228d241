"""Staging for tests: on a node cache of their own, with an installer that has no package index by default."""

from pathlib import Path
from typing import Any

from core.domain.scheduling.preparation import Preparation
from core.domain.scheduling.states import State
from core.services.platform import Platform
from core.services.scheduling.model_environments import ModelEnvironments
from core.services.scheduling.staging import Staging
from core.store import simulations
from datasets.nodecache.model_files import ModelFiles
from datasets.nodecache.node_cache import NodeCache
from runtimes.dependencies.installer import Installer, InstallerOptions
from runtimes.packages.package_installer import PackageInstaller
from runtimes.packages.package_options import PackageOptions


def staging_on(
    platform: Platform, cache: NodeCache, home: Path, indexes: tuple[str, ...] = (), **changes: Any
) -> Staging:
    """Return a platform's staging on another node; no model has dependencies, unless there are ``indexes``."""
    installer = Installer(home / "packages", InstallerOptions(indexes=indexes, hosts=(), environ={}))
    packages = PackageInstaller(PackageOptions(mirrors=()), platform.store)
    models = ModelEnvironments(platform.database, ModelFiles(cache), installer, packages)
    values = {"datasets": platform.catalogue.datasets, "store_health": platform.scheduling.store_health} | changes
    return Staging(platform.database, platform.notifier, values["datasets"], models, values["store_health"], home=home)


def stage(platform: Platform, staging: Staging, id: str) -> None:
    """Stage a queued simulation as a job does that may take long."""
    changes = {"preparation": Preparation.LONG.value}
    platform.database.write(lambda c: simulations.move(c, id, State.QUEUED, State.STAGING, 0.0, **changes))
    staging.stage(id)


def is_prepared(platform: Platform, id: str) -> bool:
    """Return whether a simulation has been staged and waits for workers."""
    with platform.database.read() as c:
        row = simulations.find(c, id)
    return (row.state, row.preparation) == (State.QUEUED, Preparation.DONE)
