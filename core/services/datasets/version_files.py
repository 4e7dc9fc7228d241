"""Version files: the files that a manifest lists, read while their version is registered."""

from collections.abc import Iterator
from functools import partial

from common.errors import BadScenario
from core.services.datasets.file_sources import Sources
from datasets.objectstore.base import ObjectStore
from datasets.versions import file_names, manifest_object, scenarios
from datasets.versions.scenarios import Description


class VersionFiles:
    """The files of a manifest, an object of the store."""

    def __init__(self, objects: ObjectStore, sources: Sources, manifest: str) -> None:
        self._objects = objects
        self._sources = sources
        self._manifest = manifest

    def read(self, path: str) -> Iterator[bytes]:
        """Return a file's content. Raises BadScenario if there is none."""
        entry = manifest_object.find(self._objects, self._manifest, path)
        if entry is None:
            raise BadScenario(f"{scenarios.DESCRIPTION}: there is no file {file_names.printable(path)}.")
        return self._sources.read(entry)

    def description(self) -> Description | None:
        """Return the validated dataset.json; None if the version has none. Raises BadScenario."""
        entry = manifest_object.find(self._objects, self._manifest, scenarios.DESCRIPTION)
        if entry is None:
            return None
        if entry.size > scenarios.LONGEST:
            raise BadScenario(f"{scenarios.DESCRIPTION} has more than {scenarios.LONGEST} bytes.")
        return scenarios.parse_description(b"".join(self._sources.read(entry)))

    def __iter__(self) -> Iterator[tuple[str, int, "partial[Iterator[bytes]]"]]:
        """Yield path, size and content of each file."""
        for entry in manifest_object.read(self._objects, self._manifest):
            yield entry.path, entry.size, partial(self._sources.read, entry)
