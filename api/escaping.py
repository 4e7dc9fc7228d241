"""Output of strangers made safe to print: control and bidirectional characters are shown, not obeyed."""

import re
from collections.abc import Iterable, Iterator

# C0 without tab and line feed, DEL and C1, the bidirectional controls, line and paragraph separators, the BOM
_DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def _shown(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def escaped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Escape chunks of whole lines; bytes that are no UTF-8 are shown as such."""
    for chunk in chunks:
        yield _DANGEROUS.sub(_shown, chunk.decode("utf-8", "backslashreplace")).encode()
