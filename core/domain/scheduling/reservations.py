"""Reservations: which launches hold their workers; one whose model loads for long lends them to others meanwhile.

A model is loaded by the processes that will run it, so a launch has processes before it has work. On a machine where
the platform alone counts workers, these processes need none of them until the first lease.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Reservation(StrEnum):
    """Whether the workers of a launch are in use."""

    HELD = "held"  # in use; it has no lease yet
    LENT = "lent"  # others may use them: its model still loads
    READY = "ready"  # its model is loaded, and it waits until as many are free
    GRANTED = "granted"  # in use again; it takes its first lease in a moment
    BEGUN = "begun"  # in use until it is over: it has taken a lease


#: Reservations of launches whose workers are in use.
IN_USE = frozenset({Reservation.HELD, Reservation.GRANTED, Reservation.BEGUN})
#: Seconds after which a launch without a lease lends its workers.
LENDING_AGE = 3.0
#: Launches of an executor that may have lent their workers: at least so many, else one for each worker.
LENDERS = 4


@dataclass(frozen=True, slots=True)
class ReservingLaunch:
    """A launch on an executor, oldest first by ``submitted_at``; ``age`` in seconds, ``lends``: it may lend workers."""

    id: str
    submitted_at: float
    workers: int
    reservation: Reservation
    age: float
    lends: bool


@dataclass(frozen=True, slots=True)
class Reserved:
    """New reservations by launch, and the workers left for others: none while a launch waits for some.

    Each that is lent comes before those that are granted on the strength of it.
    """

    changes: Mapping[str, Reservation]
    free: int


def reserve(launches: Iterable[ReservingLaunch], total: int, others: int, *, wanted: bool) -> Reserved:
    """Decide about the reservations of an executor's launches.

    ``total``: the executor's workers. ``others``: those in use by simulations that have no launch yet. ``wanted``:
    whether simulations wait for workers. Launches that are ready get theirs in the order of their submission, before
    any queued simulation; the first that does not fit keeps the rest for itself.
    """
    ordered = sorted(launches, key=lambda launch: (launch.submitted_at, launch.id))
    waiting = [launch for launch in ordered if launch.reservation is Reservation.READY]
    changes: dict[str, Reservation] = {}
    free = total - others - sum(launch.workers for launch in ordered if launch.reservation in IN_USE)
    lenders = sum(launch.reservation not in IN_USE for launch in ordered)
    if wanted or waiting:
        for launch in ordered:
            lends = launch.lends and launch.reservation is Reservation.HELD and launch.age >= LENDING_AGE
            if lends and lenders < max(LENDERS, total):
                changes[launch.id] = Reservation.LENT
                free += launch.workers
                lenders += 1
    for launch in waiting:
        if launch.workers > free:
            return Reserved(changes, 0)
        changes[launch.id] = Reservation.GRANTED
        free -= launch.workers
    return Reserved(changes, free)
