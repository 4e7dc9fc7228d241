"""Picture of a flow for replays: the cylinder, which turns, and the vorticity as squares that are larger where it is.

Shapes are in metres. A square's area is in proportion to the vorticity, up to its place's whole; small ones are left
out.
"""

import math
from collections.abc import Sequence

from ..drawings import shapes
from .channel import CENTRE, DIAMETER, HEIGHT, LENGTH
from .flow import PICTURE

#: The vorticity of a whole square, and the least that is drawn, in mean velocities of the inflow per diameter.
WHOLE_SQUARE, LEAST_VORTICITY = 4.0, 1.0
#: Points of the cylinder's mark, which shows how it is turned, by their distance from its centre in radii.
MARK = (0.2, 0.8)
COLUMNS, ROWS = round(LENGTH * PICTURE), int(HEIGHT * PICTURE)


def scene() -> dict[str, object]:
    """Return the channel, and the shapes that frames may have."""
    length, height = LENGTH * DIAMETER, HEIGHT * DIAMETER
    x, y = CENTRE[0] * DIAMETER, CENTRE[1] * DIAMETER
    places = [f"{column}.{row}" for column in range(COLUMNS) for row in range(ROWS)]
    return shapes.scene(
        view=(0.0, -0.02, length, height + 0.04),
        unit="m",
        shapes=[
            shapes.line([(0.0, 0.0), (length, 0.0)], "track", width=0.005),
            shapes.line([(0.0, height), (length, height)], "track", width=0.005),
            shapes.circle((x, y), DIAMETER / 2, "body"),
        ],
        objects=[
            *(shapes.moving_polygon(f"+{place}", "counterclockwise") for place in places),
            *(shapes.moving_polygon(f"-{place}", "clockwise") for place in places),
            shapes.moving_line("mark", "joint", 0.01),
        ],
    )


def frame(vorticity: Sequence[Sequence[float]], turned: float) -> dict[str, object]:
    """Return the squares of a vorticity, by column and row, and the mark of a cylinder that has turned by an angle."""
    at: dict[str, Sequence[shapes.Point]] = {}
    size = DIAMETER / PICTURE
    for column, values in enumerate(vorticity):
        for row, value in enumerate(values[:ROWS]):
            if abs(value) >= LEAST_VORTICITY:
                half = size / 2 * math.sqrt(min(1.0, abs(value) / WHOLE_SQUARE))
                x, y = (column + 0.5) * size, (row + 0.5) * size
                corners = [(x - half, y - half), (x + half, y - half), (x + half, y + half), (x - half, y + half)]
                at[f"{'+' if value > 0 else '-'}{column}.{row}"] = corners
    x, y = CENTRE[0] * DIAMETER, CENTRE[1] * DIAMETER
    radius = DIAMETER / 2
    at["mark"] = [(x + part * radius * math.cos(turned), y + part * radius * math.sin(turned)) for part in MARK]
    return shapes.frame(at)
