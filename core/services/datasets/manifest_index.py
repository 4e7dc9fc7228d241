"""Manifest index: the lines of a client's manifest in SQLite on disk, with the location of each content once found."""

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

from common.errors import Invalid
from datasets.versions.manifest import ManifestEntry


class ManifestIndex:
    """Manifest lines on disk, with the location of each line's content once found."""

    def __init__(self, folder: Path) -> None:
        self._db = sqlite3.connect(folder / "manifest.db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=OFF")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute("CREATE TABLE lines (path, digest, size, source, connection)")
        self._db.execute("CREATE TABLE found (digest PRIMARY KEY, source, offset, size, etag) WITHOUT ROWID")
        self._db.execute("BEGIN")

    def add(self, path: str, digest: str, size: int, source: str | None, connection: str | None) -> None:
        """Add a line."""
        self._db.execute("INSERT INTO lines VALUES (?,?,?,?,?)", (path, digest, size, source, connection))
        if source is None:
            self._db.execute("INSERT OR IGNORE INTO found VALUES (?,NULL,NULL,NULL,NULL)", (digest,))

    def added(self) -> None:
        """Build the index, after the last line."""
        self._db.execute("CREATE INDEX unfound ON found (digest) WHERE source IS NULL")

    def misses(self, digest: str) -> bool:
        """Return whether the manifest names this digest and its content is not found yet."""
        query = "SELECT 1 FROM found WHERE digest=? AND source IS NULL"
        return self._db.execute(query, (digest,)).fetchone() is not None

    def settle(self, entries: Iterable[ManifestEntry]) -> None:
        """Store the locations of contents."""
        self._db.executemany(
            "UPDATE found SET source=?, offset=?, size=?, etag=? WHERE digest=? AND source IS NULL",
            [(entry.source, entry.offset, entry.size, entry.etag, entry.digest) for entry in entries],
        )

    def missing(self) -> str | None:
        """Return the digest of a content without a location, or None."""
        row = self._db.execute("SELECT digest FROM found WHERE source IS NULL LIMIT 1").fetchone()
        return None if row is None else str(row[0])

    def located(self) -> Iterator[tuple[str, str, int, str, str | None, int, str | None]]:
        """Yield each line with the location of its content. Raise Invalid if a size is not the content's."""
        query = (
            "SELECT l.path, l.digest, l.size, coalesce(l.source, f.source), l.connection, coalesce(f.offset, 0),"
            " f.etag, f.size FROM lines l LEFT JOIN found f ON l.source IS NULL AND f.digest=l.digest"
        )
        for path, digest, size, source, connection, offset, etag, known in self._db.execute(query):
            if known is not None and known != size:
                raise Invalid(f"The content {digest} has {known} bytes, not {size} as the manifest says.")
            yield path, digest, size, source, connection, offset, etag

    def close(self) -> None:
        """Close the file."""
        self._db.close()
