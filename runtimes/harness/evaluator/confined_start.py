"""Confined start of a process that owns a simulator: it is confined, imports the simulator, and seals its sandbox."""

import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..simulators.base import Simulator


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """A dataset and the module of its simulator. ``definition``: the part of the `dataset.json` that is known."""

    folder: Path
    definition: Mapping[str, Any]
    module: Any

    def create(self, definition: Mapping[str, Any]) -> Simulator:
        """Return a simulator for the dataset; ``definition``: the whole of it."""
        simulator: Simulator = self.module.create(self.folder, definition)
        return simulator

    def scenarios(self, definition: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Read the dataset's scenarios; empty if they differ in their seeds alone."""
        name = definition.get("scenarios")
        if not name:
            return []
        with open(self.folder / name, "rb") as file:
            return [json.loads(line) for line in file if line.strip()]


def start(options: Mapping[str, Any]) -> World:
    """Confine this process as its parent asks, import the simulator of the dataset, and seal the sandbox.

    ``options``: `dataset`, the folder; `world`, what is known of its definition, or None to read its file;
    `confinement`, or None for no sandbox. Exits if the dataset names an unknown simulator.
    """
    sealed = _confine(options.get("confinement"))
    folder = Path(options["dataset"])
    definition = options["world"] or json.loads((folder / "dataset.json").read_bytes())
    kind = definition["simulator"]
    if not re.fullmatch(r"[a-z][a-z0-9_]*", kind):
        raise SystemExit(f"the dataset names an unknown simulator: {kind!r}")
    module = importlib.import_module(f"..simulators.{kind}", __package__)
    if hasattr(module, "preload"):
        module.preload(definition)
    if sealed:
        from ..sandbox import seal

        seal()
    return World(folder=folder, definition=definition, module=module)


def _confine(options: dict[str, Any] | None) -> bool:
    """Confine this process; return whether the sandbox must still be sealed."""
    if options is None:
        return False
    from ..sandbox import Confinement, confine

    fields = dict(options)
    fields["readonly"] = tuple(fields.get("readonly", ()))
    fields["keep"] = tuple(fields.get("keep", ()))
    return confine(Confinement(**fields)).level > 1
