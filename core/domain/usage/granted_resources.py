"""Granted resources: what a launch has from its start until its processes are gone, in whole numbers.

Whole numbers of thousandths of a core, MiB and GPUs, so that sums are the same in whatever order they are made.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from core.domain.scheduling.launches import Placement
from core.domain.scheduling.worker_resources import CPU, resources_of_worker

#: What the name of an extended resource ends with that is a GPU, as Kubernetes and Slurm name them.
GPU = ("/gpu", "gpu")


class UsageKind(StrEnum):
    """Kind of use that resources were granted for."""

    SIMULATION = "simulation"
    DRY_RUN = "dry-run"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class GrantedResources:
    """The resources of each of a number of workers."""

    workers: int = 1
    millicores: int = 1000
    mebibytes: int = 2048
    gpus: int = 0

    @classmethod
    def of_placement(cls, workers: int, placement: Placement) -> "GrantedResources":
        """Return what workers with this placement get; what is less than a unit counts as one."""
        return cls(
            workers=workers,
            millicores=resources_of_worker(placement)[CPU],
            mebibytes=math.ceil(placement.memory / (1 << 20)),
            gpus=sum(_gpus(placement.resources)),
        )


def _gpus(resources: Mapping[str, str]) -> Iterator[int]:
    for name, amount in resources.items():
        if name.lower().endswith(GPU) and str(amount).isdecimal():
            yield int(amount)
