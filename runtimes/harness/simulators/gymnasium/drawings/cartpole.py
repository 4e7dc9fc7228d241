"""Drawing of CartPole: the track with its ends, the cart, and the pole on it."""

from math import cos, sin
from typing import Any

from ...drawings.shapes import Drawing, frame, line, moving_circle, moving_line, moving_polygon, polygon, scene

#: Half a cart's width, and its height in metres; Gymnasium's cart has a length of 0 in its equations.
HALF, HEIGHT = 0.25, 0.3
#: What is shown beyond the track, in metres.
MARGIN = 0.6


def drawing(environment: Any, own: str) -> Drawing | None:
    """Return the drawing of an environment if it is CartPole."""
    is_cartpole = getattr(getattr(environment, "spec", None), "name", None) == "CartPole"
    return CartPoleDrawing(environment.unwrapped) if is_cartpole else None


class CartPoleDrawing:
    """Side view; y is the height above the track. Gymnasium's angle is that of the pole to the vertical, clockwise."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment

    def scene(self) -> dict[str, Any]:
        end = float(self._environment.x_threshold)
        tick = [line([(x, 0.0), (x, -0.06)], "mark") for x in (-2.0, -1.0, 0.0, 1.0, 2.0)]
        ends = [line([(x, -0.12), (x, 0.5)], "limit", width=0.04) for x in (-end, end)]
        width = 2 * (end + MARGIN)
        return scene(
            view=(-end - MARGIN, -0.3, width, 1.9),
            unit="m",
            shapes=[polygon([(-end, -0.02), (end, -0.02), (end, 0.02), (-end, 0.02)], "track"), *tick, *ends],
            objects=[
                moving_polygon("cart", "body"),
                moving_line("pole", "ego", 0.08),
                moving_circle("axle", "joint", 0.05),
            ],
        )

    def frame(self) -> dict[str, Any]:
        x, _, angle, _ = (float(value) for value in self._environment.state)
        length = 2 * float(self._environment.length)
        bottom, top = 0.05, 0.05 + HEIGHT
        return frame(
            {
                "cart": [(x - HALF, bottom), (x + HALF, bottom), (x + HALF, top), (x - HALF, top)],
                "pole": [(x, top), (x + length * sin(angle), top + length * cos(angle))],
                "axle": [(x, top)],
            }
        )
