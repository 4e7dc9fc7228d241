"""Picture kinds: what kind of picture a file is by its content, and how large: only bounded ones are shown. No I/O.

Known are PNG (RFC 2083), JPEG (ITU-T T.81), WebP (RFC 9649) and SVG. A program's file is a stranger's: its name says
nothing, and a small file may be a picture of gigabytes once it is decoded, which its header says.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

PNG, JPEG, WEBP, SVG = "image/png", "image/jpeg", "image/webp", "image/svg+xml"
#: Most bytes of a picture, and of one that is text; most pixels along an edge, and in all: those of a 4K screen.
LARGEST_PICTURE, LARGEST_SVG, LONGEST_EDGE, MOST_PIXELS = 16 << 20, 2 << 20, 8192, 3840 * 2160
#: Bytes at the beginning of a file in which its header must be.
HEADER = 64 << 10


@dataclass(frozen=True, slots=True)
class PictureHeader:
    """A picture: its media type, and its width and height in pixels; an SVG has no pixels, which are 0 then."""

    media_type: str
    width: int = 0
    height: int = 0


def picture_problem(picture: PictureHeader | None, size: int) -> str | None:
    """Return why a file of ``size`` bytes, whose content is a ``picture`` or none, is not shown; None if it is."""
    if picture is None:
        return "it is not a PNG, JPEG, WebP or SVG picture"
    largest = LARGEST_SVG if picture.media_type == SVG else LARGEST_PICTURE
    if size > largest:
        return f"it has {size:,} bytes, and pictures of its kind are shown up to {largest:,}"
    if max(picture.width, picture.height) > LONGEST_EDGE or picture.width * picture.height > MOST_PIXELS:
        return (
            f"it has {picture.width:,} by {picture.height:,} pixels, and pictures are shown up to {MOST_PIXELS:,}"
            f" pixels and {LONGEST_EDGE:,} along an edge"
        )
    return None


def has_entities(text: bytes) -> bool:
    """Return whether an SVG declares entities, which may be expanded without end, wherever that seems to stand."""
    return b"<!ENTITY" in text


def read_picture(head: bytes) -> PictureHeader | None:
    """Return which picture a file is by its first HEADER bytes; None for anything else."""
    for reader in _READERS:
        if (found := reader(head)) is not None:
            return found
    return None


def _png(head: bytes) -> PictureHeader | None:
    if not head.startswith(b"\x89PNG\r\n\x1a\n") or head[12:16] != b"IHDR" or len(head) < 24:
        return None
    return PictureHeader(PNG, *struct.unpack(">II", head[16:24]))


def _jpeg(head: bytes) -> PictureHeader | None:
    """Skip segments up to the frame header: SOF0 to SOF15, without DHT, JPG and DAC, which are among them."""
    if not head.startswith(b"\xff\xd8\xff"):
        return None
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4])
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return PictureHeader(JPEG, width, height)
        at += 2 + length
    return None


def _webp(head: bytes) -> PictureHeader | None:
    if head[:4] != b"RIFF" or head[8:12] != b"WEBP" or len(head) < 30:
        return None
    if head[12:16] == b"VP8X":
        return PictureHeader(WEBP, 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little"))
    if head[12:16] == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return PictureHeader(WEBP, 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    if head[12:16] == b"VP8 ":
        width, height = struct.unpack("<HH", head[26:30])
        return PictureHeader(WEBP, width & 0x3FFF, height & 0x3FFF)
    return None


def _svg(head: bytes) -> PictureHeader | None:
    """Return an SVG if the first element of a text is one, after declarations and comments."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    while (end := next((end for begin, end in _PROLOG_ENDS.items() if text.startswith(begin)), None)) is not None:
        text = text.partition(end)[2].lstrip()
    return PictureHeader(SVG) if re.match(rb"<svg[\s>]", text) else None


#: What may stand before the first element of an XML text, by how it begins, and how each ends.
_PROLOG_ENDS = {b"<?": b"?>", b"<!--": b"-->", b"<!DOCTYPE": b">"}
_READERS: tuple[Callable[[bytes], PictureHeader | None], ...] = (_png, _jpeg, _webp, _svg)
