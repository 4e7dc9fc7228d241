"""Usage sums: used resources in whole numbers, by what they are grouped, and what they cost. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from common.errors import Invalid

#: Most characters of the key of a label.
LONGEST_KEY = 100
_LABEL = "label:"
MILLISECONDS_PER_HOUR = 3_600_000


class UsageDimension(StrEnum):
    """Dimension by which usage is grouped; `label` by all labels together, and `label:KEY` by the value of one."""

    DAY = "day"
    PROJECT = "project"
    USER = "user"
    SIMULATION = "simulation"
    KIND = "kind"
    EXECUTOR = "executor"
    LABEL = "label"


@dataclass(frozen=True, slots=True)
class UsageGrouping:
    """A dimension, and the key of a label."""

    dimension: UsageDimension
    key: str = ""

    @property
    def name(self) -> str:
        """How requests and answers name it."""
        return f"{_LABEL}{self.key}" if self.key else self.dimension.value


def groupings(names: Sequence[str]) -> list[UsageGrouping]:
    """Return the groupings of these names. Raise Invalid for an unknown one, and for one that is named twice."""
    found = [_grouping_of(name) for name in names]
    if repeated := [one.name for one in found if found.count(one) > 1]:
        raise Invalid(f"`by` names {repeated[0][:LONGEST_KEY]!r} twice.")
    return found


def _grouping_of(name: str) -> UsageGrouping:
    if name.startswith(_LABEL) and 0 < len(key := name.removeprefix(_LABEL)) <= LONGEST_KEY:
        return UsageGrouping(UsageDimension.LABEL, key)
    if name in set(UsageDimension):
        return UsageGrouping(UsageDimension(name))
    raise Invalid(f"`by` knows {', '.join(UsageDimension)} and label:KEY, not {name[:LONGEST_KEY]!r}.")


@dataclass(frozen=True, slots=True)
class UsedResources:
    """Used resources: milliseconds of workers, of thousandths of a core, of MiB and of GPUs."""

    workers: int = 0
    millicores: int = 0
    mebibytes: int = 0
    gpus: int = 0

    def __add__(self, other: "UsedResources") -> "UsedResources":
        return UsedResources(
            self.workers + other.workers,
            self.millicores + other.millicores,
            self.mebibytes + other.mebibytes,
            self.gpus + other.gpus,
        )

    def __sub__(self, other: "UsedResources") -> "UsedResources":
        return self + UsedResources(-other.workers, -other.millicores, -other.mebibytes, -other.gpus)

    @property
    def core_hours(self) -> float:
        """Hours of cores."""
        return self.millicores / (1000 * MILLISECONDS_PER_HOUR)


@dataclass(frozen=True, slots=True)
class UsageSum:
    """The sum of a group: all that was used, and how much of it the platform lost, or estimates.

    ``group``: a value for each grouping; of a day `2026-11-30`; empty where there is none, such as no such label.
    """

    group: tuple[str, ...] = ()
    used: UsedResources = field(default_factory=UsedResources)
    lost: UsedResources = field(default_factory=UsedResources)
    estimated: UsedResources = field(default_factory=UsedResources)

    def __add__(self, other: "UsageSum") -> "UsageSum":
        return UsageSum(self.group, self.used + other.used, self.lost + other.lost, self.estimated + other.estimated)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of an hour of a core, of a GiB of memory and of a GPU, in a currency; none: nothing has a price.

    ``lost``: whether time that the platform lost has its price as well.
    """

    core: Fraction = Fraction(0)
    gibibyte: Fraction = Fraction(0)
    gpu: Fraction = Fraction(0)
    currency: str = ""
    lost: bool = False

    def __bool__(self) -> bool:
        return bool(self.core or self.gibibyte or self.gpu)

    def of(self, used: UsedResources) -> Fraction:
        """Return what resources cost, exactly."""
        hours = self.core * used.millicores / 1000 + self.gibibyte * used.mebibytes / 1024 + self.gpu * used.gpus
        return hours / MILLISECONDS_PER_HOUR

    def of_sum(self, total: UsageSum) -> Fraction:
        """Return what a sum costs, exactly."""
        return self.of(total.used if self.lost else total.used - total.lost)


#: Resources that have a price, by their names in the setting, and the field of each.
PRICED_RESOURCES = {"core": "core", "memory": "gibibyte", "gpu": "gpu"}


def parsed_prices(items: Sequence[str], currency: str = "", *, lost: bool = False) -> Prices:
    """Return the prices of texts such as `core=0.04`. Raise ValueError for another resource, or no such number."""
    amounts: dict[str, Fraction] = {}
    for item in items:
        name, _, amount = item.partition("=")
        if name not in PRICED_RESOURCES:
            raise ValueError(f"prices are of {', '.join(PRICED_RESOURCES)}, not of {name!r}")
        if not amount.replace(".", "", 1).isdecimal() or not amount.isascii():
            raise ValueError(f"the price of {name} is a number, such as {name}=0.04, not {amount!r}")
        amounts[PRICED_RESOURCES[name]] = Fraction(amount)
    return Prices(**amounts, currency=currency, lost=lost)
