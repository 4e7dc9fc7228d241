"""Packed results: all results and artifacts of a simulation in one object, to be registered as a dataset."""

import hashlib
import secrets
import zlib
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from common.errors import NotFound
from core.domain.access.scopes import Caller
from core.domain.results import archive as zip
from core.services.simulations.archive_extras import ArchiveDescription
from core.services.simulations.results import Results
from datasets.objectstore.base import ObjectStore

#: What such a dataset is said to come from, in place of a file; and the number that stands for all tasks.
RESULTS_NAME, ALL_TASKS = "results", -1


class PackedResults(msgspec.Struct, frozen=True):
    """A zip in the object store; ``digest``: `sha256:` and hexadecimal digits."""

    object: str
    digest: str
    bytes: int


class ResultPacking:
    """Packs simulations whose tasks all have results. The objects are deleted with the simulation."""

    def __init__(self, objects: ObjectStore, read: Results) -> None:
        self._objects = objects
        self._read = read

    def pack(self, caller: Caller, simulation: str) -> PackedResults:
        """Pack a simulation, once: its description is stored last, and counts. Raise StoreUnavailable."""
        described = f"results/{simulation}/packed.json"
        with suppress(NotFound):
            return self._described(described)
        size = crc32 = 0
        for body in self._read.lines(caller, simulation):
            size, crc32 = size + len(body), zlib.crc32(body, crc32)
        lines = ArchiveDescription(bytes=size, crc32=crc32, size=0)
        digest, length = hashlib.sha256(), 0

        def chunks() -> Iterator[bytes]:
            nonlocal length
            for chunk in zip.whole(lambda: self._read.members(caller, simulation, lines, {})):
                digest.update(chunk)
                length += len(chunk)
                yield chunk

        key = f"results/{simulation}/packed-{secrets.token_hex(6)}"
        self._objects.put(key, chunks())
        packed = PackedResults(key, f"sha256:{digest.hexdigest()}", length)
        self._objects.put(described, (msgspec.json.encode(packed),))
        return self._described(described)

    def _described(self, key: str) -> PackedResults:
        return msgspec.json.decode(b"".join(self._objects.get(key)), type=PackedResults)
