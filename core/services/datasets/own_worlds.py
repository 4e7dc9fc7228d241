"""Own worlds: what the maps, the plant or the environment of a dataset add to its version when it is registered."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from common.errors import BadScenario
from common.file_reading import refuse_unreadable
from common.printable import printable
from core.services.datasets import dataset_maps, dataset_plants, environment_files
from core.services.datasets.dataset_maps import DatasetMaps
from core.services.datasets.environment_registration import EnvironmentRegistration
from core.services.datasets.map_conversion import MapConversion, MapLimits
from core.services.datasets.version_files import VersionFiles
from datasets.versions import scenarios
from datasets.versions.manifest import lines
from datasets.versions.packs import SourceFile
from datasets.versions.scenarios import Description


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnWorld:
    """What a version gets: ``files`` that the platform made, and of a plant, an environment or maps its description.

    ``definition``: members of the dataset's definition that follow from its plant.
    """

    files: Sequence[SourceFile] = ()
    definition: Mapping[str, object] | None = None
    openenv: Mapping[str, object] | None = None
    maps: DatasetMaps = field(default_factory=DatasetMaps)

    def described(self, description: Description, listed: Iterable[bytes]) -> str:
        """Return a version's description as JSON, with the number of its scenarios. Raises BadScenario.

        ``listed``: the file of the scenarios, which are validated.
        """
        scenario_lines = scenarios.non_blank(lines(listed, scenarios.LINE))
        plant = (self.definition or {}).get("plant")
        validated = scenarios.validated(scenario_lines, description.extends, self.maps.networks, plant)
        counts = Counter(scenario.get("street") for scenario in validated)
        if not counts:
            raise BadScenario("The dataset contains no scenarios.")
        own = {name: getattr(description, name) for name in ("extends", "scenarios", "title", "description")}
        own |= {name: value for name in ("definition", "openenv") if (value := getattr(self, name)) is not None}
        return json.dumps(own | self.maps.described(description.generate, counts) | {"tasks": counts.total()})


class OwnWorlds:
    """Makes them. ``environments`` registers environments, and names the folder with this machine's files."""

    def __init__(self, environments: EnvironmentRegistration, maps: MapLimits) -> None:
        self.scratch = environments.home / "scratch"
        self._environments = environments
        self._maps = MapConversion(environments.home / "environments", self.scratch, maps)

    def of(self, id: str, description: Description, files: VersionFiles, report: Callable[[str], None]) -> OwnWorld:
        """Return the world of a version's description, empty if it is that of the dataset which it extends.

        ``report`` gets what is being done, and ends the work if it raises. Raises BadScenario and BadRequirements.
        """
        if description.plant is not None:
            with refuse_unreadable(
                f"The plant {printable(description.plant.file)}, or the `plant` of {scenarios.DESCRIPTION},"
            ):
                definition = dataset_plants.defined(description.plant, self.scratch, files.read, report)
            return OwnWorld(definition=definition)
        if description.openenv is not None:
            with refuse_unreadable("The environment among its files"):
                chosen = environment_files.chosen(files)
                environment = self._environments.registered(id, description, chosen, report)
            return OwnWorld(files=environment.files, openenv=environment.kept)
        if description.maps:
            maps = dataset_maps.converted(description, self._maps, files.read, report)
            return OwnWorld(files=maps.files, maps=maps)
        return OwnWorld()
