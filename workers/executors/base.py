"""The executor port: what runs launches, as the dispatcher needs it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from threading import Event
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from core.domain.launches import Launch, Sighting

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

    def observe(self, ids: Iterable[str]) -> Mapping[str, Sighting]:
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


@runtime_checkable
class Measured(Protocol):
    """An executor that has figures of its own for Prometheus."""

    @property
    def registry(self) -> "Collector":
        """What it has measured."""
