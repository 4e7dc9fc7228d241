"""Backups: objects are copied before and after a snapshot of the database, until it names no object that was missed.

An object is written before the row that names it and is never changed, so the second copy has what the snapshot names,
except for objects that were deleted in between: of compacted results and of deletions. The first copy has most of
those; for the rest, a further snapshot is taken.
"""

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from common.errors import Conflict, NotFound
from core.services.uploads.models import key_of
from core.store import references
from core.store.database import Database
from datasets.objectstore.base import ObjectStore
from datasets.objectstore.filesystem import FilesystemStore

logger = logging.getLogger(__name__)

#: Snapshots of the database that are taken before the backup fails.
SNAPSHOTS = 10
#: Names of database and objects in a backup and in a home.
DATABASE, OBJECTS = "windtunnel.db", "objects"


def back_up(database: Path, objects: ObjectStore, folder: Path) -> int:
    """Copy an SQLite database and its objects to a folder, while the platform runs; return the number of objects.

    The folder may have an earlier backup: objects that it has are not copied again, and its database is replaced last.
    Raise Conflict if objects that rows name are missing.
    """
    target = FilesystemStore(folder / OBJECTS)
    draft = folder / f"{DATABASE}.partial"
    _copy(objects, target)
    for _ in range(SNAPSHOTS):
        draft.unlink(missing_ok=True)
        with closing(sqlite3.connect(database)) as source:
            source.execute("VACUUM INTO ?", (str(draft),))
        _copy(objects, target)
        snapshot = Database(f"sqlite:///{draft}")
        try:
            absent = list(missing(snapshot, target))
        finally:
            snapshot.close()
        if not absent:
            return _publish(draft, folder, target)
        logger.info("backup: %d objects were deleted during the copy; taking another snapshot", len(absent))
    raise Conflict(f"{len(absent)} objects that the database names are missing, first {absent[0]}. See docs/backup.md.")


def _publish(draft: Path, folder: Path, target: ObjectStore) -> int:
    with open(draft, "rb") as file:
        os.fsync(file.fileno())
    os.replace(draft, folder / DATABASE)
    for end in ("-wal", "-shm"):
        (folder / f"{DATABASE}.partial{end}").unlink(missing_ok=True)
    (folder / f"{DATABASE}.partial.lock").unlink(missing_ok=True)
    return sum(1 for _ in target.list(""))


def _copy(source: ObjectStore, target: ObjectStore) -> None:
    """Copy the objects that the target lacks; an object that is deleted meanwhile is left out."""
    known = set(target.list(""))
    for key in source.list(""):
        if key not in known:
            try:
                target.put(key, source.get(key))
            except NotFound:
                continue


def missing(database: Database, objects: ObjectStore) -> Iterator[str]:
    """Yield the keys of objects that rows name and the store does not have, each once."""
    present = set(objects.list(""))
    with database.read() as c:
        named = references.objects(c) | {key_of(digest) for digest in references.models(c)}
    yield from sorted(named - present)
