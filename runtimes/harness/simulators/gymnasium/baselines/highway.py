"""Baseline for highway: stays in its lane and keeps a time gap to the car ahead."""

from typing import Any

IDLE, FASTER, SLOWER = 1, 3, 4
# highway-env's Kinematics observation is normalised: 200 m along, 80 m/s, and across by 4 m times the number of lanes.
ALONG, SPEED, SAME_LANE = 200.0, 80.0, 0.2


class Model:
    """Chooses the speed by the time gap to the nearest car ahead; the observation contains only the nearest cars."""

    def act(self, observation: Any) -> list[float]:
        speed = float(observation[0][3]) * SPEED
        room = 1e9
        for present, along, across, faster, sideways in observation[1:]:
            # Extrapolated to when the decision takes effect: the car may be changing into this lane.
            crossing = abs(float(across)) < SAME_LANE or abs(float(across + 2.0 * sideways)) < SAME_LANE
            if present > 0.5 and along > 0 and crossing:
                room = min(room, float(along) * ALONG + 3.0 * min(0.0, float(faster) * SPEED))
        if room < 1.5 * speed:
            return [float(SLOWER)]
        return [float(FASTER if room > 3.0 * speed else IDLE)]
