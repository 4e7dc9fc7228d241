"""How narrowly two cars missed each other: post-encroachment times, from who was where when."""

from dataclasses import dataclass, field
from math import inf

from .geometry import Meeting

#: Seconds after which two passages have nothing to do with each other any more.
FORGET = 5.0


@dataclass(slots=True)
class Passage:
    """One crossing of shared ground by a car of ``length`` metres, seen against one meeting."""

    meeting: Meeting
    length: float
    _occupied: float = -inf
    _left: float = inf
    _entered: bool = field(default=False)

    def note(self, driven: float, others: list[tuple[float, float]], now: float) -> float:
        """Take one instant: metres we have driven on the path, fronts and rears of the others on theirs.

        Returns the time between one leaving the ground and the other entering it, if that is now; infinity else.
        """
        ground = self.meeting
        occupied = any(front >= ground.other_entry and rear <= ground.other_exit for front, rear in others)
        gap = inf
        if not self._entered and driven >= ground.entry:
            self._entered = True
            gap = now - self._occupied
        if self._entered and self._left == inf and driven - self.length > ground.exit:
            self._left = now
        if occupied:
            if self._left < now:
                gap = now - self._left
                self._left = -inf
            self._occupied = now
        return gap if 0.0 <= gap <= FORGET else inf

    def over(self, now: float) -> bool:
        """Tell whether nothing more can come of it."""
        return self._left != inf and now - self._left > FORGET
