"""Picture of a pipeline: its steps in columns, each to the right of those that it waits for, and lines between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

#: Most steps that a picture has; a longer pipeline is a list only.
MOST_STEPS = 120
#: Size of a step, and the gaps between columns and between rows, in pixels.
WIDTH, HEIGHT, ACROSS, DOWN = 176, 34, 48, 12
#: Most characters of a name that fit.
LONGEST_NAME = 20


class ShownStep(msgspec.Struct):
    """The members of a step that its picture shows."""

    name: str
    state: str
    after: list[str] = []


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """A step in the picture: its upper left corner, and its name as it fits."""

    step: ShownStep
    x: int
    y: int
    label: str


@dataclass(frozen=True, slots=True)
class StepPicture:
    """The steps, the paths of the lines between them (as SVG has them), and the size of the whole, in pixels."""

    steps: Sequence[DrawnStep]
    lines: Sequence[str]
    width: int
    height: int


def picture_of(steps: Sequence[ShownStep]) -> StepPicture | None:
    """Return the picture of a pipeline's steps; None for too many."""
    if len(steps) > MOST_STEPS:
        return None
    columns = columns_of({step.name: step.after for step in steps})
    rows: dict[int, int] = {}
    drawn: dict[str, DrawnStep] = {}
    for step in steps:
        name, column = step.name, columns[step.name]
        row = rows[column] = rows.get(column, -1) + 1
        label = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"
        drawn[name] = DrawnStep(step, column * (WIDTH + ACROSS) + 1, row * (HEIGHT + DOWN) + 1, label)
    lines = [_line(drawn[before], drawn[step.name]) for step in steps for before in step.after]
    width = (max(columns.values()) + 1) * (WIDTH + ACROSS) - ACROSS + 2
    height = (max(rows.values()) + 1) * (HEIGHT + DOWN) - DOWN + 2
    return StepPicture(list(drawn.values()), lines, width, height)


def columns_of(after: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the column of each step: one more than the last of those that it waits for. There is no circle."""
    columns: dict[str, int] = {}
    remaining = dict(after)
    while remaining:
        ready = [name for name, before in remaining.items() if all(other in columns for other in before)]
        for name in ready:
            columns[name] = max((columns[other] + 1 for other in remaining.pop(name)), default=0)
    return columns


def _line(first: DrawnStep, second: DrawnStep) -> str:
    """Return the path from the right of a step to the left of another."""
    x, y = first.x + WIDTH, first.y + HEIGHT // 2
    to_x, to_y = second.x, second.y + HEIGHT // 2
    bend = ACROSS // 2
    return f"M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"
