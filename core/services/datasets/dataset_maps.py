"""Maps of a dataset: all of them converted, their scenarios drawn, and the files with which a version keeps both."""

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from common.errors import BadScenario
from common.file_reading import refuse_unreadable
from common.printable import printable
from core.services.datasets.map_conversion import ConvertedMap, MapConversion
from datasets.catalogue.car_street import map_scenarios
from datasets.catalogue.car_street.street_network import StreetNetwork
from datasets.versions import scenarios
from datasets.versions.manifest import ManifestEntry
from datasets.versions.packs import SourceFile
from datasets.versions.scenarios import Description, Generation, MapFile
from runtimes import catalogue

#: The file of a version with the reports of its conversions.
REPORT = f"{scenarios.CONVERTED}/report.json"


@dataclass(frozen=True, slots=True)
class DatasetMaps:
    """Converted maps: the files that the version gets, networks by name, and a report for each map."""

    files: Sequence[SourceFile] = ()
    networks: Mapping[str, StreetNetwork] = field(default_factory=dict)
    reports: Sequence[Mapping[str, object]] = ()

    def described(self, generate: Generation | None, scenarios: Mapping[object, int]) -> dict[str, object]:
        """Return the part of a version's description that maps have; ``scenarios``: their number by street."""
        if not self.reports:
            return {}
        reports = [{**report, "scenarios": scenarios.get(report["name"], 0)} for report in self.reports]
        return {"maps": reports, "generate": msgspec.to_builtins(generate)}


def converted(
    description: Description,
    conversion: MapConversion,
    read: Callable[[str], Iterable[bytes]],
    report: Callable[[str], None],
) -> DatasetMaps:
    """Convert the maps that a description lists. Raises BadScenario.

    ``read`` returns a file of the dataset; ``report`` gets what is being done, and ends the conversion if it raises.
    """
    files: list[SourceFile] = []
    networks: dict[str, StreetNetwork] = {}
    reports: list[Mapping[str, object]] = []
    lines: list[dict[str, object]] = []
    for number, entry in enumerate(description.maps, 1):
        position = f" ({number} of {len(description.maps)})" if len(description.maps) > 1 else ""

        def say(message: str, position: str = position) -> None:
            report(message + position)

        with refuse_unreadable(f"The map {entry.name} ({printable(entry.file)})"):
            made = conversion.convert(entry, read(entry.file), say)
            files.append(SourceFile(scenarios.network_path(entry.name), [made.text]))
            networks[entry.name] = made.network
            reports.append(made.report)
            if description.generate is not None:
                say(f"drawing scenarios on the map {entry.name}")
                lines += made.planned if made.planned is not None else drawn(entry, made, description.generate)
    if description.generate is not None:
        encoded = (msgspec.json.encode(line | {"index": index}) for index, line in enumerate(lines))
        files.append(SourceFile(scenarios.GENERATED, [b"".join(line + b"\n" for line in encoded)]))
    content = {"converter": catalogue.converters()["netconvert"].digest, "maps": reports}
    files.append(SourceFile(REPORT, [json.dumps(content, indent=1).encode() + b"\n"]))
    return DatasetMaps(files, networks, reports)


def with_derived(sent: Iterable[ManifestEntry], derived: Iterable[ManifestEntry]) -> Iterator[ManifestEntry]:
    """Yield the files that were sent and those that the platform made of them; both are, and stay, sorted by path."""

    def checked() -> Iterator[ManifestEntry]:
        for entry in sent:
            if entry.path.casefold().split("/")[0] == scenarios.CONVERTED:
                raise BadScenario(
                    f"The platform writes the folder {scenarios.CONVERTED}/ of a dataset with maps or an environment;"
                    " remove it from the source."
                )
            yield entry

    return heapq.merge(checked(), derived, key=lambda entry: entry.path.encode())


def drawn(entry: MapFile, made: ConvertedMap, generation: Generation) -> list[dict[str, object]]:
    """Return the scenarios that are drawn on a map. Raises BadScenario if it has no route of a useful length."""
    try:
        return map_scenarios.generate(entry.name, made.network, generation.count, generation.seed)
    except map_scenarios.NoRoute:
        raise BadScenario(
            f"The map {entry.name} has {made.report['kilometres']:g} km of roads for cars, but no route of"
            f" {map_scenarios.SHORTEST:g} m along connected edges. Register a larger or connected part of the map, or"
            " `scenarios` of your own."
        ) from None
