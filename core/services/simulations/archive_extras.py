"""Extras of an archive: README, model and logs, beside the documents, results and artifacts.

Their sizes and CRCs are measured when the simulation is finalized, so that the length of the archive stays known in
advance. Archives of simulations that an earlier version finalized have the README only.
"""

import re
import secrets
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

import msgspec

from common.errors import NotFound
from common.ids import digest_of
from core.domain.access.references import scope_of_owner
from core.domain.access.scopes import Caller
from core.domain.results.archive import ArchiveMember
from core.domain.submissions.provenance import Provenance, ResolvedModel
from core.services.uploads.models import key_of
from core.services.uploads.shipped_models import shipped
from core.store import model_locks, models
from core.store import results as store
from core.store.database import Database
from datasets.objectstore.base import ObjectStore

#: Models whose size and CRC a process remembers.
MODELS = 1000
#: Pieces of logs per query; a shorter page is the last.
PIECES = 200
README = """\
Archive of a Windtunnel simulation
==================================

simulation.json   The submission (`spec`) and all that it was resolved to (`provenance`: digests of model, dataset,
                  runtime and simulator).
summary.json      Statistics of all tasks, and `results_digest`.
results.ndjson    One JSON object per task, in the order of the tasks: status, scenario (with index, repeat, seed and
                  swept parameters), metrics, error, artifacts, timing.
artifacts/T/NAME  Files of task T, if the submission recorded any (`record`).
logs.txt          Output of the model and the simulator, as it came: `process | line`.
model/FILE        The model, unless the archive was requested with `?model=false`, or the model is another project's
                  and is not shared with yours.
lock.txt          The Python packages of the model with versions and hashes, if it declares dependencies: a requirements
                  file (`uv pip install --require-hashes -r lock.txt`).

Traces. artifacts/T/trace.f32.zz has the actions of the model, one after the other: 32-bit floats, little-endian,
compressed by zlib. Each action has the shape that `GET /v1/datasets/NAME` describes:

    numpy.frombuffer(zlib.decompress(open("artifacts/0/trace.f32.zz", "rb").read()), "<f4").reshape(-1, *shape)

Repeat it. Send simulation.json as the body of a submission; the same digests are used. A server that does not have the
model refuses it with the digest: upload the file in model/ first.

    curl SERVER/v1/models -F file=@model/FILE
    curl SERVER/v1/simulations --json @simulation.json

What is equal. The repetition has the same tasks in the same order, and lines of results.ndjson that are equal but for
their last member, `timing`; so `results_digest`, which leaves `timing` out, is equal. That holds on machines of the
same architecture, and for models whose actions follow from their observations and seeds.
"""


class ArchiveExtra(msgspec.Struct, frozen=True):
    """An extra but the README: its name in the archive, and its object."""

    name: str
    key: str
    bytes: int
    crc32: int


class ArchiveDescription(msgspec.Struct, frozen=True):
    """An archive as a summary describes it: bytes and CRC of all result lines, and the size without the extras."""

    bytes: int
    crc32: int
    size: int
    extras: Sequence[ArchiveExtra] = ()


class ArchiveExtras:
    """Measures and reads the extras of archives. Logs are copied: pieces that come after the end do not change them."""

    def __init__(self, database: Database, objects: ObjectStore) -> None:
        self._database = database
        self._objects = objects
        self._models: dict[str, tuple[int, int]] = {}  # size and CRC by key

    def measure(self, caller: Caller, id: str, provenance: Provenance) -> list[ArchiveExtra]:
        """Return name, key, size and CRC of each extra but the README, for the summary; both are read once."""
        logs = self._log_lines(id)
        extras: list[ArchiveExtra] = []
        if (first := next(logs, None)) is not None:
            key = f"logs/{id}/archive-{secrets.token_hex(6)}"
            measured = _Measured(chain((first,), logs))
            self._objects.put(key, measured)
            extras.append(ArchiveExtra("logs.txt", key, measured.size, measured.crc32))
        if (lock := self._lock(provenance)) is not None:
            key = f"logs/{id}/lock-{secrets.token_hex(6)}"
            self._objects.put(key, (lock,))
            extras.append(ArchiveExtra("lock.txt", key, len(lock), zlib.crc32(lock)))
        model = provenance.model
        if model.digest is None:  # its import failed
            return extras
        key = key_of(model.digest)
        with suppress(NotFound):  # the object was lost: the archive of the results is still of use
            size, crc32 = self._measured_model(key)
            extras.append(ArchiveExtra(f"model/{self._file_of(caller, model)}", key, size, crc32))
        return extras

    def _lock(self, provenance: Provenance) -> bytes | None:
        """Return the lock that a simulation's provenance names, None if there is none."""
        model = provenance.model
        if model.digest is None or model.dependencies is None or (named := model.dependencies.lock) is None:
            return None
        with self._database.read() as c:
            locks = model_locks.all_of(c, model.digest)
        return next((raw for lock in locks if digest_of(raw := lock.encode()) == named), None)

    def _measured_model(self, key: str) -> tuple[int, int]:
        """Return a model's size and CRC; read once by each process, since the key is the digest of the content."""
        if key not in self._models:
            measured = _Measured(self._objects.get(key))
            for _ in measured:
                pass
            if len(self._models) >= MODELS:
                self._models.pop(next(iter(self._models)))
            self._models[key] = measured.size, measured.crc32
        return self._models[key]

    def _file_of(self, caller: Caller, model: ResolvedModel) -> str:
        """Return the name of the model's file, whose suffix shows its format; without folders and odd characters."""
        with self._database.read() as c:
            scope, _ = scope_of_owner(model.name, caller.scope)
            row = models.find(c, scope, model.digest or "")
        path = shipped().get(model.name)
        name = (row.filename if row is not None else path and path.name) or model.name
        return re.sub(r"[^A-Za-z0-9._-]+", "-", name.rpartition("/")[2])[-100:].strip(".-") or "model"

    def members(self, extras: Iterable[ArchiveExtra], *, model: bool) -> tuple[ArchiveMember, list[ArchiveMember]]:
        """Return the README, and what follows the results, without objects that were lost."""
        raw = README.encode()
        readme = ArchiveMember("README.txt", len(raw), zlib.crc32(raw), lambda start, stop: iter((raw[start:stop],)))
        requested = [extra for extra in extras if model or not extra.name.startswith("model/")]
        following = [
            ArchiveMember(extra.name, extra.bytes, extra.crc32, partial(self._read, extra.key))
            for extra in requested
            if self._exists(extra.key, extra.bytes)
        ]
        return readme, following

    def _read(self, key: str, start: int, stop: int) -> Iterator[bytes]:
        return self._objects.get(key, start, stop - start)

    def _exists(self, key: str, size: int) -> bool:
        try:
            return self._objects.size(key) == size
        except NotFound:
            return False

    def _log_lines(self, id: str) -> Iterator[bytes]:
        """Yield the lines of each piece of the logs, each line after the name of its process."""
        after = 0
        while True:
            with self._database.read() as c:
                page = store.log_pieces(c, id, after, PIECES)
            for piece in page:
                after = piece.seq
                prefix = piece.name.encode() + b" | "
                body = b"".join(self._objects.get(piece.object))
                yield b"".join(prefix + line + b"\n" for line in body.splitlines())
            if len(page) < PIECES:
                return


class _Measured:
    """Chunks that are measured while they are read, once."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.size = self.crc32 = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.size += len(chunk)
            self.crc32 = zlib.crc32(chunk, self.crc32)
            yield chunk
