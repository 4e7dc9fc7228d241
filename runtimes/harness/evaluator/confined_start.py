"""Confined start of a process that owns a simulator: it is confined, imports the simulator, and seals its sandbox."""

import importlib
import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ..dataset_definition import Definition, definition_of, read_definition
from ..simulators.base import Simulator
from ..simulators.rank_connection import RankConnection
from .trusted_packages import TrustedOptions, TrustedPackages


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """A dataset and the module of its simulator. ``definition``: the part of the `dataset.json` that is known.

    ``processes``: what the module's `start_processes` returned, if the definition has `starts_processes`; if it has
    `ranks`, the connection to those that the worker has brought, None without. ``trusted``:
    the packages of a model that may be loaded beside it. ``level``: of the sandbox; 0: there is none.
    """

    folder: Path
    definition: Definition
    module: Any
    processes: tuple[Any, ...] = ()
    trusted: TrustedPackages | None = None
    level: int = 0

    def create(self, definition: Definition) -> Simulator:
        """Return a simulator for the dataset; ``definition``: the whole of it."""
        simulator: Simulator = self.module.create(self.folder, definition, *self.processes)
        return simulator

    def one_step(self, definition: Definition) -> bool:
        """Whether every scenario ends with its first step."""
        return hasattr(self.module, "one_step") and bool(self.module.one_step(definition))

    @property
    def many(self) -> bool:
        """Whether several simulators may work side by side in this process."""
        return bool(getattr(self.module, "MANY_WORLDS", False))

    def scenarios(self, definition: Definition) -> list[dict[str, Any]]:
        """Read the dataset's scenarios; empty if they differ in their seeds alone."""
        name = definition.scenarios
        if not name:
            return []
        with open(self.folder / name, "rb") as file:
            return [json.loads(line) for line in file if line.strip()]


class StartOptions(msgspec.Struct):
    """Options that a process with a simulator is started with. ``dataset``: the folder.

    ``world``: what is known of its definition; None: its file is read. ``confinement``: None for no sandbox.
    ``trusted``: for a model that is loaded in this process, too (TrustedOptions). ``ranks``: the descriptor of the
    connection to the simulator's ranks, if the worker brings some.
    """

    dataset: str
    world: dict[str, Any] | None = None
    confinement: dict[str, Any] | None = None
    trusted: TrustedOptions | None = None
    ranks: int | None = None


def start(document: object, *, makes_memory: bool = False) -> World:
    """Confine this process as its parent asks, import the simulator of the dataset, and seal the sandbox.

    ``document``: StartOptions, with others. ``makes_memory``: that it shares with a model server.
    Exits if the dataset names an unknown simulator.
    """
    options = msgspec.convert(document, StartOptions)
    folder, known = Path(options.dataset), options.world
    # The platform's own file, also for datasets of users; it says whether the process may fork.
    definition = definition_of(known) if known else read_definition((folder / "dataset.json").read_bytes())
    starts_processes = bool(definition.starts_processes)
    kind = definition.simulator
    if not re.fullmatch(r"[a-z][a-z0-9_]*", kind):
        raise SystemExit(f"the dataset names an unknown simulator: {kind!r}")
    level = confined(options.confinement, starts_processes=starts_processes, makes_memory=makes_memory)
    module = importlib.import_module(f"..simulators.{kind}", __package__)
    if hasattr(module, "preload"):
        module.preload(definition)
    started = (module.start_processes(level),) if starts_processes else ()
    ranks = (_connection(options.ranks),) if definition.ranks is not None else ()
    trusted = TrustedPackages.prepare(options.trusted) if options.trusted is not None else None
    seal_at(level)
    return World(
        folder=folder, definition=definition, module=module, processes=(*started, *ranks), trusted=trusted, level=level
    )


def _connection(descriptor: int | None) -> RankConnection | None:
    """Return the connection to the simulator's ranks, if there are some."""
    return None if descriptor is None else RankConnection(socket.socket(fileno=descriptor))


def confined(options: Mapping[str, Any] | None, *, starts_processes: bool, makes_memory: bool = False) -> int:
    """Confine this process; return the level of its sandbox, which is sealed above 1; 0: it has none.

    Processes that it starts run code of users, and have address space for its shared libraries.
    """
    if options is None:
        return 0
    from ..sandbox import Confinement, confine
    from ..sandbox.allowances import LIBRARIES

    own = {"may_fork": True, "libraries": LIBRARIES} if starts_processes else {}
    return confine(Confinement(**{**options, **own, "makes_memory": makes_memory})).level


def seal_at(level: int) -> None:
    """Seal the sandbox of this process, if its level is one that is sealed."""
    if level > 1:
        from ..sandbox import seal

        seal()
