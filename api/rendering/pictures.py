"""Pictures of tasks: the drawing of each kind of scene, as self-contained SVG without scripts."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import MsgspecError

from api.rendering import drawing, replay, result_card, signal_charts
from api.rendering.svg_page import NotDrawable

logger = logging.getLogger(__name__)

#: Draws a replay whose scene is of this kind.
DRAWINGS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "street": replay.svg,
    "drawing": drawing.svg,
    "signals": signal_charts.svg,
    "result": result_card.svg,
}


def svg(document: Mapping[str, Any]) -> str:
    """Return the picture of a replay. Raise NotDrawable if its scene cannot be drawn."""
    scene = document.get("scene")
    draw = DRAWINGS.get(str(scene.get("kind"))) if isinstance(scene, Mapping) else None
    if draw is None:
        raise NotDrawable(f"Its scene is none of {', '.join(DRAWINGS)}.")
    try:
        return draw(document)
    except NotDrawable:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, StopIteration, MsgspecError):
        # What a simulator drew is not what its kind of scene has. The exception would mean nothing to a user.
        logger.exception("a scene of kind %s cannot be drawn", scene["kind"] if isinstance(scene, Mapping) else None)
        raise NotDrawable("Its scene is malformed.") from None
