"""Simulations that have not ended, as a dispatcher sees them: queued or at work."""

from core.services.scheduling.dispatch import Dispatch
from core.services.scheduling.snapshots import ActiveSimulation


def unended(dispatch: Dispatch) -> list[ActiveSimulation]:
    """Return the simulations that have not ended, oldest first."""
    snapshot = dispatch.snapshot()
    return [dispatch.simulation(id) for id in sorted([*snapshot.queue, *snapshot.active])]


def last_submitted(dispatch: Dispatch) -> ActiveSimulation:
    """Return the simulation that was submitted last of those that have not ended: others may do theirs beside it."""
    return unended(dispatch)[-1]
