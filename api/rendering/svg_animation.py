"""Animation elements of SVG (SMIL): attribute values over one loop of an animation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Animation:
    """Frames of one loop and their key times from 0 to 1, its duration in seconds, the ego's position in each frame."""

    frames: Sequence[Mapping[str, Any]]
    times: tuple[str, ...]
    duration: float
    ego: tuple[Point, ...]

    @property
    def is_animated(self) -> bool:
        """Tell whether there is more than one frame."""
        return len(self.frames) > 1


def decimal(value: float, digits: int = 1) -> str:
    """Format a number with at most ``digits`` decimals, without trailing zeros."""
    text = f"{value:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def animate_transform(animation: Animation, kind: str, values: Sequence[str]) -> str:
    """Return the animation element of a transformation; empty if its value is constant."""
    if not animation.is_animated or len(set(values)) == 1:
        return ""
    return (
        f'<animateTransform attributeName="transform" type="{kind}" dur="{decimal(animation.duration, 2)}s"'
        f' repeatCount="indefinite" keyTimes="{";".join((*animation.times, "1"))}"'
        f' values="{";".join((*values, values[-1]))}"/>'
    )


def animate_steps(animation: Animation, attribute: str, values: Sequence[str]) -> str:
    """Return the animation element of an attribute with discrete values; empty if its value is constant."""
    if not animation.is_animated or len(set(values)) == 1:
        return ""
    changes = [index for index in range(len(values)) if index == 0 or values[index] != values[index - 1]]
    return (
        f'<animate attributeName="{attribute}" calcMode="discrete" dur="{decimal(animation.duration, 2)}s"'
        f' repeatCount="indefinite" keyTimes="{";".join(animation.times[index] for index in changes)}"'
        f' values="{";".join(values[index] for index in changes)}"/>'
    )


def animate_visibility(animation: Animation, present: Sequence[bool]) -> tuple[str, str]:
    """Return the attribute and the animation element for an object that is visible in some frames only."""
    states = ["visible" if is_present else "hidden" for is_present in present]
    attribute = "" if all(present) else f' visibility="{states[0]}"'
    return attribute, animate_steps(animation, "visibility", states)
