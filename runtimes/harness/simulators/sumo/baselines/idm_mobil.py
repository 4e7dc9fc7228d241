"""Baseline driver `idm_mobil`: IDM with MOBIL lane changes (politeness 0, gain 0.2 m/s2, safe braking 2 m/s2).

MOBIL: Kesting, Treiber, Helbing, Transportation Research Record 1999, 86; parameters as in highway-env.
"""

from math import sqrt

# Time gap (s), acceleration and comfortable braking (m/s2), standing gap (m), exponent.
T, A, B, S0, DELTA = 1.5, 1.5, 2.0, 2.0, 4
CAR = 4.5
#: MOBIL: minimum gain, least acceleration of the new follower (both m/s2); metres that must be free beside the car.
GAIN, SAFE, BESIDE = 0.2, -2.0, 1.0
#: Seconds between two lane changes, unless the route requires one.
MIN_LANE_TIME = 4.0


class Model:
    """Follows the leader, keeps to the route, and overtakes slow vehicles."""

    def __init__(self):
        self.wait = 0

    def reset(self, info):
        """Start a scenario."""
        self.wait = 0

    def act(self, observation):
        """Return acceleration in m/s2 and lane action."""
        o = [float(value) for value in observation]
        accel = acceleration(o)
        self.wait = max(0, self.wait - 1)
        lane = self.lane(o)
        if lane:
            self.wait = int(MIN_LANE_TIME * 10)
        return accel, lane

    def lane(self, o):
        """Return the lane action: a change that the route requires if the gap allows it, else one with enough gain."""
        shift = o[6]
        if shift:
            side = 1.0 if shift > 0 else -1.0
            urgent = o[7] < 60.0
            return side if fits(o, side, SAFE * (2.0 if urgent else 1.0)) else 0.0
        if self.wait or (o[0] < 0.5 and o[10] < 4.0):
            return 0.0
        # No overtaking before a light or a conflict, or without a leader.
        if o[25] < 40.0 or o[28] or not o[9]:
            return 0.0
        here = follow(o[0], o[2], o[10], o[11])
        best, lane = here + GAIN, 0.0
        for side in (1.0, -1.0):
            first = 15 if side > 0 else 19
            if fits(o, side, SAFE):
                there = follow(o[0], o[2], o[first], o[first + 1])
                if there > best and (o[11] < -1.0 or o[10] < 30.0):
                    best, lane = there, side
        return lane


def fits(o, side, safe):
    """Return whether the adjacent lane exists and is free, and no follower would have to brake harder than ``safe``."""
    if not o[23 if side > 0 else 24]:
        return False
    first = 15 if side > 0 else 19
    lead_gap, lead_speed, rear_gap, rear_speed = o[first : first + 4]
    if lead_gap < BESIDE + 0.3 * o[0] or rear_gap < BESIDE + 2.0:
        return False
    behind = o[0] + rear_speed
    if follow(o[0], o[2], lead_gap, lead_speed) < 2.0 * safe:
        return False
    return follow(behind, max(o[2], behind), rear_gap, -rear_speed) >= safe


def follow(speed, limit, gap, relative):
    """Return IDM's acceleration behind a leader; ``relative`` is the leader's speed minus the follower's."""
    return A * (1.0 - (speed / max(1.0, limit)) ** DELTA - interaction(speed, gap, -relative))


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
