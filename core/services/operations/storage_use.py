"""Storage in use: bytes by kind of object, the size of the database, and the free space of the disks."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from core.services.operations.machine_storage import MachineStorage
from core.services.operations.measurement import Measurement
from core.services.uploads.disk_floor import DiskFloor
from core.store import storage_sums
from core.store.database import Database

#: Seconds for which sums are kept.
INTERVAL = 5.0


class StorageUse:
    """Sums what the rows of the database name, without listing the object store."""

    def __init__(self, database: Database, floor: DiskFloor, machine: MachineStorage) -> None:
        self._database, self._floor, self._machine = database, floor, machine
        self._sums = Measurement(self._measure, interval=INTERVAL)

    def describe(self) -> dict[str, Any]:
        """Return the sums with the time at which they were computed, and the disks as they are now."""
        sums = self._sums.latest()
        return {
            "measured_at": sums.at,
            "kinds": sums.value and sums.value["kinds"],
            "database": {
                "kind": "sqlite" if self._database.embedded else "postgresql",
                "bytes": sums.value and sums.value["database"],
            },
            "machine": self._machine.describe(),
            "disks": [asdict(disk) | {"below_floor": disk.free < disk.floor} for disk in self._floor.disks()],
        }

    def _measure(self) -> Mapping[str, Any]:
        with self._database.read() as c:
            kinds = storage_sums.by_kind(c)
            size = self._database.size(c)
        return {
            "kinds": [{"name": name, "objects": objects, "bytes": total} for name, (objects, total) in kinds.items()],
            "database": size,
        }
