"""Service groups: the services that an API module, the dispatcher and background jobs get, at most eight together."""

from dataclasses import dataclass

from core.notifications.change_notifier import Waiters
from core.notifications.notifier import Notifier
from core.services.access.accounts import Accounts
from core.services.access.audit import Audit
from core.services.access.authentication import UserAuthentication
from core.services.access.browser_sessions import BrowserSessions
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
from core.services.analysis.sensitivities import Sensitivities
from core.services.analysis.sweeps import Sweeps
from core.services.analysis.worst_results import WorstResults
from core.services.comparisons.comparison_batches import ComparisonBatches
from core.services.comparisons.comparison_flips import ComparisonFlips
from core.services.comparisons.comparisons import Comparisons
from core.services.datasets.catalogue import Catalogue
from core.services.datasets.dataset_registration import DatasetRegistration
from core.services.datasets.datasets import Datasets
from core.services.datasets.prefetches import Prefetches
from core.services.datasets.scenario_maps import ScenarioMaps
from core.services.operations.cache_use import CacheUse
from core.services.operations.job_usage import JobUsage
from core.services.operations.queue import Queue
from core.services.operations.storage_use import StorageUse
from core.services.operations.usage_reports import UsageReports
from core.services.pipelines.pipeline_steps import PipelineSteps
from core.services.pipelines.pipelines import Pipelines
from core.services.project_ends import ProjectEnds
from core.services.retention.bin import Bin
from core.services.retention.project_retention import ProjectRetention
from core.services.scheduling.executors import Executors
from core.services.scheduling.leases import Leases
from core.services.scheduling.staging import Staging
from core.services.simulations.bulk import Bulk
from core.services.simulations.deletion import Deletion
from core.services.simulations.finalization import Finalization
from core.services.simulations.list_changes import ListChanges
from core.services.simulations.looks import TaskLooks
from core.services.simulations.results import Results
from core.services.simulations.run_logging import RunLogging
from core.services.simulations.simulations import Simulations
from core.services.store_health import StoreHealth
from core.services.submissions.estimates import Estimates
from core.services.submissions.model_imports import ModelImports
from core.services.uploads.disk_floor import DiskFloor
from core.services.uploads.models import Models
from core.services.uploads.transfers import Transfers
from core.services.uploads.uploads import Uploads
from core.services.webhooks.webhook_delivery import WebhookDelivery
from core.services.webhooks.webhooks import Webhooks
from core.store.database import Database


@dataclass(frozen=True, slots=True)
class UpkeepServices:
    """Services that jobs use for projects and their people, without being asked for."""

    quotas: Quotas
    audit: Audit
    project_ends: ProjectEnds
    job_usage: JobUsage
    provider_sign_ins: ProviderSignIns
    webhook_delivery: WebhookDelivery


@dataclass(frozen=True, slots=True)
class AccessServices:
    """Who requests are, and what operators and maintainers decide about others."""

    accounts: Accounts
    authentication: UserAuthentication
    audit: Audit
    quotas: Quotas
    shares: Shares
    project_ends: ProjectEnds


@dataclass(frozen=True, slots=True)
class SignInServices:
    """How people and their programs show who they are."""

    sessions: BrowserSessions
    sign_ins: SignIns
    sign_in_methods: SignInMethods
    provider_sign_ins: ProviderSignIns
    device_sign_ins: DeviceSignIns


@dataclass(frozen=True, slots=True)
class FileServices:
    """Files of clients: uploads, the models that are made of them, and the space that is left for both; and the bin."""

    models: Models
    uploads: Uploads
    transfers: Transfers
    disk_floor: DiskFloor
    bin: Bin
    retention: ProjectRetention


@dataclass(frozen=True, slots=True)
class CatalogueServices:
    """Datasets, their maps and leaderboards, and the runtimes and simulators of this installation."""

    datasets: Datasets
    prefetches: Prefetches
    scenario_maps: ScenarioMaps
    leaderboards: Leaderboards
    catalogue: Catalogue


@dataclass(frozen=True, slots=True)
class SubmissionServices:
    """Simulations from their submission on: alone, two compared, many at once, imports of models, changes, looks;
    and what they will need.
    """

    simulations: Simulations
    comparison: Comparison
    bulk: Bulk
    model_imports: ModelImports
    list_changes: ListChanges
    changes: Waiters
    looks: TaskLooks
    estimates: Estimates


@dataclass(frozen=True, slots=True)
class AnalysisServices:
    """Results of a simulation, and what is computed from them."""

    results: Results
    selections: ResultSelections
    replays: Replays
    sweeps: Sweeps
    distributions: Distributions
    sensitivities: Sensitivities
    worst_results: WorstResults


@dataclass(frozen=True, slots=True)
class ComparisonServices:
    """Comparisons of models, and the tasks whose outcome differs."""

    comparisons: Comparisons
    comparison_flips: ComparisonFlips


@dataclass(frozen=True, slots=True)
class PipelineServices:
    """Pipelines of submissions and comparisons, and the job that submits their steps."""

    pipelines: Pipelines
    pipeline_steps: PipelineSteps


@dataclass(frozen=True, slots=True)
class OperationServices:
    """Services for operators: executors, the queue, storage, caches, quotas, what projects have used, and webhooks."""

    executors: Executors
    queue: Queue
    storage_use: StorageUse
    cache_use: CacheUse
    quotas: Quotas
    usage_reports: UsageReports
    webhooks: Webhooks


@dataclass(frozen=True, slots=True)
class SchedulingServices:
    """Services of the dispatcher: rows, wake-ups, staging, leases, and whether the object store answers."""

    database: Database
    notifier: Notifier
    staging: Staging
    leases: Leases
    store_health: StoreHealth


@dataclass(frozen=True, slots=True)
class JobServices:
    """Services of background jobs, each the work of a kind of job."""

    staging: Staging
    dataset_registration: DatasetRegistration
    model_imports: ModelImports
    run_logging: RunLogging
    finalization: Finalization
    comparison_batches: ComparisonBatches
    deletion: Deletion
    replays: Replays
