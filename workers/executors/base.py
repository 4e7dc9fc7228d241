"""Executor port: the interface between the dispatcher and the systems that run launches, and the kinds of executors."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from core.domain.scheduling.executor_config import GangSupport
from core.domain.scheduling.launches import Launch, LaunchStatus, WarmLaunch
from core.domain.usage.granted_resources import WarmGrant

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

Options = TypeVar("Options")


class Executor(Protocol):
    """Runs launches; independent of database, queue and HTTP.

    ``launch.id`` is the only handle: an executor derives its own names from it, so submitting twice is harmless and no
    state is needed. Every method raises OSError when the backend does not answer: the result is unknown and the call
    may be retried.
    """

    name: str  # of the context: there may be several of one kind

    def submit(self, launch: Launch) -> None:
        """Start every process of the launch or none. Raise a PlatformError if it can never run here."""

    def observe(self, ids: Iterable[str]) -> Mapping[str, LaunchStatus]:
        """Return the statuses of launches that the backend knows, ended ones too; a missing launch has vanished."""

    def cancel(self, launch_id: str) -> None:
        """Stop and remove the launch. Not an error if it is gone already."""

    def resize(self, launch_id: str, workers: int) -> None:
        """Change the number of workers of a running launch. Raise Unsupported where that needs a new launch."""

    def orphans(self, known: Collection[str]) -> Sequence[str]:
        """Return ids of launches that use resources but are not in ``known``, to be cancelled."""


@runtime_checkable
class Watched(Protocol):
    """An executor whose backend reports changes, so that the dispatcher need not wait for its next poll."""

    def watch(self, wake: Callable[[], None], stop: Event) -> None:
        """Call ``wake`` at every change until ``stop`` is set. `observe` remains the source of truth."""


@dataclass(frozen=True, slots=True)
class ActiveLaunch:
    """An active launch as the warm pool needs it: simulation, attempt, number of workers."""

    simulation: str
    attempt: int
    workers: int


class Missed(Exception):
    """The warm launch is gone: a new launch may be created at once."""


@runtime_checkable
class KeepsWarmLaunches(Protocol):
    """An executor with a warm pool. Both methods are called by the thread that submits.

    ``submit`` of a launch with a warm launch's id only labels it as taken, and raises Missed if it is gone. Warm
    launches are not orphans.
    """

    def maintain_warm_pool(self, taken: Mapping[str, ActiveLaunch]) -> bool:
        """Bring the warm pool to its targets, label taken launches; True if the pool is full.

        ``taken``: all active launches, by id.
        """

    def take_warm_launch(self, launch: Launch) -> WarmLaunch | None:
        """Pop a ready warm launch that matches, or None. From the local snapshot: no API call on the submit path."""


@runtime_checkable
class GrantsWarmRunners(Protocol):
    """An executor whose warm runners have resources before a launch takes them, which is usage of its own kind."""

    def warm_grants(self) -> Sequence[WarmGrant]:
        """Return what the warm runners have that wait for a launch."""


@runtime_checkable
class Measured(Protocol):
    """An executor with its own Prometheus metrics."""

    @property
    def registry(self) -> "Collector":
        """The executor's metrics."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalPaths:
    """Paths and URLs of the machine that opens an executor."""

    home: Path
    run_dir: Path
    environments: Path
    runner_api_url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorKind(Generic[Options]):
    """Factory of one kind of executor, and its capabilities. Each module of this package but two has one, ``KIND``.

    All processes import that module to read the capabilities and to check options; only the dispatcher calls ``open``.
    A module with costly imports, such as a client of its backend, has them in ``open``.
    """

    #: A frozen dataclass; `parse` gives it to ``open``.
    options: type[Options]
    #: Returns the executor of this name. Sends no request: a backend that does not answer must not block the start.
    open: Callable[[str, Options, LocalPaths], Executor]
    #: Whether runners bring their environments (container images) and share no folder with this machine.
    own_environments: bool = False
    #: Returns the gangs that it starts with these options; None: none.
    gangs: Callable[[Options], GangSupport] | None = None
    #: Whether launches run on this machine's node agent, so that the supervisor starts that role.
    node_agent: bool = False
    #: Whether launches that still load their model lend their workers: nobody but the platform counts them. A cluster
    #: reserves resources for a process whether it loads or runs.
    lends: bool = False
    #: Options of scheduling/allowed_options.py that launches of this kind ignore, so that any name is harmless there.
    ignored: frozenset[str] = frozenset()
    #: Annotations with the effect of an option -> that option; they are refused, so that its allow-list decides.
    equivalents: Mapping[str, str] = field(default_factory=dict)
    #: Parser of options that need more than the types of the dataclass; raises ValueError.
    parser: Callable[[Mapping[str, Any]], Options] | None = None

    def parse(self, options: Mapping[str, Any]) -> Options:
        """Return the options as configured. Raise ValueError for an unknown option, or a value of the wrong type."""
        if self.parser is not None:
            return self.parser(options)
        known = [field.name for field in fields(self.options)]  # type: ignore[arg-type]  # a dataclass by contract
        if unknown := sorted(set(options) - set(known)):
            raise ValueError(f"no option {', '.join(unknown)}; known: {', '.join(known) or 'none'}")
        try:
            return msgspec.convert(dict(options), self.options)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from None
