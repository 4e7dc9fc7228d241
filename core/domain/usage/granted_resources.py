"""Granted resources: what a launch has from its start until its processes are gone, in whole numbers.

Whole numbers of thousandths of a core, MiB and GPUs, so that sums are the same in whatever order they are made.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from core.domain.scheduling.launches import Placement
from core.domain.scheduling.worker_resources import CPU, MEMORY, WorkerResources, resources_of_worker

#: What the name of an extended resource ends with that is a GPU, as Kubernetes and Slurm name them.
GPU = ("/gpu", "gpu")


class UsageKind(StrEnum):
    """Kind of use that resources were granted for."""

    SIMULATION = "simulation"
    DRY_RUN = "dry-run"
    JOB = "job"
    WARM = "warm"


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
        return cls.of_workers(workers, resources_of_worker(placement))

    @classmethod
    def of_workers(cls, workers: int, each: WorkerResources) -> "GrantedResources":
        """Return what workers get of which each has these; what is less than a unit counts as one."""
        gpus = sum(amount for name, amount in each.items() if name.lower().endswith(GPU))
        return cls(workers, each[CPU], math.ceil(each[MEMORY] / (1 << 20)), gpus)


@dataclass(frozen=True, slots=True)
class WarmGrant:
    """The resources of a warm runner while it waits for a launch, whose id it may become.

    ``project``: the one that it serves alone; empty: it serves all, and is the platform's.
    """

    id: str
    project: str
    granted: GrantedResources
