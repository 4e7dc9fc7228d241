"""Service wiring: builds all services over one database, one object store and one notifier, for composition roots."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from core.domain.executor_config import ExecutorConfig
from core.notifications.change_notifier import ChangeNotifier
from core.notifications.notifier import Notifier
from core.services.datasets.catalogue import Catalogue
from core.services.datasets.dataset_registration import DatasetRegistration
from core.services.datasets.datasets import Datasets
from core.services.datasets.file_sources import Sources
from core.services.scheduling.executors import Executors
from core.services.scheduling.leases import Leases
from core.services.scheduling.staging import Staging
from core.services.simulations.comparison import Comparison
from core.services.simulations.finalization import Finalization
from core.services.simulations.replays import Replays
from core.services.simulations.results import Results
from core.services.simulations.simulations import Simulations
from core.services.uploads.models import Models
from core.services.uploads.transfers import Transfers
from core.services.uploads.uploads import Uploads
from core.store.database import Database
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.base import ObjectStore
from datasets.objectstore.connections import Connection


@dataclass(frozen=True, slots=True)
class Platform:
    """All services, over one database, one object store and one notifier."""

    database: Database
    store: ObjectStore
    notifier: Notifier
    changes: ChangeNotifier
    catalogue: Catalogue
    executors: Executors
    models: Models
    simulations: Simulations
    results: Results
    comparison: Comparison
    replays: Replays
    leases: Leases
    staging: Staging
    collecting: Finalization
    uploads: Uploads
    transfers: Transfers
    datasets: Datasets
    registering: DatasetRegistration


def build(
    database: Database,
    store: ObjectStore,
    notifier: Notifier,
    *,
    home: Path,
    executor_configs: Sequence[ExecutorConfig],
    sandbox: Mapping[str, Any],
    apart: Collection[str] = (),
    gangs: Collection[str] = (),
    streams: int = 1000,
    lease_ttl: float = 10.0,
    upload_ttl: float = 86_400.0,
    max_resumable: int = 64 << 30,
    connections: Mapping[str, Connection] = MappingProxyType({}),
    cache: NodeCache | None = None,
) -> Platform:
    """Build all services.

    ``executor_configs``: the executors; those in ``apart`` bring their own environments and share no folder with this
    machine; those in ``gangs`` can start gangs. ``sandbox``: this machine's sandbox, as recorded in provenance.
    """
    changes = ChangeNotifier(database, notifier, slots=streams)
    models = Models(database, store, home / "scratch")
    uploads = Uploads(database, store, ttl=upload_ttl, largest=max_resumable)
    sources = Sources(store, connections)
    datasets = Datasets(database, store, notifier, uploads, sources)
    simulations = Simulations(
        database,
        store,
        models,
        datasets,
        notifier,
        changes,
        executor_configs=executor_configs,
        sandbox=sandbox,
        gangs=gangs,
    )
    results = Results(database, store, changes)
    return Platform(
        database=database,
        store=store,
        notifier=notifier,
        changes=changes,
        catalogue=Catalogue(home / "environments"),
        executors=Executors(database, executor_configs),
        models=models,
        simulations=simulations,
        results=results,
        comparison=Comparison(simulations, results),
        replays=Replays(database, store, notifier, results),
        leases=Leases(database, store, notifier, ttl=lease_ttl),
        staging=Staging(
            database,
            notifier,
            datasets,
            cache or NodeCache(home / "cache", store, connections),
            environments_folder=home / "environments",
            plays=home / "plays",
            objects=store,
            apart=apart,
        ),
        collecting=Finalization(database, store, notifier, results),
        uploads=uploads,
        transfers=Transfers(store),
        datasets=datasets,
        registering=DatasetRegistration(database, store, uploads, sources, datasets, home / "scratch"),
    )
