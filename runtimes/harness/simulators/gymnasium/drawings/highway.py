"""Drawing of highway-env: the lanes of the road and all vehicles, seen from above; the view follows the ego."""

from math import cos, sin
from typing import Any

from ...drawings.shapes import Drawing, Point, frame, line, moving_circle, moving_polygon, scene

#: Metres of road that are shown.
WIDTH = 130.0
#: Dash and gap of a striped line, in metres, as highway-env draws it.
STRIPES = (3.0, 4.5)
#: Metres between two points of a lane that is not straight.
STEP = 4.0


def drawing(environment: Any, own: str) -> Drawing | None:
    """Return the drawing of an environment if it is one of highway-env's with a road."""
    is_highway = str(getattr(getattr(environment, "spec", None), "entry_point", None)).startswith("highway_env.envs")
    return HighwayDrawing(environment.unwrapped) if is_highway and hasattr(environment.unwrapped, "road") else None


class HighwayDrawing:
    """highway-env's y grows to the right of a vehicle that drives along x, so it is drawn with the opposite sign."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._middle: float | None = None

    def scene(self) -> dict[str, Any]:
        asphalt, paint, heights = [], [], []
        lanes = self._environment.road.network.lanes_list()
        for lane in lanes:
            half = lane.width_at(0) / 2
            left, middle, right = (_side(lane, offset) for offset in (-half, 0.0, half))
            asphalt.append(line(middle, "road", width=2 * half + 0.2))
            for edge, kind in ((left, lane.line_types[0]), (right, lane.line_types[1])):
                if kind:  # 0: no line, 1: striped, 2 and 3: continuous
                    paint.append(line(edge, "paint", width=0.18, dashes=STRIPES if kind == 1 else ()))
            heights += [y for _, y in (*left, *right)]
        straight = all(type(lane).__name__ == "StraightLane" for lane in lanes)
        # A straight road stays where it is; only along it does the view follow.
        self._middle = (min(heights) + max(heights)) / 2 if straight else None
        height = max(34.0, max(heights) - min(heights) + 12.0) if straight else 60.0
        x, y = self._centre()
        vehicles = [vehicle for vehicle in self._environment.road.vehicles if vehicle is not self._environment.vehicle]
        names = [f"vehicle-{number}" for number, _ in enumerate(vehicles, 1)]
        return scene(
            view=(x - WIDTH / 2, y - height / 2, WIDTH, height),
            unit="m",
            backdrop="grass",
            shapes=[*asphalt, *paint],
            objects=[
                *(moving_polygon(name, "vehicle") for name in names),
                moving_circle("halo", "halo", 4.2),
                moving_polygon("ego", "ego"),
                *(moving_polygon(f"{name}-windscreen", "glass") for name in (*names, "ego")),
                moving_circle("crash", "alarm", 3.0),
            ],
        )

    def frame(self) -> dict[str, Any]:
        ego = self._environment.vehicle
        others = [vehicle for vehicle in self._environment.road.vehicles if vehicle is not ego]
        at: dict[str, list[Point]] = {}
        for name, vehicle in (*((f"vehicle-{number}", other) for number, other in enumerate(others, 1)), ("ego", ego)):
            at[name] = _rectangle(vehicle, 0.0, vehicle.LENGTH, vehicle.WIDTH)
            at[f"{name}-windscreen"] = _rectangle(vehicle, 0.12 * vehicle.LENGTH, 0.9, 0.8 * vehicle.WIDTH)
        at["halo"] = [_position(ego)]
        if ego.crashed:
            at["crash"] = [_position(ego)]
        return frame(at, centre=self._centre())

    def _centre(self) -> Point:
        x, y = _position(self._environment.vehicle)
        return x + WIDTH / 6, y if self._middle is None else self._middle  # more of what is ahead


def _side(lane: Any, offset: float) -> list[Point]:
    """Return a lane's line at a distance from its middle, as points."""
    count = 1 if type(lane).__name__ == "StraightLane" else max(1, round(lane.length / STEP))
    positions = (lane.position(lane.length * part / count, offset) for part in range(count + 1))
    return [(float(x), -float(y)) for x, y in positions]


def _position(vehicle: Any) -> Point:
    return float(vehicle.position[0]), -float(vehicle.position[1])


def _rectangle(vehicle: Any, ahead: float, length: float, width: float) -> list[Point]:
    """Return the corners of a rectangle on a vehicle whose middle is ``ahead`` metres before that of the vehicle."""
    x, y = _position(vehicle)
    heading = -float(vehicle.heading)
    ux, uy = cos(heading), sin(heading)
    corners = ((-length, -width), (length, -width), (length, width), (-length, width))
    return [
        (x + ux * (ahead + along / 2) - uy * across / 2, y + uy * (ahead + along / 2) + ux * across / 2)
        for along, across in corners
    ]
