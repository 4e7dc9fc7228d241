"""Built-in datasets: one folder each, described by its `dataset.json`.

Those whose scenarios are seeds lie in the folder of their simulator. Those with files lie here: model servers, which
see the simulators' folders, do not see the scenarios that their models will meet.
"""

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from common.errors import Corrupt
from datasets.catalogue.declaration import DatasetDeclaration

FOLDER = Path(__file__).parent
#: The folders of simulators.
SIMULATORS = Path(__file__).parents[2] / "runtimes" / "harness" / "simulators"


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A named, versioned set of scenarios with the files they need and the simulator that runs them.

    ``digest`` is that of the definition, which contains the digest of every file.
    """

    name: str
    version: str
    digest: str
    folder: Path
    definition: Mapping[str, Any]

    @functools.cached_property
    def declared(self) -> DatasetDeclaration:
        """Its declaration, read once it is needed."""
        return msgspec.convert(self.definition, DatasetDeclaration)

    @property
    def seeds(self) -> str:
        """Digest of the version whose seeds the tasks have: its own, unless it has the tasks of another."""
        return self.declared.seeds or self.digest

    @property
    def simulator(self) -> str:
        """Name of the simulator that runs the dataset's scenarios."""
        return self.declared.simulator

    @property
    def program(self) -> Path | None:
        """The file of the program that it brings, if it brings one."""
        program = self.declared.program
        return self.folder / program.file if program is not None else None

    @property
    def tasks(self) -> int | None:
        """Number of scenarios; None if the submission determines it."""
        return self.declared.tasks

    @property
    def most_tasks(self) -> int:
        """Number of scenarios that a submission may have at most."""
        return self.declared.tasks if self.declared.tasks is not None else self.declared.max_tasks or 0

    def scenarios(self, after: int, limit: int) -> Iterator[dict[str, Any]]:
        """Yield up to ``limit`` scenarios from index ``after`` on; the file is read no further."""
        name = self.declared.scenarios
        if name is None:
            yield from ({"index": index} for index in range(after, min(after + limit, self.most_tasks)))
            return
        with open(self.folder / name, encoding="utf-8") as file:
            for line in islice(file, after, after + limit):
                yield json.loads(line)

    def verify(self) -> None:
        """Check every file against its digest; raise Corrupt for the first that differs."""
        for entry in self.declared.files:
            with open(self.folder / entry.path, "rb") as file:
                digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
            if digest != entry.digest:
                raise Corrupt(f"The file {entry.path} of dataset {self.name} does not match its published digest.")


@functools.cache
def versions() -> Mapping[str, tuple[Dataset, ...]]:
    """Return all versions of every built-in dataset by name, the oldest first."""
    found = []
    for path in sorted([*FOLDER.glob("*/dataset.json"), *SIMULATORS.glob("*/datasets/*/dataset.json")]):
        raw = path.read_bytes()
        definition = json.loads(raw)
        found.append(
            Dataset(
                name=definition["name"],
                version=definition["version"],
                digest="sha256:" + hashlib.sha256(raw).hexdigest(),
                folder=path.parent,
                definition=definition,
            )
        )
    by_name: dict[str, tuple[Dataset, ...]] = {}
    for dataset in sorted(found, key=lambda dataset: int(dataset.version)):
        by_name[dataset.name] = (*by_name.get(dataset.name, ()), dataset)
    return dict(sorted(by_name.items()))


@functools.cache
def datasets() -> Mapping[str, Dataset]:
    """Return what the bare name of every built-in dataset means: its first version, so that no release changes it."""
    return {name: by_version[0] for name, by_version in versions().items()}
