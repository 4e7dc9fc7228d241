"""Sums of the bytes that rows name in the object store, by kind, and the size of the database.

They read all rows of a kind: seconds with millions of segments, so they are not for each request.
"""

from collections.abc import Mapping

from sqlalchemy import Connection, text

_EXTENTS = 'SELECT count(*), sum(size) FROM (SELECT max("offset" + bytes) AS size FROM {} GROUP BY object) AS objects'
#: Objects and bytes by kind. A retry inherits parts of objects of results and artifacts: each object counts once, up to
#: the end of its last part.
_SUMS: Mapping[str, str] = {
    "models": "SELECT count(*), sum(size) FROM (SELECT max(size) AS size FROM (SELECT digest, size FROM models"
    " UNION ALL SELECT digest, bytes FROM bin_items WHERE digest IS NOT NULL) AS rows GROUP BY digest) AS contents",
    "datasets": "SELECT count(*), sum(bytes) FROM dataset_versions WHERE state='ready'"
    " OR id IN (SELECT id FROM bin_items WHERE kind='datasets')",
    "results": _EXTENTS.format("segments"),
    "artifacts": _EXTENTS.format("artifacts"),
    "logs": "SELECT count(*), sum(bytes) FROM logs",
    "uploads": "SELECT count(*), sum(bytes) FROM upload_parts",
}


def by_kind(c: Connection) -> dict[str, tuple[int, int]]:
    """Return the number of objects and their bytes, by kind."""
    sums = {}
    for kind, query in _SUMS.items():
        count, total = c.execute(text(query)).one()
        sums[kind] = (int(count), int(total or 0))
    return sums
