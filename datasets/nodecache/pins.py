"""Pins: which holder on this node needs which tree or object. Stored as empty files, so that they outlive processes."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote


class Pins:
    """A folder of pins, ``<id>/<holder>``. Not synchronized: callers that pin or evict must hold the node's lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, id: str, holder: str) -> None:
        """Pin an id for a holder; idempotent."""
        folder = self._folder / id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / quote(holder, safe="")).touch()

    def release(self, holder: str) -> None:
        """Remove all pins of a holder."""
        for id in self._names(self._folder):
            (self._folder / id / quote(holder, safe="")).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                (self._folder / id).rmdir()  # succeeds only if that was the last pin

    def holders(self) -> set[str]:
        """Return all holders with at least one pin."""
        return {unquote(name) for id in self._names(self._folder) for name in self._names(self._folder / id)}

    def pinned(self, id: str) -> bool:
        """Tell whether any holder pins this id."""
        return any(self._names(self._folder / id))

    @staticmethod
    def _names(folder: Path) -> Iterator[str]:
        try:
            yield from os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return
