"""Selection of scenarios as people write it: `0-9, 20`, the size of a sample, and back to text."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from web.form_fields import UnreadableField

#: Ways to select scenarios.
SELECTIONS: Mapping[str, str] = {
    "all": "all",
    "range": "from number to number",
    "sample": "a random sample",
    "tasks": "these numbers",
}
#: Numbers that a list may have; the API's limit.
MOST = 100_000
#: What a field should have, by the way to select.
EXAMPLES = {
    "range": "the first and the last number, such as 0-99",
    "sample": "how many are drawn, such as 50",
    "tasks": "their numbers, such as 1, 5, 20-29",
}
_NUMBER, _SPAN = re.compile(r"\d{1,15}"), re.compile(r"(\d{1,15})\s*(?:-|–|\.\.)\s*(\d{1,15})")


def selection_of(kind: str, text: str) -> dict[str, Any] | None:
    """Return the member `scenarios` of a submission, None for all; raise UnreadableField.

    The last number of a range is played, unlike the end of the API's `range`.
    """
    if kind not in SELECTIONS or kind == "all":
        return None
    spans = [_span(kind, part) for part in re.split(r"\s*,\s*", text) if part]
    match kind, spans:
        case "range", [(first, last)] if first <= last:
            return {"range": [first, last + 1]}
        case "range", [(first, only), (last, other)] if first == only <= last == other:  # written as a list
            return {"range": [first, last + 1]}
        case "sample", [(size, only)] if size == only > 0:
            return {"sample": size}
        case "tasks", [_, *_] if all(first <= last for first, last in spans):
            if sum(last - first + 1 for first, last in spans) > MOST:
                raise UnreadableField(
                    "scenarios", f"Scenarios: a list has at most {MOST:,} numbers; choose “{SELECTIONS['range']}”."
                )
            return {"tasks": [number for first, last in spans for number in range(first, last + 1)]}
    raise _unreadable(kind)


def check_numbers(selection: Mapping[str, Any], total: int) -> None:
    """Raise UnreadableField if a selection does not lie in a dataset of ``total`` scenarios."""
    match selection:
        case {"range": [_, int(end)]}:
            beyond = end > total
        case {"tasks": [*tasks]}:
            beyond = any(isinstance(task, int) and task >= total for task in tasks)
        case {"sample": int(size)}:
            beyond = size > total
        case _:
            beyond = False
    if beyond:
        raise UnreadableField("scenarios", f"Scenarios: this dataset has {total:,}, with the numbers 0 to {total - 1}.")


def text_of_selection(selection: Mapping[str, Any]) -> tuple[str, str]:
    """Return the way to select and the numbers of a selection in its normal form; a sample without its seed."""
    match selection:
        case {"range": [int(first), int(end)]}:
            return "range", f"{first}-{end - 1}"
        case {"tasks": list(tasks)}:
            return "tasks", ", ".join(_spans_of(tasks))
        case {"sample": size}:
            return "sample", str(size)
    return "all", ""


def _span(kind: str, text: str) -> tuple[int, int]:
    if match := _SPAN.fullmatch(text):
        return int(match[1]), int(match[2])
    if _NUMBER.fullmatch(text):
        return int(text), int(text)
    raise _unreadable(kind)


def _spans_of(tasks: Sequence[int]) -> Iterable[str]:
    """Yield numbers, and three or more that follow each other as one span."""
    start = 0
    for at in range(1, len(tasks) + 1):
        if at < len(tasks) and tasks[at] == tasks[at - 1] + 1:
            continue
        if at - start > 2:
            yield f"{tasks[start]}-{tasks[at - 1]}"
        else:
            yield from map(str, tasks[start:at])
        start = at


def _unreadable(kind: str) -> UnreadableField:
    return UnreadableField("scenarios", f"Scenarios, {SELECTIONS[kind]}: write {EXAMPLES[kind]}.")
