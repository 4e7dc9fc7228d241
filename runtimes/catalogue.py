"""Catalogue of runtimes and simulators: runtimes are made of model formats, simulators of their locks."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from common.errors import UnknownRuntime
from common.near_names import near_names, suggestion
from runtimes import formats
from runtimes.compiled_code import CompiledCode
from runtimes.environments import Environment
from runtimes.harness.models.base import ModelFormat

FOLDER = Path(__file__).parent
#: Locks of the environments of model servers, converters, servers of protocols and communication models of gangs, one
#: file each; `scripts.lock` writes them.
MODEL_SERVERS, CONVERTERS, SERVERS = FOLDER / "model_servers", FOLDER / "converters", FOLDER / "servers"
COMMUNICATIONS = FOLDER / "communications"
#: Communication models of frameworks, and the environment of model servers that has each. A program that declares no
#: packages has those.
FRAMEWORKS: Mapping[str, str] = {"tensorflow": "tensorflow", "jax": "jax"}
#: Code that measures the ranks of gangs; it is built beside what they communicate with.
RANK_TIMES = FOLDER / "harness" / "gang" / "compiled"
#: The simulators, a folder each, with the lock of its environment; files of their names in it.
SIMULATORS, LOCK, REQUIREMENTS = FOLDER / "harness" / "simulators", "packages.lock", "packages.in"
FACTS = "simulator.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeFormat:
    """A format of a runtime. ``isolation`` is how long a model server lives: for a "scenario" or for a "launch"."""

    name: str
    environment: Environment
    isolation: str
    format: ModelFormat

    def isolation_on(self, dataset_isolation: str | None) -> str:
        """Return how long a model server lives on a dataset whose definition has this ``isolation``, if any.

        A dataset for measurements of the platform may lower it, but models that start programs do so for each scenario.
        """
        lowered = dataset_isolation == "launch" and self.format.start is None
        return "launch" if lowered else self.isolation


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """A runtime loads and calls models; ``baselines``: those that its formats name, by dataset."""

    name: str
    title: str
    description: str
    formats: Mapping[str, RuntimeFormat]
    baselines: Mapping[str, str]


@functools.cache
def runtimes() -> Mapping[str, Runtime]:
    """Return every runtime by name. Raise ValueError if formats contradict each other, or a lock is missing."""
    names = sorted({format.runtime for format in formats.formats().values()})
    return {name: _runtime(name) for name in names}


def _runtime(name: str) -> Runtime:
    members = {key: format for key, format in formats.formats().items() if format.runtime == name}
    baselines: dict[str, str] = {}
    for key, format in members.items():
        if repeated := sorted(baselines.keys() & format.baselines.keys()):
            raise ValueError(f"format {key}: the runtime {name} has a baseline for {', '.join(repeated)} already")
        baselines |= format.baselines
    return Runtime(
        name=name,
        title=", ".join(format.title for format in members.values()),
        description=" ".join(format.description for format in members.values()),
        formats={
            key: RuntimeFormat(
                name=key, environment=model_server(format.environment), isolation=format.isolation, format=format
            )
            for key, format in members.items()
        },
        baselines=baselines,
    )


def model_server(environment: str) -> Environment:
    """Return an environment of model servers by name. Raise ValueError if it has no lock."""
    lock = MODEL_SERVERS / f"{environment}.lock"
    if not lock.is_file():
        raise ValueError(
            f"the environment {environment} has no {lock.name}: run `python -m scripts.lock {environment}`"
        )
    return _environment(lock)


@functools.cache
def model_server_locks() -> tuple[str, ...]:
    """Return the locks of all environments of model servers."""
    return tuple(path.read_text() for path in sorted(MODEL_SERVERS.glob("*.lock")))


@functools.cache
def simulators() -> Mapping[str, Environment]:
    """Return the environment of every simulator by name, with the compiled code in its folder."""
    return {path.parent.name: _simulator(path) for path in sorted(SIMULATORS.glob(f"*/{LOCK}"))}


def _simulator(lock: Path) -> Environment:
    sources = lock.parent / "compiled"
    compiled = CompiledCode(sources) if sources.is_dir() else None
    return Environment(lock.parent.name, lock.read_text(), compiled)


class SimulatorFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts of a simulator, from its `simulator.json` if it has one: servers do not import simulators.

    ``forkable``: its libraries start no thread and open nothing when they are imported.
    """

    forkable: bool = False


@functools.cache
def simulator_facts(name: str) -> SimulatorFacts:
    """Return the facts of a simulator."""
    file = SIMULATORS / name / FACTS
    return msgspec.json.decode(file.read_bytes() if file.exists() else b"{}", type=SimulatorFacts)


@functools.cache
def converters() -> Mapping[str, Environment]:
    """Return the environment of every program that converts users' files, by name."""
    return {path.stem: _environment(path) for path in sorted(CONVERTERS.glob("*.lock"))}


@functools.cache
def servers() -> Mapping[str, Environment]:
    """Return the environment of every server of another project's protocol, by name; no image has them."""
    return {path.stem: _environment(path) for path in sorted(SERVERS.glob("*.lock"))}


@functools.cache
def communications() -> Mapping[str, Environment]:
    """Return the environment of each communication model of gangs that has one."""
    locks = sorted(COMMUNICATIONS.glob("*.lock"))
    own = {path.stem: Environment(path.stem, path.read_text(), CompiledCode(RANK_TIMES)) for path in locks}
    return own | {name: model_server(environment) for name, environment in FRAMEWORKS.items()}


def sent_environments() -> Sequence[Environment]:
    """Return the environments that a runner sends to pods: the server's image has them, and none of a framework."""
    return [environment for name, environment in communications().items() if name not in FRAMEWORKS]


@functools.cache
def _environment(lock: Path) -> Environment:
    return Environment(lock.stem, lock.read_text())


def runtime(name: str) -> Runtime:
    """Return a runtime by name; raise UnknownRuntime with the nearest names."""
    match = runtimes().get(name)
    if match is None:
        near = near_names(name, runtimes())
        hint = suggestion(near, f"There are: {', '.join(runtimes())}.")
        raise UnknownRuntime(f"There is no runtime {name[:100]!r}. {hint}", nearest=near)
    return match
