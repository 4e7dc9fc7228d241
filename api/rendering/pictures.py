"""Pictures of tasks: the drawing of each kind of scene, as self-contained SVG without scripts."""

from collections.abc import Callable, Mapping
from typing import Any

from api.rendering import drawing, replay, result_card, signal_charts

#: Draws a replay whose scene is of this kind.
DRAWINGS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "street": replay.svg,
    "drawing": drawing.svg,
    "signals": signal_charts.svg,
    "result": result_card.svg,
}


def svg(document: Mapping[str, Any]) -> str:
    """Return the picture of a replay. Raise ValueError if its scene cannot be drawn."""
    scene = document.get("scene")
    draw = DRAWINGS.get(str(scene.get("kind"))) if isinstance(scene, Mapping) else None
    if draw is None:
        raise ValueError(f"Its scene is none of {', '.join(DRAWINGS)}.")
    return draw(document)
