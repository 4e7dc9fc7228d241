"""Pictures by their content: what another library writes is recognised with its size, and nothing else is."""

import io

import pytest
from PIL import Image

from core.domain.results.picture_kinds import (
    HEADER,
    LARGEST_PICTURE,
    LARGEST_SVG,
    SVG,
    PictureHeader,
    has_entities,
    picture_problem,
    read_picture,
)

DRAWING = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><path d="M0 0L9 9"/></svg>'


def drawn(format: str, size: tuple[int, int] = (37, 21), **options: object) -> bytes:
    """Return a picture that Pillow writes."""
    file = io.BytesIO()
    Image.new("RGBA" if options.pop("alpha", False) else "RGB", size, "navy").save(file, format, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (drawn("PNG"), "image/png"),
        (drawn("JPEG"), "image/jpeg"),
        (drawn("JPEG", progressive=True, exif=b"Exif\0\0" + b"x" * 5000), "image/jpeg"),
        (drawn("WEBP"), "image/webp"),
        (drawn("WEBP", lossless=True), "image/webp"),
        (drawn("WEBP", alpha=True, exif=b"Exif\0\0"), "image/webp"),
    ],
)
def test_a_picture_has_the_kind_and_the_size_of_its_content(content: bytes, media_type: str) -> None:
    assert read_picture(content[:HEADER]) == PictureHeader(media_type, 37, 21)
    assert picture_problem(read_picture(content), len(content)) is None
    for length in range(len(content[:200])):
        assert read_picture(content[:length]) in (None, PictureHeader(media_type, 37, 21))


@pytest.mark.parametrize(
    "before",
    [
        b"",
        b"\xef\xbb\xbf",
        b'<?xml version="1.0" encoding="utf-8" standalone="no"?>\n',
        b'<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN"\n "http://www.w3.org/svg11.dtd">\n',
        b"<!-- of > and < and <svg -->\n<!-- another -->",
    ],
)
def test_an_svg_is_one_after_declarations_and_comments(before: bytes) -> None:
    assert read_picture(before + DRAWING) == PictureHeader(SVG)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<",
        b"<html><svg ></svg></html>",
        b"<svgx></svgx>",
        b"<script>alert(1)</script>",
        b"<?xml version='1.0'?><!-- <svg >",
        b'<!DOCTYPE svg [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + DRAWING,
        b"GIF89a",
        b"BM" + b"\0" * 60,
        b"%PDF-1.7",
        b"\x89PNG\r\n\x1a\n" + b"\0" * 40,
        b"\xff\xd8\xff" + b"\0" * 100,
        DRAWING.decode().encode("utf-16"),
    ],
)
def test_other_content_is_no_picture_whatever_its_name(content: bytes) -> None:
    assert "is not a PNG, JPEG, WebP or SVG" in (picture_problem(read_picture(content), len(content)) or "")


def test_a_small_file_that_is_decoded_to_gigabytes_is_not_shown() -> None:
    header = bytearray(drawn("PNG")[:64])
    header[16:24] = (50_000).to_bytes(4) * 2
    assert "it has 50,000 by 50,000 pixels" in (picture_problem(read_picture(bytes(header)), 64) or "")
    assert "along an edge" in (picture_problem(PictureHeader("image/webp", 16_000, 2), 64) or "")
    assert picture_problem(PictureHeader("image/png", 3840, 2160), LARGEST_PICTURE) is None


def test_files_beyond_the_bound_of_their_kind_are_not_shown() -> None:
    assert "bytes" in (picture_problem(PictureHeader("image/png", 10, 10), LARGEST_PICTURE + 1) or "")
    assert "bytes" in (picture_problem(PictureHeader(SVG), LARGEST_SVG + 1) or "")


def test_an_svg_with_entities_is_told_from_one_without() -> None:
    assert has_entities(b'<!DOCTYPE svg [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + DRAWING)
    assert not has_entities(DRAWING)
