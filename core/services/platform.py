"""Service wiring: builds the groups of services over one database, object store and notifier, for composition roots."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from common.client_addresses import networks
from core.authenticators.passwords import Passwords
from core.domain.access.cluster_accounts import ClusterGrant
from core.domain.access.identity_providers import IdentityProvider
from core.domain.scheduling.eligibility import Eligibility
from core.domain.scheduling.executor_config import ExecutorConfig
from core.domain.usage.usage_sums import Prices
from core.notifications.change_notifier import ChangeNotifier, Waiters, simulation_waiters
from core.notifications.launch_waiters import LaunchWaiters
from core.notifications.notifier import Notifier
from core.services.access.accounts import Accounts
from core.services.access.audit import Audit
from core.services.access.authentication import UserAuthentication
from core.services.access.browser_sessions import BrowserSessions
from core.services.access.cluster_tokens import ClusterTokens, ReviewToken
from core.services.access.device_sign_ins import DeviceSignIns
from core.services.access.provider_sign_ins import ProviderSignIns
from core.services.access.quotas import Quotas
from core.services.access.shares import Shares
from core.services.access.sign_in_methods import SignInMethods
from core.services.access.sign_ins import SignIns
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
from core.services.datasets.prefetches import Prefetches
from core.services.datasets.scenario_maps import ScenarioMaps
from core.services.datasets.scenario_specs import ScenarioSpecs
from core.services.operations.cache_use import CacheUse, Nodes
from core.services.operations.job_usage import JobUsage
from core.services.operations.machine_storage import MachineStorage
from core.services.operations.queue import Queue
from core.services.operations.storage_use import StorageUse
from core.services.operations.usage_reports import UsageReports
from core.services.pipelines.pipeline_steps import PipelineSteps
from core.services.pipelines.pipelines import Pipelines
from core.services.pipelines.step_checks import StepChecks
from core.services.pipelines.step_resolution import StepResolution
from core.services.project_ends import ProjectContent, ProjectEnds
from core.services.retention.bin import Bin
from core.services.retention.project_retention import ProjectRetention
from core.services.scheduling.executors import Executors
from core.services.scheduling.leases import LeaseOptions, Leases
from core.services.scheduling.model_environments import ModelEnvironments
from core.services.scheduling.staging import Staging
from core.services.service_groups import (
    AccessServices,
    AnalysisServices,
    CatalogueServices,
    ComparisonServices,
    FileServices,
    JobServices,
    OperationServices,
    PipelineServices,
    SchedulingServices,
    SignInServices,
    SubmissionServices,
    UpkeepServices,
)
from core.services.simulations.bulk import Bulk
from core.services.simulations.deletion import Deletion
from core.services.simulations.finalization import Finalization
from core.services.simulations.list_changes import ListChanges
from core.services.simulations.looks import TaskLooks
from core.services.simulations.packed_results import ResultPacking
from core.services.simulations.results import Results
from core.services.simulations.run_logging import RunLogging
from core.services.simulations.simulation_outputs import SimulationOutputs
from core.services.simulations.simulations import SimulationOptions, Simulations
from core.services.standstill import Standstill
from core.services.store_health import StoreHealth
from core.services.submissions.estimates import Estimates
from core.services.submissions.model_imports import ModelImports
from core.services.submissions.model_origins import ModelOrigins
from core.services.submissions.resolving import Resolver
from core.services.uploads.disk_floor import DiskFloor
from core.services.uploads.models import Models
from core.services.uploads.transfers import Transfers
from core.services.uploads.uploads import UploadLimits, Uploads
from core.services.webhooks.receiver_posts import ReceiverPosts
from core.services.webhooks.webhook_delivery import WebhookDelivery
from core.services.webhooks.webhook_secrets import WebhookSecrets, key_of, present_key_of
from core.services.webhooks.webhooks import Webhooks
from core.store.database import Database
from datasets.model_origins.config import OriginConfig
from datasets.nodecache.model_files import ModelFiles
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.base import ObjectStore
from datasets.objectstore.connections import Connection
from datasets.objectstore.filesystem import FilesystemStore
from runtimes.dependencies.installer import Installer, InstallerOptions
from runtimes.limits import ServerLimits
from runtimes.packages.package_installer import PackageInstaller
from runtimes.packages.package_options import PackageOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Platform:
    """The groups of services, over one database, one object store and one notifier."""

    database: Database
    store: ObjectStore
    notifier: Notifier
    standstill: Standstill
    access: AccessServices
    upkeep: UpkeepServices
    sign_in: SignInServices
    files: FileServices
    catalogue: CatalogueServices
    submissions: SubmissionServices
    analysis: AnalysisServices
    comparisons: ComparisonServices
    pipelines: PipelineServices
    operations: OperationServices
    scheduling: SchedulingServices
    jobs: JobServices


@dataclass(frozen=True, kw_only=True, slots=True)
class PlatformOptions:
    """Options of the services; durations in seconds, sizes in bytes.

    ``home``: folder of all data on this machine. ``sandbox``: this machine's sandbox, as recorded in provenance.
    ``own_environments``: names of the executors that bring their own environments and share no folder with this
    machine. ``streams``: maximum of open streams.
    ``roles``: returns which processes of the platform on this machine do not work, None if all do.
    ``trusted``: whether submissions may be trusted; ``looks``: whether people may look into tasks that run.
    ``ports_of_programs``: those that they may connect to. ``disk_floor``: see `DiskFloor`.
    ``webhook_key``: of which secrets are made; empty: the one in a file of ``home``. ``webhook_networks``: where
    webhooks may be beside the public Internet. ``public_url``: where clients find the platform; empty: not known.
    ``cache_nodes``: returns the nodes of the cache service, whose use is shown.
    """

    home: Path
    executor_configs: Sequence[ExecutorConfig]
    sandbox: Mapping[str, object]
    own_environments: Collection[str] = ()
    streams: int = 1000
    lease_ttl: float = 10.0
    upload_ttl: float = 86_400.0
    audit_retention: float = 400 * 86_400.0
    bin_term: float = 7 * 86_400.0
    max_upload: int = 4 << 30
    max_unpacked: int = 4 << 30
    max_resumable: int = 64 << 30
    max_dataset: int = 1 << 40
    maps: MapLimits = field(default_factory=MapLimits)
    disk_floor: int = 0
    uploads_per_caller: int = 500
    dry_runs: int = 16
    prices: Prices = field(default_factory=Prices)
    webhook_key: str = ""
    webhook_networks: Collection[str] = ()
    public_url: str = ""
    trusted: bool = False
    looks: bool = False
    ports_of_programs: Collection[int] = ()
    connections: Mapping[str, Connection] = field(default_factory=dict)
    model_origins: OriginConfig = field(default_factory=OriginConfig)
    installer: InstallerOptions = field(default_factory=InstallerOptions)
    packages: PackageOptions = field(default_factory=PackageOptions)
    identity_providers: Mapping[str, IdentityProvider] = field(default_factory=dict)
    review_token: ReviewToken | None = None
    cluster_grants: Collection[ClusterGrant] = ()
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
    change_notifier = ChangeNotifier(database, notifier)
    changes = simulation_waiters(change_notifier, slots=options.streams)
    sources = Sources(store, options.connections)
    shared = _Shared(
        database=database,
        store=store,
        notifier=notifier,
        options=options,
        change_notifier=change_notifier,
        cache=cache or NodeCache(options.home / "cache", store, options.connections),
        sources=sources,
        origins=ModelOrigins(sources, options.model_origins, options.home / "scratch", largest=options.max_upload),
        # A sandbox has its real path only.
        installer=Installer((options.home / "packages").resolve(), options.installer),
        specs=ScenarioSpecs(database, store, sources),
        results=Results(database, store, changes),
        webhook_secrets=WebhookSecrets(
            partial(key_of, options.webhook_key, options.home),
            partial(present_key_of, options.webhook_key, options.home),
        ),
        posts=ReceiverPosts(networks(options.webhook_networks)),
    )
    standstill = Standstill(database, options.roles)
    sign_in = _sign_in_services(database, options.identity_providers)
    files = _file_services(shared)
    catalogue = _catalogue_services(shared, files)
    resolver = Resolver(
        files.models,
        catalogue.datasets,
        Eligibility(options.executor_configs),
        sandbox=options.sandbox,
        trusted=options.trusted,
    )
    submissions = _submission_services(shared, files.models, resolver, changes, standstill)
    analysis = _analysis_services(shared, submissions.simulations)
    scheduling = _scheduling_services(shared, catalogue.datasets)
    comparisons = Comparisons(database, notifier, changes, resolver)
    operations = _operation_services(shared, files.disk_floor)
    pipelines = Pipelines(database, notifier, changes, StepChecks(resolver, comparisons))
    outputs = SimulationOutputs(
        database, shared.results, files.models, catalogue.datasets, ResultPacking(store, shared.results)
    )
    audit = Audit(database, retention=options.audit_retention)
    project_ends = ProjectEnds(
        database,
        notifier,
        ProjectContent(
            simulations=submissions.simulations,
            comparisons=comparisons,
            pipelines=pipelines,
            models=files.models,
            datasets=catalogue.datasets,
            uploads=files.uploads,
            bin=files.bin,
        ),
    )
    return Platform(
        database=database,
        store=store,
        notifier=notifier,
        standstill=standstill,
        access=AccessServices(
            accounts=Accounts(database),
            authentication=UserAuthentication(database, cluster=_cluster_tokens(database, options)),
            audit=audit,
            quotas=operations.quotas,
            shares=Shares(database),
            project_ends=project_ends,
        ),
        upkeep=UpkeepServices(
            quotas=operations.quotas,
            audit=audit,
            project_ends=project_ends,
            job_usage=JobUsage(database),
            provider_sign_ins=sign_in.provider_sign_ins,
            webhook_delivery=WebhookDelivery(
                database, shared.webhook_secrets, shared.posts, platform_url=options.public_url
            ),
        ),
        sign_in=sign_in,
        files=files,
        catalogue=catalogue,
        submissions=submissions,
        analysis=analysis,
        comparisons=ComparisonServices(
            comparisons=comparisons,
            comparison_flips=ComparisonFlips(database, shared.results),
        ),
        pipelines=PipelineServices(
            pipelines,
            PipelineSteps(
                database, notifier, submissions.simulations, comparisons, StepResolution(resolver, comparisons, outputs)
            ),
        ),
        operations=operations,
        scheduling=scheduling,
        jobs=_job_services(
            shared, files, catalogue.datasets, submissions, scheduling.staging, analysis.replays, outputs
        ),
    )


def _cluster_tokens(database: Database, options: PlatformOptions) -> ClusterTokens | None:
    if options.review_token is None:
        return None
    return ClusterTokens(database, options.review_token, options.cluster_grants)


def _sign_in_services(database: Database, providers: Mapping[str, IdentityProvider]) -> SignInServices:
    passwords = Passwords()
    return SignInServices(
        sessions=BrowserSessions(database),
        sign_ins=SignIns(database, passwords),
        sign_in_methods=SignInMethods(database, passwords),
        provider_sign_ins=ProviderSignIns(database, providers),
        device_sign_ins=DeviceSignIns(database),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shared:
    """The adapters, the options, and the services of which each serves several groups."""

    database: Database
    store: ObjectStore
    notifier: Notifier
    options: PlatformOptions
    change_notifier: ChangeNotifier
    cache: NodeCache
    sources: Sources
    origins: ModelOrigins
    installer: Installer
    specs: ScenarioSpecs
    results: Results
    webhook_secrets: WebhookSecrets
    posts: ReceiverPosts


def _file_services(shared: _Shared) -> FileServices:
    database, store, options = shared.database, shared.store, shared.options
    objects = store.root if isinstance(store, FilesystemStore) else None
    floor = DiskFloor(options.home, objects, least=options.disk_floor)
    models = Models(
        database,
        store,
        options.home / "scratch",
        largest=options.max_upload,
        largest_unpacked=options.max_unpacked,
        floor=floor,
    )
    return FileServices(
        models=models,
        uploads=Uploads(
            database,
            store,
            ttl=options.upload_ttl,
            largest=options.max_resumable,
            limits=UploadLimits(per_caller=options.uploads_per_caller),
            floor=floor,
        ),
        transfers=Transfers(store),
        disk_floor=floor,
        bin=Bin(database, shared.notifier, models, term=options.bin_term),
        retention=ProjectRetention(database),
    )


def _catalogue_services(shared: _Shared, files: FileServices) -> CatalogueServices:
    database, options = shared.database, shared.options
    datasets = Datasets(database, shared.store, shared.notifier, files.uploads, shared.sources, files.disk_floor)
    return CatalogueServices(
        datasets=datasets,
        prefetches=Prefetches(database, shared.notifier, datasets, shared.cache),
        scenario_maps=ScenarioMaps(datasets),
        leaderboards=Leaderboards(database, datasets),
        catalogue=Catalogue(
            options.home / "environments",
            ServerLimits(model=options.max_upload, unpacked=options.max_unpacked),
            options.installer,
        ),
    )


def _submission_services(
    shared: _Shared, models: Models, resolver: Resolver, changes: Waiters, standstill: Standstill
) -> SubmissionServices:
    database, notifier = shared.database, shared.notifier
    imports = ModelImports(database, notifier, models, resolver, shared.origins)
    options = SimulationOptions(standstill=standstill, most_dry_runs=shared.options.dry_runs)
    simulations = Simulations(database, notifier, changes, resolver, shared.results, imports, options)
    return SubmissionServices(
        simulations=simulations,
        comparison=Comparison(simulations, shared.results),
        bulk=Bulk(database, simulations),
        model_imports=imports,
        list_changes=ListChanges(database, changes),
        changes=changes,
        looks=TaskLooks(
            database,
            notifier,
            shared.change_notifier,
            allowed=shared.options.looks,
            slots=shared.options.streams,
            ports=shared.options.ports_of_programs,
        ),
        estimates=Estimates(database, resolver, Quotas(database), shared.options.prices),
    )


def _analysis_services(shared: _Shared, simulations: Simulations) -> AnalysisServices:
    database, results = shared.database, shared.results
    tables = ResultTables(database, results, shared.specs)
    return AnalysisServices(
        results=results,
        selections=ResultSelections(database, results, tables),
        replays=Replays(database, shared.store, shared.notifier, results),
        sweeps=Sweeps(simulations, results),
        distributions=Distributions(database, tables),
        sensitivities=Sensitivities(tables),
        worst_results=WorstResults(tables, results),
    )


def _operation_services(shared: _Shared, floor: DiskFloor) -> OperationServices:
    database, options = shared.database, shared.options
    return OperationServices(
        executors=Executors(database, shared.notifier, options.executor_configs),
        queue=Queue(database, options.executor_configs),
        storage_use=StorageUse(database, floor, MachineStorage(options.home / "environments", shared.cache)),
        cache_use=CacheUse(shared.cache, options.cache_nodes),
        quotas=Quotas(database),
        usage_reports=UsageReports(database, options.prices),
        webhooks=Webhooks(database, shared.notifier, shared.webhook_secrets, shared.posts),
    )


def _scheduling_services(shared: _Shared, datasets: Datasets) -> SchedulingServices:
    database, notifier, options = shared.database, shared.notifier, shared.options
    store_health = StoreHealth(shared.store)
    files = ModelFiles(shared.cache, largest=options.max_unpacked)
    return SchedulingServices(
        database=database,
        notifier=notifier,
        staging=Staging(
            database,
            notifier,
            datasets,
            ModelEnvironments(
                database,
                files,
                shared.installer,
                PackageInstaller(options.packages, shared.store),
                options.home / "scratch",
            ),
            store_health,
            home=options.home,
            own_environments=options.own_environments,
        ),
        leases=Leases(
            database,
            shared.store,
            notifier,
            options=LeaseOptions(
                ttl=options.lease_ttl,
                max_unpacked=options.max_unpacked,
                looks=options.looks,
                ports=options.ports_of_programs,
            ),
            specs=shared.specs,
            launch_waiters=LaunchWaiters(database, shared.change_notifier),
        ),
        store_health=store_health,
    )


def _job_services(
    shared: _Shared,
    files: FileServices,
    datasets: Datasets,
    submissions: SubmissionServices,
    staging: Staging,
    replays: Replays,
    outputs: SimulationOutputs,
) -> JobServices:
    database, store, notifier, results = shared.database, shared.store, shared.notifier, shared.results
    options = shared.options
    return JobServices(
        staging=staging,
        dataset_registration=DatasetRegistration(
            database,
            store,
            files.uploads,
            shared.sources,
            datasets,
            EnvironmentRegistration(shared.installer, shared.cache, options.home),
            RegistrationLimits(largest=options.max_dataset, floor=files.disk_floor, maps=options.maps),
        ),
        model_imports=submissions.model_imports,
        run_logging=RunLogging(database, notifier, shared.origins),
        finalization=Finalization(database, store, notifier, results, outputs),
        comparison_batches=ComparisonBatches(database, notifier, submissions.simulations, results, shared.specs),
        deletion=Deletion(database, store),
        replays=replays,
    )
