"""Scenarios as people write them: numbers and ranges with their last number, as `0-99` or `3,5,20-29`."""

import re

from common.errors import Invalid
from common.printable import printable

#: A number, or a first and a last one; several of them. Commas and dashes may have spaces around them.
_SPAN = r" *[0-9]{1,8} *(- *[0-9]{1,8} *)?"
PATTERN = f"^{_SPAN}(,{_SPAN})*$"
#: The most characters of a text, and numbers that it may list; a single range may have more.
LONGEST, MOST_LISTED = 10_000, 100_000


def selection_of(text: str) -> dict[str, object]:
    """Return the selection of a text: a `range`, or `tasks`. Raise Invalid with what to write."""
    if len(text) > LONGEST or not re.fullmatch(PATTERN.strip("^$"), text):
        raise Invalid(
            f"{printable(text[:60])} names no scenarios; write numbers and ranges, such as 0-99 or 3,5,20-29, in at"
            f" most {LONGEST:,} characters."
        )
    spans = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        spans.append(range(int(first), int(last or first) + 1))
    if reversed_ := [part for part, span in zip(text.split(","), spans, strict=True) if not span]:
        raise Invalid(f"The range {reversed_[0].strip()} ends before it begins; write the smaller number first.")
    if len(spans) == 1 and len(spans[0]) > 1:
        return {"range": [spans[0].start, spans[0].stop]}
    if sum(map(len, spans)) > MOST_LISTED:
        raise Invalid(f"These are more than {MOST_LISTED:,} scenarios; write a single range, or a sample.")
    numbers = [number for span in spans for number in span]
    if len(set(numbers)) < len(numbers):  # equal tasks would count as if they were independent
        raise Invalid("A scenario is named twice; `repeat` plays one with other seeds.")
    return {"tasks": numbers}
