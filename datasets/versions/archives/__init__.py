"""Uploaded archives (untrusted), read as streams: members become names and bytes, nothing is unpacked to disk."""

from collections.abc import Iterator

from common.errors import BadArchive
from datasets.versions.archives import tar, zip
from datasets.versions.archives.decompression import LARGEST, SMALL, ByteSource, decompressed, detect_format
from datasets.versions.packs import SourceFile

__all__ = ["ByteSource", "files_of"]


def files_of(
    archive: ByteSource, *, ratio_from: int = SMALL, largest: int = LARGEST, limit: str = ""
) -> Iterator[SourceFile]:
    """Yield the files of a tar (plain, gzip, bzip2, xz, zstd) or zip; raise BadArchive if it is neither, or hostile.

    The compression ratio is checked only beyond ``ratio_from`` bytes of output. A compressed tar, whose files are
    decompressed also where nobody reads them, raises TooLarge beyond ``largest`` bytes; ``limit`` names that.
    """
    format = detect_format(archive)
    if format == "zip":
        return zip.files(archive, ratio_from=ratio_from)
    if format is None:
        raise BadArchive("This is neither a zip nor a tar (plain, or compressed by gzip, bzip2, xz or zstd).")
    return tar.files(decompressed(archive, format, ratio_from=ratio_from, largest=largest, limit=limit))
