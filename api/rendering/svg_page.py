"""Page of a picture: background, title and outcome, which all pictures of tasks share."""

import re
from collections.abc import Iterable
from html import escape
from typing import Any

WIDTH, HEIGHT = 960, 540
INK, PANEL, ALARM, GOOD, PAPER, ACCENT = "#12181f", "#ffffff", "#e5383b", "#2a9d5c", "#eef1ee", "#00a6a6"
FONT = 'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"'
#: Characters that XML 1.0 has not, and those that change the direction of a text.
_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]"
)


class NotDrawable(ValueError):
    """A replay cannot be drawn; the message says why, in words for users."""


def printable(value: Any, longest: int = 60) -> str:
    """Return a text for SVG: escaped, without characters that XML does not have, and shortened."""
    text = _UNPRINTABLE.sub("\ufffd", str(value))
    return escape(text if len(text) <= longest else text[: longest - 1] + "…")


def page(title: Any, outcome: Any, *, good: bool, body: Iterable[str], height: float = HEIGHT) -> str:
    """Return a picture with a title on the left and an outcome on the right."""
    name, end = printable(title), printable(outcome, 30)
    width = 26 + 9.6 * len(end)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" {FONT}>',
            f"<title>{name}</title>",
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="{PAPER}"/>',
            f'<text x="28" y="38" font-size="18" font-weight="600" fill="{INK}">{name}</text>',
            f'<rect x="{WIDTH - 18 - width:.0f}" y="16" width="{width:.0f}" height="32" rx="16"'
            f' fill="{GOOD if good else ALARM}"/>',
            f'<text x="{WIDTH - 18 - width / 2:.0f}" y="37" font-size="15" font-weight="700" fill="{PANEL}"'
            f' text-anchor="middle">{end}</text>',
            *body,
            "</svg>",
            "",
        ]
    )


def figure(value: float) -> str:
    """Format a number with four significant digits."""
    try:
        return f"{value:.4g}"
    except OverflowError:  # an integer beyond every float
        return f"{'-' if value < 0 else ''}1e{int(value).bit_length() * 3 // 10}…"
