"""Escaping of logs for terminals: control and bidirectional characters are replaced by their escape sequences."""

import re
from collections.abc import Iterable, Iterator

# C0 without tab and line feed, DEL and C1, the bidirectional controls, line and paragraph separators, the BOM
_DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def _escape_sequence(match: re.Match[str]) -> str:
    code_point = ord(match[0])
    return f"\\x{code_point:02x}" if code_point < 0x100 else f"\\u{code_point:04x}"


def escaped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Escape chunks of whole lines; bytes that are not UTF-8 become ``\\xNN``."""
    for chunk in chunks:
        yield _DANGEROUS.sub(_escape_sequence, chunk.decode("utf-8", "backslashreplace")).encode()
