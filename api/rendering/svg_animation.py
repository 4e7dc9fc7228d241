"""Animation elements of SVG (SMIL): attribute values over one loop of an animation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

State = TypeVar("State")
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Animation:
    """Frames of one loop and their key times from 0 to 1, its duration in seconds, the camera's position in each frame.

    Without ``times``, the frames are evenly spaced from 0 to 1.
    """

    frames: Sequence[Mapping[str, Any]]
    times: tuple[str, ...]
    duration: float
    camera: tuple[Point, ...]

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
    return f'<animateTransform attributeName="transform" type="{kind}"{_timed(animation, values)}/>'


def animate_values(animation: Animation, attribute: str, values: Sequence[str]) -> str:
    """Return the animation element of an attribute with continuous values; empty if its value is constant."""
    if not animation.is_animated or len(set(values)) == 1:
        return ""
    return f'<animate attributeName="{attribute}"{_timed(animation, values)}/>'


def _timed(animation: Animation, values: Sequence[str]) -> str:
    """Return the attributes of continuous values: with key times the last value is held to the end of the loop."""
    key_times = f' keyTimes="{";".join((*animation.times, "1"))}"' if animation.times else ""
    shown = (*values, values[-1]) if animation.times else values
    return f' dur="{decimal(animation.duration, 2)}s" repeatCount="indefinite"{key_times} values="{";".join(shown)}"'


def animate_steps(animation: Animation, attribute: str, values: Sequence[str]) -> str:
    """Return the animation element of an attribute with discrete values; empty if its value is constant."""
    if not animation.is_animated or len(set(values)) == 1:
        return ""
    changes = [index for index in range(len(values)) if index == 0 or values[index] != values[index - 1]]
    times = animation.times or [decimal(index / (len(values) - 1), 5) for index in range(len(values))]
    return (
        f'<animate attributeName="{attribute}" calcMode="discrete" dur="{decimal(animation.duration, 2)}s"'
        f' repeatCount="indefinite" keyTimes="{";".join(times[index] for index in changes)}"'
        f' values="{";".join(values[index] for index in changes)}"/>'
    )


def animate_visibility(animation: Animation, present: Sequence[bool]) -> tuple[str, str]:
    """Return the attribute and the animation element for an object that is visible in some frames only."""
    states = ["visible" if is_present else "hidden" for is_present in present]
    attribute = "" if all(present) else f' visibility="{states[0]}"'
    return attribute, animate_steps(animation, "visibility", states)


def without_gaps(track: Sequence[State | None]) -> list[State]:
    """Return a track without None: an absent object has the state of its last frame before, or of its first frame."""
    last = next(state for state in track if state is not None)
    filled = []
    for state in track:
        last = state if state is not None else last
        filled.append(last)
    return filled
