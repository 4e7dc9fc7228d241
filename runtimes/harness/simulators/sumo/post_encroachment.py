"""Post-encroachment time (PET): the time between one vehicle's leaving a conflict area and another's entering it."""

from dataclasses import dataclass, field
from math import inf

from .geometry import ConflictArea

#: Seconds: a longer time between leaving and entering is no encroachment.
MAX_PET = 5.0


@dataclass(slots=True)
class PostEncroachment:
    """PET between the ego, a car of ``length`` metres, and other vehicles in one conflict area."""

    area: ConflictArea
    length: float
    _last_occupied: float = -inf
    _ego_left: float = inf
    _ego_entered: bool = field(default=False)

    def update(self, driven: float, others: list[tuple[float, float]], now: float) -> float:
        """Record one step: metres the ego has driven on its path, and (front, rear) of the others on their path.

        Return the PET in seconds if this step completes it, else infinity.
        """
        area = self.area
        occupied = any(front >= area.other_entry and rear <= area.other_exit for front, rear in others)
        gap = inf
        if not self._ego_entered and driven >= area.entry:
            self._ego_entered = True
            gap = now - self._last_occupied
        if self._ego_entered and self._ego_left == inf and driven - self.length > area.exit:
            self._ego_left = now
        if occupied:
            if self._ego_left < now:
                gap = now - self._ego_left
                self._ego_left = -inf
            self._last_occupied = now
        return gap if 0.0 <= gap <= MAX_PET else inf

    def expired(self, now: float) -> bool:
        """Return whether the ego left the area more than ``MAX_PET`` seconds ago."""
        return self._ego_left != inf and now - self._ego_left > MAX_PET
