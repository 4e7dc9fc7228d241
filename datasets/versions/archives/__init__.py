"""Archives that strangers send, read as streams: every member becomes a name and bytes, nothing is ever unpacked."""

from collections.abc import Iterator

from datasets.versions.archives import tar, zip
from datasets.versions.archives.streams import SMALL, Blob, inflated, sniffed
from datasets.versions.packs import File
from errors import BadArchive

__all__ = ["Blob", "files_of"]


def files_of(blob: Blob, *, ratio_from: int = SMALL) -> Iterator[File]:
    """Yield the files of a tar (plain, gzip, bzip2, xz, zstd) or zip; raise BadArchive where it is none, or hostile.

    Up to ``ratio_from`` bytes may come out whatever the ratio to the packed bytes.
    """
    kind = sniffed(blob)
    if kind == "zip":
        return zip.files(blob, ratio_from=ratio_from)
    if kind is None:
        raise BadArchive("This is neither a zip nor a tar (plain, or packed by gzip, bzip2, xz or zstd).")
    return tar.files(inflated(blob, kind, ratio_from=ratio_from))
