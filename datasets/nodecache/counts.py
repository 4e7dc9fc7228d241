"""Counts of a node cache: hits, misses and evictions since its folder was created."""

import contextlib
import json
import secrets
from collections import Counter
from pathlib import Path


class Counts:
    """A file of counts, which outlives processes. Callers must hold the node's lock.

    A file that is missing or damaged counts from zero again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Counter[str]:
        """Return the counts by name."""
        try:
            stored = json.loads(self._path.read_bytes())
            return Counter({name: int(number) for name, number in stored.items()})
        except (OSError, ValueError, AttributeError, TypeError):
            return Counter()

    def add(self, name: str, number: int = 1) -> None:
        """Add to a count. On a full disk nothing is counted: a figure must not fail a simulation."""
        counts = self.read()
        counts[name] += number
        draft = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                draft.write_text(json.dumps(counts))
                draft.replace(self._path)
            finally:
                draft.unlink(missing_ok=True)
