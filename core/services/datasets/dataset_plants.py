"""Plants of datasets: an FMU among a dataset's files, read and checked at registration; none of its code is run."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from common.errors import BadArchive, BadName, BadScenario
from common.printable import printable
from datasets.versions import plant_definition, plant_files
from datasets.versions.archives.extraction import source_of
from datasets.versions.plants import Plant
from datasets.versions.xml_scan import BadXml


def defined(
    plant: Plant, scratch: Path, read: Callable[[str], Iterable[bytes]], report: Callable[[str], None]
) -> dict[str, object]:
    """Return the members of a dataset's definition that follow from its plant. Raises BadScenario.

    ``read`` returns a file of the dataset; ``report`` gets what is being done, and ends the work if it raises.
    """
    message = f"reading the plant {plant.file}"
    with tempfile.TemporaryFile(dir=scratch) as file:
        for chunk in _within(read(plant.file), plant.file):
            report(message)
            file.write(chunk)
        file.flush()
        try:
            fmu = plant_files.describe(source_of(Path(f"/proc/self/fd/{file.fileno()}")))
        except (BadXml, BadArchive, BadName) as error:
            text = str(error) if isinstance(error, BadXml) else error.detail or ""
            raise BadScenario(f"The plant {printable(plant.file)} cannot be used: {text.removesuffix('.')}.") from None
    return plant_definition.definition(plant, fmu)


def _within(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > plant_files.LARGEST:
            raise BadScenario(
                f"The plant {printable(name)} has more than {plant_files.LARGEST:,} bytes; export it without"
                " sources, documentation and libraries for other machines."
            )
        yield chunk
