"""Model formats: the modules of `runtimes.harness.models` that have a FORMAT, and the detection of a file's format."""

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from common.errors import UnknownFormat
from common.top_folder import is_clutter, top_folder
from runtimes import archives, file_kinds
from runtimes.file_kinds import FileKind
from runtimes.harness import models
from runtimes.harness.models.base import Certainty, ModelFormat, Recognition, Sample

#: Bytes at the start of a file that formats see.
HEAD = 1024
#: First bytes of a zip, and of an empty one.
ZIP = (b"PK\x03\x04", b"PK\x05\x06")


@functools.cache
def formats() -> Mapping[str, ModelFormat]:
    """Return every format by name. Imports their modules, but none of the libraries that load models."""
    return dict(_found())


def _found() -> Iterator[tuple[str, ModelFormat]]:
    for name in sorted(module.name for module in pkgutil.iter_modules(models.__path__)):
        format = getattr(importlib.import_module(f"{models.__name__}.{name}"), "FORMAT", None)
        if isinstance(format, ModelFormat):
            yield name, format


def suffixes() -> frozenset[str]:
    """Return the suffixes of file names of all formats."""
    return frozenset(suffix for format in formats().values() for suffix in format.suffixes)


def listed(known: Mapping[str, ModelFormat] | None = None) -> str:
    """Return the formats, by default all, as errors list them: names, with the suffixes of their files."""
    return ", ".join(
        f"{name} ({', '.join(known_suffixes)})"
        if (known_suffixes := format.suffixes + format.ambiguous_suffixes)
        else name
        for name, format in (formats() if known is None else known).items()
    )


def detect(
    path: Path, filename: str | None = None, *, default: str | None = None, members: tuple[str, ...] | None = None
) -> str:
    """Return the format of a file by its first bytes, the names in it if it is a zip, or its own name.

    ``members``: the names in it if it is a tar. ``default`` is the format of a file that is of no known format, unless
    this format refuses it or the file is surely of a kind that is not a model; a format that any file may be of gets
    all but those that a download, a checkout or an editor made. Raise UnknownFormat with the next step, or BadArchive
    if it is a zip that must not be unpacked. Models are not parsed here, not even for their shapes: only a sandboxed
    model server does that.
    """
    sample = sample_of(path, filename, members)
    try:
        return decide(sample, formats())
    except UnknownFormat:
        if default is None:
            raise
        format, kind = formats()[default], file_kinds.kind_of(sample)
        claim = format.judge(sample)
        unfit = kind is not None and (kind.never if format.any_file else kind.sure)
        if unfit or (claim is not None and claim.refusal):
            raise
        return default


def sample_of(path: Path, filename: str | None = None, members: tuple[str, ...] | None = None) -> Sample:
    """Read what formats are recognised by. Raise BadArchive if the file is a zip that must not be unpacked."""
    with open(path, "rb") as file:
        head = file.read(HEAD)
    if head.startswith(ZIP):
        members = tuple(archives.names(path))
    folder = ""
    if members is not None:
        members = tuple(name for name in members if not is_clutter(name))
        folder = top_folder(members)
    return Sample(head=head, size=path.stat().st_size, filename=filename or "", members=members, folder=folder)


def decide(sample: Sample, formats: Mapping[str, ModelFormat]) -> str:
    """Return the format that is surest of a file. Raise UnknownFormat for none, for several, and with its refusal."""
    claims = {name: claim for name, format in formats.items() if (claim := format.judge(sample)) is not None}
    surest = max((claim.certainty for claim in claims.values()), default=None)
    best = {name: claim for name, claim in claims.items() if claim.certainty == surest}
    accepted = [name for name, claim in best.items() if not claim.refusal]
    kind = file_kinds.kind_of(sample) if surest is None or surest <= Certainty.NAME else None
    if kind is not None and kind.never:  # a web page does not become a model by its suffix, or by a word in it
        raise UnknownFormat(_not_a_model(kind, formats))
    if len(accepted) == 1:
        return accepted[0]
    if accepted:
        raise UnknownFormat(f"The model may be {' or '.join(accepted)}. Name its `format`.")
    raise UnknownFormat(_reason(sample, best, formats))


def _reason(sample: Sample, refusals: Mapping[str, Recognition], formats: Mapping[str, ModelFormat]) -> str:
    if refusals:
        return " ".join(refusal.refusal for refusal in refusals.values())
    if (kind := file_kinds.kind_of(sample)) is not None:
        return _not_a_model(kind, formats)
    if sample.members is not None:
        zips = "; ".join(f"{name} has {format.zip_contents}" for name, format in formats.items() if format.zip_contents)
        return f"The zip is of no known format: {zips}. Name its `format` if it is one of them."
    return f"{UnknownFormat.__doc__} Formats: {listed(formats)}."


def _not_a_model(kind: FileKind, formats: Mapping[str, ModelFormat]) -> str:
    return f"{kind.refusal(formats)} Formats: {listed(formats)}."
