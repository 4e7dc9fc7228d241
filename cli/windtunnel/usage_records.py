"""Records of usage: what a project has used, and what a submission will need."""

import msgspec

from windtunnel.record import Record


class UsageNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """A sum of usage; of the groups by which it is summed up, ``ProjectUsage.items`` has the values."""

    core_seconds: float
    core_hours: float
    gib_seconds: float = 0.0
    gpu_seconds: float = 0.0
    worker_seconds: float = 0.0
    lost_core_seconds: float = 0.0
    estimated_core_seconds: float = 0.0
    cost: float | None = None


class ProjectUsage(Record, frozen=True, kw_only=True):
    """Usage of a project: ``items`` has a document for each sum, with a member for each name in ``by``."""

    project: str
    by: list[str]
    items: list[dict[str, object]]
    total: UsageNumbers
    currency: str = ""

    @property
    def sums(self) -> list[UsageNumbers]:
        """The numbers of the items."""
        return [msgspec.convert(item, UsageNumbers) for item in self.items]


class EstimateBasis(msgspec.Struct, frozen=True, kw_only=True):
    """Simulations on which an estimate rests; ``kind``: `model`, `dataset` or `none`."""

    kind: str
    simulations: int = 0
    tasks: int = 0
    core_seconds_per_task: float | None = None


class QuotaPart(msgspec.Struct, frozen=True, kw_only=True):
    """A quota, and how much of it a submission asks for; None where there is no limit, or nothing is known."""

    limit: int | None = None
    used: int | None = None
    asked: int | None = None
    part: float | None = None


class ResourcePart(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of workers that run, in cores, bytes or devices: its limit, its use, and what a submission asks for.

    None where there is no limit.
    """

    limit: int | None = None
    used: float = 0.0
    asked: float = 0.0
    part: float | None = None


class Estimate(Record, frozen=True, kw_only=True):
    """Needs of a submission; None where nothing is known, because nothing like it has run.

    ``never_starts``: why a limit keeps it waiting even if nothing else runs; None: none does.
    """

    tasks: int
    workers: int
    basis: EstimateBasis
    seconds: float | None = None
    core_hours: float | None = None
    cost: float | None = None
    currency: str = ""
    quotas: dict[str, QuotaPart] = msgspec.field(default_factory=dict)
    user_quotas: dict[str, QuotaPart] = msgspec.field(default_factory=dict)
    resources: dict[str, ResourcePart] = msgspec.field(default_factory=dict)
    user_resources: dict[str, ResourcePart] = msgspec.field(default_factory=dict)
    never_starts: str | None = None
