"""How a picture moves: values over one loop, as the animation elements of SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Reel:
    """The frames to show and when: key times run from 0 to 1 over one loop."""

    frames: Sequence[Mapping[str, Any]]
    times: tuple[str, ...]
    duration: float
    ego: tuple[Point, ...]

    @property
    def moves(self) -> bool:
        """Tell whether there is more than one picture."""
        return len(self.frames) > 1


def number(value: float, digits: int = 1) -> str:
    """Return a number as short as it can be."""
    text = f"{value:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def transform(reel: Reel, kind: str, values: Sequence[str]) -> str:
    """Return the animation of a transformation, nothing where it stays."""
    if not reel.moves or len(set(values)) == 1:
        return ""
    return (
        f'<animateTransform attributeName="transform" type="{kind}" dur="{number(reel.duration, 2)}s"'
        f' repeatCount="indefinite" keyTimes="{";".join((*reel.times, "1"))}"'
        f' values="{";".join((*values, values[-1]))}"/>'
    )


def switch(reel: Reel, attribute: str, values: Sequence[str]) -> str:
    """Return the animation of an attribute that jumps; only the jumps are written."""
    if not reel.moves or len(set(values)) == 1:
        return ""
    jumps = [index for index in range(len(values)) if index == 0 or values[index] != values[index - 1]]
    return (
        f'<animate attributeName="{attribute}" calcMode="discrete" dur="{number(reel.duration, 2)}s"'
        f' repeatCount="indefinite" keyTimes="{";".join(reel.times[index] for index in jumps)}"'
        f' values="{";".join(values[index] for index in jumps)}"/>'
    )


def visible(reel: Reel, present: Sequence[bool]) -> tuple[str, str]:
    """Return the attribute and the animation of something that comes and goes."""
    states = ["visible" if here else "hidden" for here in present]
    attribute = "" if all(present) else f' visibility="{states[0]}"'
    return attribute, switch(reel, "visibility", states)
