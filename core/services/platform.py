"""Service wiring: builds all services over one database, one object store and one notifier, for composition roots."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.domain.scheduling.executor_config import ExecutorConfig
from core.notifications.change_notifier import ChangeNotifier, Waiters, simulation_waiters
from core.notifications.launch_waiters import LaunchWaiters
from core.notifications.notifier import Notifier
from core.services.analysis.comparison import Comparison
from core.services.analysis.distributions import Distributions
from core.services.analysis.leaderboards import Leaderboards
from core.services.analysis.replays import Replays
from core.services.analysis.result_selections import ResultSelections
from core.services.analysis.result_tables import ResultTables
from core.services.analysis.sensitivities import Sensitivities
from core.services.analysis.sweeps import Sweeps
from core.services.analysis.worst_results import WorstResults
from core.services.comparisons.comparison_batches import ComparisonBatches
from core.services.comparisons.comparison_flips import ComparisonFlips
from core.services.comparisons.comparisons import Comparisons
from core.services.datasets.catalogue import Catalogue
from core.services.datasets.dataset_registration import DatasetRegistration, RegistrationLimits
from core.services.datasets.datasets import Datasets
from core.services.datasets.environment_registration import EnvironmentRegistration
from core.services.datasets.file_sources import Sources
from core.services.datasets.map_conversion import MapLimits
from core.services.datasets.scenario_maps import ScenarioMaps
from core.services.datasets.scenario_specs import ScenarioSpecs
from core.services.operations.cache_use import CacheUse, Nodes
from core.services.operations.machine_storage import MachineStorage
from core.services.operations.queue import Queue
from core.services.operations.storage_use import StorageUse
from core.services.scheduling.executors import Executors
from core.services.scheduling.leases import LeaseOptions, Leases
from core.services.scheduling.model_environments import ModelEnvironments
from core.services.scheduling.staging import Staging
from core.services.simulations.bulk import Bulk
from core.services.simulations.deletion import Deletion
from core.services.simulations.finalization import Finalization
from core.services.simulations.list_changes import ListChanges
from core.services.simulations.results import Results
from core.services.simulations.run_logging import RunLogging
from core.services.simulations.simulations import SimulationOptions, Simulations
from core.services.standstill import Standstill
from core.services.store_health import StoreHealth
from core.services.submissions.model_imports import ModelImports
from core.services.submissions.model_origins import ModelOrigins
from core.services.submissions.resolving import Resolver
from core.services.uploads.disk_floor import DiskFloor
from core.services.uploads.models import Models
from core.services.uploads.transfers import Transfers
from core.services.uploads.uploads import UploadLimits, Uploads
from core.store.database import Database
from datasets.model_origins.config import OriginConfig
from datasets.nodecache.model_files import ModelFiles
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.base import ObjectStore
from datasets.objectstore.connections import Connection
from datasets.objectstore.filesystem import FilesystemStore
from runtimes.dependencies.installer import Installer, InstallerOptions
from runtimes.limits import ServerLimits


@dataclass(frozen=True, slots=True)
class Platform:
    """All services, over one database, one object store and one notifier."""

    database: Database
    store: ObjectStore
    notifier: Notifier
    changes: Waiters
    catalogue: Catalogue
    executors: Executors
    models: Models
    simulations: Simulations
    bulk: Bulk
    list_changes: ListChanges
    model_imports: ModelImports
    run_logging: RunLogging
    results: Results
    comparison: Comparison
    comparisons: Comparisons
    comparison_batches: ComparisonBatches
    comparison_flips: ComparisonFlips
    sweeps: Sweeps
    distributions: Distributions
    sensitivities: Sensitivities
    worst_results: WorstResults
    leaderboards: Leaderboards
    selections: ResultSelections
    replays: Replays
    leases: Leases
    staging: Staging
    finalization: Finalization
    deletion: Deletion
    uploads: Uploads
    transfers: Transfers
    datasets: Datasets
    dataset_registration: DatasetRegistration
    scenario_maps: ScenarioMaps
    disk_floor: DiskFloor
    store_health: StoreHealth
    standstill: Standstill
    storage_use: StorageUse
    cache_use: CacheUse
    queue: Queue


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformOptions:
    """Options of the services; durations in seconds, sizes in bytes.

    ``home``: folder of all data on this machine. ``sandbox``: this machine's sandbox, as recorded in provenance.
    ``own_environments``: names of the executors that bring their own environments and share no folder with this
    machine. ``gang_executors``: names of the executors that can start gangs. ``streams``: maximum of open streams.
    ``roles``: returns which processes of the platform on this machine do not work, None if all do.
    ``disk_floor``: see `DiskFloor`. ``cache_nodes``: returns the nodes of the cache service, whose use is shown.
    """

    home: Path
    executor_configs: Sequence[ExecutorConfig]
    sandbox: Mapping[str, Any]
    own_environments: Collection[str] = ()
    gang_executors: Collection[str] = ()
    streams: int = 1000
    lease_ttl: float = 10.0
    upload_ttl: float = 86_400.0
    max_upload: int = 4 << 30
    max_unpacked: int = 4 << 30
    max_resumable: int = 64 << 30
    max_dataset: int = 1 << 40
    maps: MapLimits = field(default_factory=MapLimits)
    disk_floor: int = 0
    uploads_per_caller: int = 500
    dry_runs: int = 16
    connections: Mapping[str, Connection] = field(default_factory=dict)
    model_origins: OriginConfig = field(default_factory=OriginConfig)
    installer: InstallerOptions = field(default_factory=InstallerOptions)
    cache_nodes: Nodes = tuple
    roles: Callable[[], str | None] = lambda: None


def build(
    database: Database,
    store: ObjectStore,
    notifier: Notifier,
    options: PlatformOptions,
    *,
    cache: NodeCache | None = None,
) -> Platform:
    """Build all services; without a ``cache``, with a node cache under ``home``."""
    home = options.home
    change_notifier = ChangeNotifier(database, notifier)
    changes = simulation_waiters(change_notifier, slots=options.streams)
    objects = store.root if isinstance(store, FilesystemStore) else None
    floor = DiskFloor(home, objects, least=options.disk_floor)
    models = Models(
        database,
        store,
        home / "scratch",
        largest=options.max_upload,
        largest_unpacked=options.max_unpacked,
        floor=floor,
    )
    uploads = Uploads(
        database,
        store,
        ttl=options.upload_ttl,
        largest=options.max_resumable,
        limits=UploadLimits(per_caller=options.uploads_per_caller),
        floor=floor,
    )
    sources = Sources(store, options.connections)
    datasets = Datasets(database, store, notifier, uploads, sources, floor)
    resolver = Resolver(
        models, datasets, options.executor_configs, sandbox=options.sandbox, gang_executors=options.gang_executors
    )
    results = Results(database, store, changes)
    origins = ModelOrigins(sources, options.model_origins, home / "scratch", largest=options.max_upload)
    imports = ModelImports(database, notifier, models, resolver, origins)
    standstill = Standstill(database, options.roles)
    simulation_options = SimulationOptions(standstill=standstill, most_dry_runs=options.dry_runs)
    simulations = Simulations(database, notifier, changes, resolver, results, imports, simulation_options)
    specs = ScenarioSpecs(database, store, sources)
    tables = ResultTables(database, results, specs)
    store_health = StoreHealth(store)
    cache = cache or NodeCache(home / "cache", store, options.connections)
    files = ModelFiles(cache, largest=options.max_unpacked)
    installer = Installer((home / "packages").resolve(), options.installer)  # a sandbox has its real path only
    return Platform(
        database=database,
        store=store,
        notifier=notifier,
        changes=changes,
        catalogue=Catalogue(
            home / "environments",
            ServerLimits(model=options.max_upload, unpacked=options.max_unpacked),
            options.installer,
        ),
        executors=Executors(database, notifier, options.executor_configs),
        models=models,
        simulations=simulations,
        bulk=Bulk(database, simulations),
        list_changes=ListChanges(database, changes),
        model_imports=imports,
        run_logging=RunLogging(database, notifier, origins),
        results=results,
        comparison=Comparison(simulations, results),
        comparisons=Comparisons(database, notifier, changes, resolver),
        comparison_batches=ComparisonBatches(database, notifier, simulations, results, specs),
        comparison_flips=ComparisonFlips(database, results),
        sweeps=Sweeps(simulations, results),
        distributions=Distributions(database, tables),
        sensitivities=Sensitivities(tables),
        worst_results=WorstResults(tables, results),
        leaderboards=Leaderboards(database, datasets),
        selections=ResultSelections(database, results, tables),
        replays=Replays(database, store, notifier, results),
        leases=Leases(
            database,
            store,
            notifier,
            options=LeaseOptions(ttl=options.lease_ttl, max_unpacked=options.max_unpacked),
            specs=specs,
            launch_waiters=LaunchWaiters(database, change_notifier),
        ),
        staging=Staging(
            database,
            notifier,
            datasets,
            ModelEnvironments(database, files, installer),
            store_health,
            home=home,
            own_environments=options.own_environments,
        ),
        finalization=Finalization(database, store, notifier, results),
        deletion=Deletion(database, store),
        uploads=uploads,
        transfers=Transfers(store),
        datasets=datasets,
        dataset_registration=DatasetRegistration(
            database,
            store,
            uploads,
            sources,
            datasets,
            EnvironmentRegistration(installer, cache, home),
            RegistrationLimits(largest=options.max_dataset, floor=floor, maps=options.maps),
        ),
        scenario_maps=ScenarioMaps(datasets),
        disk_floor=floor,
        store_health=store_health,
        standstill=standstill,
        storage_use=StorageUse(database, floor, MachineStorage(home / "environments", cache)),
        cache_use=CacheUse(cache, options.cache_nodes),
        queue=Queue(database, options.executor_configs),
    )
