"""Version description: what a registration found in a dataset's files, as its row has it, and provenance."""

from collections.abc import Mapping

import msgspec


class DescribedMap(msgspec.Struct, frozen=True, kw_only=True):
    """Of a map's report, its name, and what its conversion left out; None in a provenance."""

    name: str
    dropped: object = None


class VersionDescription(msgspec.Struct, frozen=True, kw_only=True):
    """Members of the description of a version. ``scenarios``: their file; None: it has files for programs alone.

    ``extends``: the built-in dataset below it, which a provenance has elsewhere. ``maps`` and ``generate``: of a
    dataset with maps, their reports and how scenarios were drawn. ``definition``: what follows from its plant.
    """

    scenarios: str | None
    title: str
    description: str
    tasks: int | None
    extends: str = ""
    maps: list[Mapping[str, object]] | None = None
    generate: Mapping[str, object] | None = None
    definition: Mapping[str, object] = {}
    openenv: Mapping[str, object] | None = None

    @property
    def dropped_by_map(self) -> dict[str, object]:
        """Parts of each map that its conversion left out, by the map's name."""
        maps = msgspec.convert(self.maps or [], list[DescribedMap])
        return {entry.name: entry.dropped for entry in maps}
