"""Wrapped zip: a model that is a zip itself (Keras, skops, PyTorch), packed again with its folder around it.

A browser unpacks such a file on its own, and a file manager packs the folder, with files that it adds beside it.
"""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO

from .base import Certainty, ModelFormat, Sample
from .unpacking import MAX_ENTRIES

ZIP = b"PK\x03\x04"


def unwrapped(source: bytes, format: ModelFormat) -> bytes:
    """Return the zip that the format recognises: the given one, or that of a folder in it; otherwise the given one."""
    if format.unpacked or not format.zip_contents or not source.startswith(ZIP):
        return source
    try:
        with zipfile.ZipFile(BytesIO(source)) as archive:
            names = archive.namelist()
            if len(names) > MAX_ENTRIES or _is_of(format, names):
                return source
            found = next((entries for entries in _below(names) if _is_of(format, entries)), None)
            return _packed(archive, found) if found is not None else source
    except Exception:  # of `zipfile`, which raises whatever a damaged field leads to; the loader says what is wrong
        return source


def _is_of(format: ModelFormat, names: Mapping[str, str] | Sequence[str]) -> bool:
    claim = format.recognise(Sample(head=ZIP, size=0, members=tuple(names)))
    return claim is not None and claim.certainty >= Certainty.CONTENT and not claim.refusal


def _below(names: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """Yield the files of each folder at the top, by the names that they get: below the folder, and with it."""
    for folder in sorted({top + slash for top, slash, _ in (name.partition("/") for name in names) if slash}):
        files = [name for name in names if name.startswith(folder) and not name.endswith(("/", "/.DS_Store"))]
        yield {name.removeprefix(folder): name for name in files}
        yield {name: name for name in files}


def _packed(archive: zipfile.ZipFile, entries: Mapping[str, str]) -> bytes:
    """Return a zip with these files, uncompressed, as PyTorch reads them."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as target:
        for name, original in entries.items():
            target.writestr(name, archive.read(original))
    return packed.getvalue()
