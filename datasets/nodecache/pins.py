"""Pins: who on this node needs which tree or object, as empty files, so that they outlive every process."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote


class Pins:
    """A folder of pins: ``<what>/<holder>``. Who pins and who evicts hold the same lock; it is not taken here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, what: str, holder: str) -> None:
        """Pin something for a holder; twice is once."""
        folder = self._folder / what
        folder.mkdir(parents=True, exist_ok=True)
        (folder / quote(holder, safe="")).touch()

    def release(self, holder: str) -> None:
        """Drop all of a holder's pins."""
        for what in self._names(self._folder):
            (self._folder / what / quote(holder, safe="")).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                (self._folder / what).rmdir()  # if it was the last

    def holders(self) -> set[str]:
        """Return everybody who holds anything."""
        return {unquote(name) for what in self._names(self._folder) for name in self._names(self._folder / what)}

    def pinned(self, what: str) -> bool:
        """Tell whether anybody holds it."""
        return any(self._names(self._folder / what))

    @staticmethod
    def _names(folder: Path) -> Iterator[str]:
        try:
            yield from os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return
