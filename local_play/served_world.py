"""Served world: a dataset, the environment of its simulator, and the limits of its sessions; JSON between processes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from runtimes.harness.dataset_definition import definition_of
from runtimes.harness.session.session_messages import cut_off
from runtimes.harness.simulators.base import Interface
from runtimes.harness.simulators.declared_interface import declared_interface


@dataclass(frozen=True, kw_only=True)
class ServedWorld:
    """A dataset that is served. ``folder``: its files, with `dataset.json`; ``site``: the packages of its simulator.

    ``total``: number of scenarios. ``params``: of every scenario, as of a simulation. ``sandbox``: the level at which
    sessions are confined, None for no sandbox. ``idle``: seconds after which a session without requests is ended.
    """

    digest: str
    folder: str
    site: str
    total: int
    python: str
    harness: str
    sandbox: int | None
    params: Mapping[str, Any] = field(default_factory=dict)
    sessions: int = 4
    idle: float = 3600.0

    @classmethod
    def of(cls, text: str) -> "ServedWorld":
        """Read the JSON form."""
        return cls(**json.loads(text))

    def describe(self) -> str:
        """Return the JSON form."""
        return json.dumps({name: getattr(self, name) for name in self.__dataclass_fields__})

    @cached_property
    def definition(self) -> Mapping[str, Any]:
        """The dataset's definition."""
        definition: Mapping[str, Any] = json.loads((Path(self.folder) / "dataset.json").read_bytes())
        return definition

    @property
    def seeds(self) -> str:
        """Digest of the version whose seeds the scenarios have."""
        return str(self.definition.get("seeds", self.digest))

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return str(self.definition["name"])

    @cached_property
    def interface(self) -> Interface:
        """Observation and action space of the dataset."""
        return declared_interface(definition_of(self.definition))

    def cut_off(self, metrics: Mapping[str, Any]) -> bool:
        """Return whether a limit of time, not the world, has ended the scenario with these metrics."""
        return cut_off(metrics, self.definition.get("outcomes", {}))

    def scenario(self, index: int) -> dict[str, Any]:
        """Return what is known of a scenario: its number, and its name if the dataset names it."""
        name = self.name_of(index)
        return {"scenario": index} | ({"name": name} if name is not None else {})

    def name_of(self, index: int) -> str | None:
        """Return the name of a scenario; None if the dataset does not name it."""
        return self._scenario_names[index] if self._scenario_names else None

    @cached_property
    def _scenario_names(self) -> list[str | None]:
        file = self.definition.get("scenarios")
        if not file:
            return []
        with open(Path(self.folder) / file, encoding="utf-8") as lines:
            return [json.loads(line).get("name") for line in lines if line.strip()]
