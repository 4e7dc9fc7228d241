"""Baseline driver `idm`: Intelligent Driver Model (Treiber, Hennecke, Helbing, Phys. Rev. E 62, 1805), lanes by route.

A red light, a yellow light before which the car can stop, and a conflict to wait for count as standing leaders.
"""

from math import sqrt

# Time gap (s), acceleration and comfortable braking (m/s2), standing gap (m), exponent.
T, A, B, S0, DELTA = 1.5, 1.5, 2.0, 2.0, 4
CAR = 4.5


class Model:
    """Follows the leader on its lane and changes lanes only where the route requires it."""

    def act(self, observation):
        """Return acceleration in m/s2 and lane action."""
        o = [float(value) for value in observation]
        return acceleration(o), max(-1.0, min(1.0, o[6]))


def interaction(speed, gap, closing):
    """Return IDM's (s*/s)^2."""
    desired_gap = S0 + max(0.0, speed * T + speed * closing / (2 * sqrt(A * B)))
    return (desired_gap / max(0.1, gap)) ** 2


def must_wait(o):
    """Return whether the car must wait before a conflict: the other would arrive before the car has cleared it."""
    speed, ahead, distance, other_speed = o[0], o[29], o[30], o[31]
    if not o[28] or ahead <= 0.0:
        return False
    if ahead < speed * speed / 18.0:
        return False  # too late to stop before it
    arrive = distance / max(other_speed, 0.5)
    clear = (ahead + CAR + 4.0) / max(0.5 * (speed + min(o[2], speed + 2.0 * A)), 2.0)
    return arrive < clear + 1.0


def acceleration(o):
    """Return IDM's acceleration for an observation."""
    speed, limit = o[0], max(1.0, o[2])
    strongest = interaction(speed, o[10], -o[11]) if o[9] else 0.0
    if o[26] or (o[27] and speed * speed / 6.0 < o[25]):
        strongest = max(strongest, interaction(speed, o[25], speed))
    if must_wait(o):
        strongest = max(strongest, interaction(speed, o[29], speed))
    # The end of a lane that does not lead along the route counts as a standing leader.
    if o[6] and o[7] < 80.0:
        strongest = max(strongest, interaction(speed, o[7] - 1.0, speed))
    return max(-9.0, min(3.0, A * (1.0 - (speed / limit) ** DELTA - strongest)))
