"""Catalogue of runtimes, simulators and built-in datasets, with their readiness on this machine."""

import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from common.errors import UnknownDataset
from common.near_names import near_names, suggestion
from core.domain.submissions.provenance import ResolvedDataset
from core.services.uploads.shipped_models import describe
from datasets.catalogue import Dataset, datasets, versions
from datasets.versions.scenarios import extend
from runtimes import catalogue, environments, limits
from runtimes.dependencies.declaration import DECLARING_FILES
from runtimes.dependencies.installer import InstallerOptions, without_credentials
from runtimes.dependencies.lock import pins
from runtimes.limits import ServerLimits


class Catalogue:
    """Describes runtimes and simulators. ``server_limits``: the limits of models of all formats."""

    def __init__(
        self, environments_folder: Path, server_limits: ServerLimits, installer: InstallerOptions | None = None
    ) -> None:
        self._environments = environments_folder
        self._server_limits = server_limits
        self._installer = installer or InstallerOptions()

    def runtimes(self) -> list[dict[str, object]]:
        """Return every runtime with its formats, parameters and readiness."""
        return [self.runtime(name) for name in sorted(catalogue.runtimes())]

    def runtime(self, name: str) -> dict[str, object]:
        """Return one runtime, or raise UnknownRuntime with the nearest names."""
        runtime = catalogue.runtime(name)
        return {
            "name": runtime.name,
            "title": runtime.title,
            "description": runtime.description,
            "formats": [self._format(entry) for entry in runtime.formats.values()],
            "baselines": baselines(runtime),
            "limits": asdict(
                limits.limits_of_all((entry.format for entry in runtime.formats.values()), self._server_limits)
            ),
        }

    def _format(self, entry: catalogue.RuntimeFormat) -> dict[str, object]:
        return {
            "name": entry.name,
            "title": entry.format.title,
            "description": entry.format.description,
            "suffixes": list(entry.format.suffixes),
            "accepted_suffixes": list(entry.format.accepted_suffixes),
            "max_size": entry.format.max_size,
            "environment": entry.environment.name,
            "ready": self.ready(entry.environment),
            "packages": pins(entry.environment.lock),
            "requirements": list(entry.format.requirements),
            "dependencies": self._dependency_rules() if entry.format.dependencies else None,
            "limits": asdict(limits.limits_of(entry.format, self._server_limits)),
        }

    def _dependency_rules(self) -> dict[str, object]:
        options = self._installer
        return {
            "files": list(DECLARING_FILES),
            "indexes": [without_credentials(url) for url in options.indexes],
            "allowed": list(options.packages),
            "largest": options.largest,
            "python": platform.python_version(),
        }

    def simulators(self) -> list[dict[str, object]]:
        """Return every simulator with its readiness."""
        return [
            {
                "name": name,
                "ready": self.ready(spec),
                "datasets": sorted(d.name for d in datasets().values() if d.simulator == name),
            }
            for name, spec in sorted(catalogue.simulators().items())
        ]

    def ready(self, spec: environments.Environment) -> bool:
        """Return whether an environment is installed on this machine."""
        return environments.ready(spec, self._environments) is not None


def baselines(runtime: catalogue.Runtime) -> dict[str, str]:
    """Return the shipped model that a submission without a model runs on a runtime, by built-in dataset.

    It is the dataset's yardstick, or of a runtime that does not accept the yardstick what its formats name.
    """
    models = {name: dataset.definition["yardstick"] for name, dataset in datasets().items()}
    accepted = {name: model for name, model in models.items() if model and describe(model).format in runtime.formats}
    return accepted | dict(runtime.baselines)


def find_dataset(ref: str, version: str | None = None) -> Dataset:
    """Return the built-in dataset ``name`` or ``name@version``. Raise UnknownDataset with similar names.

    A bare name is the first version, `name@latest` the newest one.
    """
    name, _, pinned = ref.partition("@")
    version = version or pinned or None
    known: Mapping[str, Dataset] = datasets()
    if name not in known:
        near = near_names(name, known)
        hint = suggestion(near, f"There are: {', '.join(sorted(known))}.")
        raise UnknownDataset(f"There is no dataset {name[:100]!r}. {hint}", nearest=near)
    if version is None:
        return known[name]
    existing = {dataset.version: dataset for dataset in versions()[name]}
    if version == "latest":
        return versions()[name][-1]
    if version not in existing:
        raise UnknownDataset(f"The dataset {name} has no version {version!r:.80}; it has {', '.join(existing)}.")
    return existing[version]


def played(dataset: ResolvedDataset) -> Dataset:
    """Return a simulation's dataset from its provenance, which works also after the dataset was deleted."""
    if dataset.extends is None:
        return find_dataset(dataset.name, dataset.version)
    return extend(
        built_in(dataset),
        name=dataset.name,
        version=dataset.version,
        digest=dataset.digest,
        description=dataset.said or {},
    )


def pinned(dataset: ResolvedDataset) -> str:
    """Return the reference to exactly the version of a simulation's dataset, from its provenance.

    A registered dataset's version number may name other content on another installation; its digest does not.
    """
    return f"{dataset.name}@{dataset.version}" if dataset.extends is None else dataset.digest


def built_in(dataset: ResolvedDataset) -> Dataset:
    """Return the built-in dataset whose files an evaluator reads: the dataset itself, or the one that it extends."""
    return find_dataset(dataset.base.name, dataset.base.version)
