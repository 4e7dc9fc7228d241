"""The executor port: what runs launches, as the dispatcher needs it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from core.domain.launches import Launch, LaunchStatus

if TYPE_CHECKING:
    from prometheus_client.registry import Collector


class Executor(Protocol):
    """Runs launches. Knows nothing of the database, the queue or HTTP.

    ``launch.id`` is the only handle: a backend derives its own names from it, so that submitting twice is harmless and
    nothing need be remembered in between. Every method raises OSError when the backend does not answer: then nothing
    is known, and asking again is right.
    """

    name: str  # of the context: there may be several of one kind

    def submit(self, launch: Launch) -> None:
        """Start every process of it or none. Raise a PlatformError if it can never run here."""

    def observe(self, ids: Iterable[str]) -> Mapping[str, LaunchStatus]:
        """Report those launches that are still known, ended ones too; one that is missing has vanished."""

    def cancel(self, launch_id: str) -> None:
        """Stop it and forget it. Not an error if it is already gone."""

    def logs(self, launch_id: str, replica: int) -> Iterator[bytes]:
        """Yield what the launch's own processes (not the model) had to say, from the start, until it ends."""

    def capacity(self) -> Mapping[str, int]:
        """Return free resources: ``cpu`` in cores, ``memory`` in bytes."""

    def resize(self, launch_id: str, workers: int) -> None:
        """Change the width of a running launch. Raise Unsupported where that needs a new one."""

    def strays(self, known: Collection[str]) -> Sequence[str]:
        """Return the launches that still take something there and are not among these: the ids to cancel."""


@runtime_checkable
class Watched(Protocol):
    """An executor whose backend tells by itself that something has changed, so that nobody waits for the clock."""

    def watch(self, ring: Callable[[], None], stop: Event) -> None:
        """Ring at every change until told to stop. What is rung for is looked at all the same, by `observe`."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A launch that was made before it was known for what: its id, and what is kept of its token."""

    id: str
    token_hash: str


@dataclass(frozen=True, slots=True)
class Taken:
    """A launch that is not over, as far as what waited has to know: whose it is, and how wide."""

    simulation: str
    attempt: int
    workers: int


class Missed(Exception):
    """What waited for the launch is gone: another one may be made at once."""


@runtime_checkable
class Warm(Protocol):
    """An executor that keeps launches waiting for their simulations. Both are asked by the thread that submits.

    ``submit`` of a launch with such an id only marks what waits as taken; it raises Missed where that is gone. What
    waits is no stray.
    """

    def keep(self, taken: Mapping[str, Taken]) -> bool:
        """Bring what waits to what is wanted, and mark what was taken and could not be marked; tell whether all waits.

        ``taken``: all launches that are not over, by id.
        """

    def waiting(self, launch: Launch) -> Waiting | None:
        """Return what waits for just such a launch, never the same twice. Asks nobody, for somebody waits for us."""


@runtime_checkable
class Measured(Protocol):
    """An executor that has figures of its own for Prometheus."""

    @property
    def registry(self) -> "Collector":
        """What it has measured."""
