"""Visible text: untrusted text for terminals, in which every character that could act is replaced by its escape."""

import json
import re

#: C0 without tab and line feed, DEL and C1 (ECMA-48); marks without a glyph: soft hyphen, zero-width characters, Hangul
#: fillers, the BOM, tags; bidirectional controls (UAX #9); line and paragraph separators; lone surrogates.
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""Return the text with ``\xNN``, ``\uNNNN`` or ``\UNNNNNNNN`` for each active character.

    Tabs and line feeds stay, and so does what is visible already: applied twice, it changes nothing more.
    """
    return _ACTIVE.sub(_escape_sequence, text)


def visible_json(text: str) -> str:
    r"""Return JSON with ``\uNNNN`` for each active character in its texts: the same values, safe on a terminal."""
    return _ACTIVE.sub(lambda match: json.dumps(match[0])[1:-1], text)


def terminal_text(text: str) -> str:
    """Return untrusted text for a terminal that Rich writes to: visible, and without Rich's markup."""
    from rich.markup import escape  # Rich is loaded only by what needs it

    return escape(visible(text))


def is_visible(text: str) -> bool:
    """Return whether a text has no active character."""
    return _ACTIVE.search(text) is None


def _escape_sequence(match: re.Match[str]) -> str:
    code_point = ord(match[0])
    if code_point < 0x100:
        return f"\\x{code_point:02x}"
    return f"\\u{code_point:04x}" if code_point < 0x10000 else f"\\U{code_point:08x}"
