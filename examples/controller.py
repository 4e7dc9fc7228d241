"""A controller in one file: a proportional speed controller that keeps a gap of two seconds, on `car_street`.

windtunnel run examples/controller.py car_street
curl -F model=@examples/controller.py -F dataset=car_street localhost:5000/v1/simulations
"""

#: Places of the numbers that it reads in the observation (docs/car-street.md).
SPEED, LIMIT, LEAD, GAP, CLOSING = 0, 2, 9, 10, 11
STOP_LINE, RED = 25, 26


class Model:
    """Drives at the limit, follows the vehicle ahead, and stops at red lights; never changes lanes."""

    def act(self, observation):
        """Return an acceleration in m/s2 and a lane change, from 32 numbers in SI units."""
        speed, wanted = observation[SPEED], observation[LIMIT]
        acceleration = 0.8 * (wanted - speed)
        if observation[LEAD]:
            keep = 2.0 * speed + 4.0  # metres
            acceleration = min(acceleration, 0.3 * (observation[GAP] - keep) + 1.0 * observation[CLOSING])
        if observation[RED] and observation[STOP_LINE] > 0:
            acceleration = min(acceleration, 1.0 - speed**2 / (2 * max(observation[STOP_LINE] - 2.0, 0.1)))
        return [max(-9.0, min(3.0, acceleration)), 0]
