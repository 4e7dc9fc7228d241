"""Worker resources: what one worker of a launch is granted, in whole numbers by name."""

import math
from collections.abc import Mapping

from core.domain.scheduling.launches import Placement

#: What one worker, or one replica of a gang, has: thousandths of a core, bytes of memory, and devices by their names.
WorkerResources = Mapping[str, int]
#: Names of what each worker has, as in a placement; other names are of devices.
CPU, MEMORY = "cpu", "memory"
_PARTS_OF_CORE = 1000


def resources_of_worker(placement: Placement) -> dict[str, int]:
    """Return what each worker with this placement has; no device is called like a core or memory."""
    devices = {name: int(amount) for name, amount in placement.resources.items() if str(amount).isdecimal()}
    return devices | {CPU: math.ceil(round(placement.cpu * _PARTS_OF_CORE, 6)), MEMORY: placement.memory}


def counted_amount(name: str, limit: int) -> int:
    """Return the amount of `WorkerResources` for a limit, which is in cores, bytes, workers or devices."""
    return limit * _PARTS_OF_CORE if name == CPU else limit


def shown_amount(name: str, amount: int) -> float:
    """Return an amount of `WorkerResources` as a limit has it: in cores, bytes, workers or devices."""
    return amount / _PARTS_OF_CORE if name == CPU else amount


#: Resources of a worker whose submission says nothing about them.
ONE_WORKER: WorkerResources = resources_of_worker(Placement())
