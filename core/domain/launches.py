"""What an executor is handed, and what it tells in return."""

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """The couriers of one attempt at a simulation. ``id`` is the only handle; ``token`` never reaches a log."""

    id: str
    simulation_id: str
    attempt: int
    url: str  # where the drivers' surface answers
    workers: int
    runtime: str
    format: str
    dataset: str  # the built-in one whose files a player sees
    version: str
    model_digest: str
    model_key: str  # in the object store
    token: str = field(repr=False)
    play: str = ""  # a registered dataset's folder on the node, where its own scenarios lie beside those files


class Phase(StrEnum):
    """How far an executor has brought a launch."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """What an executor sees of a launch; ``exit`` and ``reason`` only once it has ended."""

    id: str
    phase: Phase
    exit: int | None = None
    reason: str | None = None
