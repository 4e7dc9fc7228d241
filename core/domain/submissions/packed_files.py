"""Packed files: the bundles that a simulation's runners download where its executor shares no folder."""

import msgspec

from core.domain.submissions.stored_documents import decode_document


class LaunchFile(msgspec.Struct, frozen=True):
    """An object in the store that a launch's runner may fetch, such as a bundle; ``size`` in bytes."""

    key: str
    digest: str
    size: int


class PackedFiles(msgspec.Struct, frozen=True):
    """Packed files of a simulation: an evaluator's inputs, the model's own packages, and the model's size in bytes."""

    play: LaunchFile | None = None
    environment: LaunchFile | None = None
    model_size: int | None = None


def packed_files_of(text: str | None) -> PackedFiles:
    """Return the packed files that a simulation's row stores; None: nothing is packed. Raise UnreadableRow."""
    return decode_document(text, PackedFiles) if text else PackedFiles()
