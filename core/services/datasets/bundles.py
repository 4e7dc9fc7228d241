"""Bundles: an evaluator's inputs packed into one object, for runners that share no folder with the platform."""

import json
import time
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

from common.errors import NotFound
from common.ids import digest_of
from core.store import simulations
from core.store.database import Database
from datasets.objectstore.base import ObjectStore
from datasets.versions import scenario_folder
from datasets.versions.archives.tar_writer import MeasuredTar

PREFIX = "plays/"


class Bundles:
    """Makes bundles and deletes unused ones.

    A bundle's key begins with the month in which it was made, and only simulations of that month use it: a bundle that
    is two months old gets no new users from any process, so it is deleted once its simulations have ended.
    """

    def __init__(self, objects: ObjectStore, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._objects = objects
        self._database = database
        self._clock = clock
        self._made: dict[tuple[str, str], dict[str, object]] = {}

    def of(self, name: str, folder: Path) -> dict[str, object]:
        """Return key, digest and size (bytes) of a folder's bundle; ``name`` identifies its content."""
        month = self._month()
        if (month, name) not in self._made:
            data = scenario_folder.pack(folder)
            digest = digest_of(data)
            key = f"{PREFIX}{month}/{digest.removeprefix('sha256:')}"
            self._objects.put(key, (data,))
            self._made[month, name] = {"key": key, "digest": digest, "size": len(data)}
        return self._made[month, name]

    def of_tree(self, name: str, folder: Path) -> dict[str, object]:
        """Return key, digest and size of a folder that may be large, packed while it is stored; as `of`.

        Its description is stored beside it, so that it is packed once a month.
        """
        month = self._month()
        key = f"{PREFIX}{month}/{name}.tar"
        if (month, name) not in self._made:
            try:
                described = json.loads(b"".join(self._objects.get(f"{key}.json")))
                self._objects.size(key)
            except NotFound:
                measured = MeasuredTar(folder)
                self._objects.put(key, measured)
                described = {"key": key, "digest": measured.digest, "size": measured.size}
                self._objects.put(f"{key}.json", (json.dumps(described).encode(),))
            self._made[month, name] = described
        return self._made[month, name]

    def remove_orphans(self) -> int:
        """Delete bundles that are two months old and that no running simulation needs; return their number."""
        last = f"{PREFIX}{self._month(before=1)}/"
        old = list(takewhile(lambda key: key < last, self._objects.list(PREFIX)))  # the listing is sorted
        if not old:
            return 0
        with self._database.read() as c:
            needed = simulations.bundles(c)
        unused = [key for key in old if key.removesuffix(".json") not in needed]
        for key in unused:
            self._objects.delete(key)
        return len(unused)

    def _month(self, before: int = 0) -> str:
        now = time.gmtime(self._clock())
        year, month = divmod(now.tm_year * 12 + now.tm_mon - 1 - before, 12)
        return f"{year:04}-{month + 1:02}"
