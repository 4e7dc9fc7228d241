"""Gestures: clicks and keystrokes of a person's path to the end of a task, step by step."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a path: what a person does, in words, with its clicks and keystrokes."""

    words: str
    clicks: int = 0
    keys: int = 0


def click(target: str, times: int = 1) -> Step:
    """Return the step of a click on a link, button or checkbox, or of clicks on several."""
    return Step(target if times == 1 else f"{target} ({times} times)", clicks=times)


def choose(target: str) -> Step:
    """Return the step of a choice in a list that opens: a click on the list, and a click on the choice."""
    return Step(f"choose {target}", clicks=2)


def write(text: str) -> Step:
    """Return the step of text that is typed where the cursor is: a keystroke for each character."""
    return Step(f"type `{text}`", keys=len(text))


def press(key: str) -> Step:
    """Return the step of a key such as Enter, or of keys at once such as Control+V: one keystroke."""
    return Step(key, keys=1)


def command(text: str) -> Step:
    """Return the step of a command at a prompt: its characters and Enter."""
    return Step(f"`{text}`", keys=len(text) + 1)


def total(steps: Iterable[Step]) -> tuple[int, int]:
    """Return the clicks and the keystrokes of a path."""
    counted = list(steps)
    return sum(step.clicks for step in counted), sum(step.keys for step in counted)


def in_words(steps: Iterable[Step]) -> str:
    """Return a path as a sequence of its steps."""
    return ", ".join(step.words for step in steps)
