"""Maps of scenarios: a scenario with the outline of its street, which is drawn without a simulation."""

import threading
from collections import OrderedDict
from io import BytesIO
from typing import IO

from common.errors import NotFound
from core.domain.access.scopes import Caller
from core.services.datasets.datasets import Datasets
from datasets.catalogue.car_street import street_outline
from datasets.catalogue.car_street.street_outline import NETS, StreetOutline
from datasets.versions.manifest import ManifestEntry
from datasets.versions.scenarios import network_path

#: Outlines that are kept in memory, and the most bytes of a network that is read.
KEPT, LARGEST = 8, 32 << 20
#: The built-in streets.
STREETS = frozenset(path.name.removesuffix(".net.xml") for path in NETS.glob("*.net.xml"))


class ScenarioMaps:
    """Reads the outlines of streets; the last ones are kept."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets
        self._lock = threading.Lock()
        self._outlines: OrderedDict[str, StreetOutline] = OrderedDict()

    def find(self, caller: Caller, ref: str, index: int) -> tuple[dict[str, object], StreetOutline]:
        """Return a scenario and the outline of its street. Raise NotFound if it has no map."""
        rows = self._datasets.scenarios(caller, ref, after=index, limit=1)[0] if index >= 0 else []
        if not rows:
            raise NotFound(f"The dataset has no scenario {index}. `GET /v1/datasets/{ref}/scenarios` lists them.")
        (scenario,) = rows
        street, route = scenario.get("street"), scenario.get("route")
        if not isinstance(street, str) or not isinstance(route, list):
            raise NotFound(
                "Scenarios of this dataset have no street, and so no map. Replays of their tasks have pictures."
            )
        outline = self._outline(caller, ref, street)
        if not route or not all(edge in outline.lanes for edge in route):
            raise NotFound(f"The route of scenario {index} is not on its street; its map cannot be drawn.")
        return scenario, outline

    def _outline(self, caller: Caller, ref: str, street: str) -> StreetOutline:
        with self._lock:  # one network is read at a time, since a town takes a second and much memory
            own = self._datasets.map_names(caller, ref)
            if not (street in own or street in STREETS):  # another simulator's street is not the name of a file
                raise NotFound(f"There is no map of the street {street[:80]!r}.")
            entry = self._datasets.entry(caller, ref, network_path(street)) if street in own else None
            key = street if entry is None else entry.digest
            if key not in self._outlines:
                source = NETS / f"{street}.net.xml" if entry is None else self._network(caller, ref, entry)
                self._outlines[key] = street_outline.read(source)
            self._outlines.move_to_end(key)
            while len(self._outlines) > KEPT:
                self._outlines.popitem(last=False)
            return self._outlines[key]

    def _network(self, caller: Caller, ref: str, entry: ManifestEntry) -> IO[bytes]:
        """Return the content of a converted map."""
        if entry.size > LARGEST:
            raise NotFound(
                f"The map {entry.path} has more than {LARGEST >> 20} MiB. Only replays of its tasks are drawn."
            )
        return BytesIO(b"".join(self._datasets.file(caller, ref, entry.path).read(0, entry.size)))
