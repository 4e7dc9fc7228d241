"""Storage in use: bytes by kind of object, the size of the database, and the free space of the disks."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from core.services.operations.machine_storage import MachineStorage
from core.services.operations.measurement import Measurement
from core.services.uploads.disk_floor import DiskFloor
from core.store import storage_sums
from core.store.database import Database

#: Seconds for which sums are kept.
INTERVAL = 5.0


@dataclass(frozen=True, slots=True)
class StorageSums:
    """Documents of the kinds of objects, and the bytes of the database."""

    kinds: Sequence[dict[str, object]]
    database: int


class StorageUse:
    """Sums what the rows of the database name, without listing the object store."""

    def __init__(self, database: Database, floor: DiskFloor, machine: MachineStorage) -> None:
        self._database, self._floor, self._machine = database, floor, machine
        self._sums = Measurement(self._measure, interval=INTERVAL)

    def describe(self) -> dict[str, object]:
        """Return the sums with the time at which they were computed, and the disks as they are now."""
        sums = self._sums.latest()
        return {
            "measured_at": sums.at,
            "kinds": sums.value.kinds if sums.value is not None else None,
            "database": {
                "kind": "sqlite" if self._database.embedded else "postgresql",
                "bytes": sums.value.database if sums.value is not None else None,
            },
            "machine": self._machine.describe(),
            "disks": [asdict(disk) | {"below_floor": disk.free < disk.floor} for disk in self._floor.disks()],
        }

    def _measure(self) -> StorageSums:
        with self._database.read() as c:
            kinds = storage_sums.by_kind(c)
            size = self._database.size(c)
        return StorageSums(
            [{"name": name, "objects": objects, "bytes": total} for name, (objects, total) in kinds.items()], size
        )
