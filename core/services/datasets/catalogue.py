"""The catalogue: which runtimes, simulators and built-in datasets there are, and what a simulation plays."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets.catalogue import Dataset, datasets
from datasets.versions.scenarios import extend
from errors import UnknownDataset
from runtimes import catalogue, environments


class Catalogue:
    """Looks things up and says what is ready on this machine."""

    def __init__(self, environments_folder: Path) -> None:
        self._environments = environments_folder

    def runtimes(self) -> list[dict[str, Any]]:
        """Return every runtime with its formats, parameters and readiness."""
        return [self.runtime(name) for name in sorted(catalogue.runtimes())]

    def runtime(self, name: str) -> dict[str, Any]:
        """Return one runtime, or raise UnknownRuntime with the nearest names."""
        found = catalogue.runtime(name)
        return found.describe() | {
            "formats": [
                {"name": format, "environment": entry.environment.name, "ready": self.ready(entry.environment)}
                for format, entry in found.formats.items()
            ]
        }

    def simulators(self) -> list[dict[str, Any]]:
        """Return every simulator with its readiness."""
        return [
            {
                "name": name,
                "ready": self.ready(spec),
                "datasets": sorted(d.name for d in datasets().values() if d.simulator == name),
            }
            for name, spec in sorted(catalogue.simulators().items())
        ]

    def ready(self, spec: Any) -> bool:
        """Tell whether an environment lies prepared on this machine."""
        return environments.ready(spec, self._environments) is not None


def find_dataset(ref: str, version: str | None = None) -> Dataset:
    """Return the built-in dataset that ``name`` or ``name@version`` names, or raise UnknownDataset with the nearest."""
    name, _, pinned = ref.partition("@")
    version = version or pinned or None
    found: Mapping[str, Dataset] = datasets()
    if name not in found:
        near = difflib.get_close_matches(name, found, 3)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(sorted(found))}."
        raise UnknownDataset(f"There is no dataset {name[:100]!r}. {hint}", nearest=near)
    dataset = found[name]
    if version not in {None, "latest", dataset.version}:
        raise UnknownDataset(f"The dataset {name} has no version {version!r:.80}; it has {dataset.version}.")
    return dataset


def played(dataset: Mapping[str, Any]) -> Dataset:
    """Return what a simulation plays, as its provenance froze it: it needs no row, so that none can be missing."""
    if "extends" not in dataset:
        return find_dataset(dataset["name"], dataset["version"])
    return extend(
        built_in(dataset),
        name=dataset["name"],
        version=dataset["version"],
        digest=dataset["digest"],
        description=dataset["said"],
    )


def built_in(dataset: Mapping[str, Any]) -> Dataset:
    """Return the built-in dataset whose files an evaluator sees: the one that is played, or the one it extends."""
    shipped = dataset.get("extends", dataset)
    return find_dataset(shipped["name"], shipped["version"])
