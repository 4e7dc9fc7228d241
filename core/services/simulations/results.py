"""Results of simulations: events, result lines, artifacts, logs and the archive, streamed and resumable."""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec
from msgspec.structs import replace

from common.downloads import Download
from common.errors import Gone, NotFinished, NotFound, UnknownArtifact, UnreadableRow
from core.domain.access.references import split_reference
from core.domain.access.scopes import Caller
from core.domain.access.shared_kinds import SharedKind
from core.domain.results import archive as zip
from core.domain.results.indented_json import indented
from core.domain.results.result_selection import ALL, Selection
from core.domain.scheduling.states import FINAL, State
from core.domain.submissions.provenance import provenance_of
from core.domain.submissions.stored_documents import load_document
from core.notifications.change_notifier import Waiters
from core.services.event_streams import EventLog
from core.services.simulations.archive_extras import ArchiveDescription, ArchiveExtra, ArchiveExtras
from core.services.simulations.inheritance import Inheritance, inherit
from core.services.uploads.shipped_models import shipped
from core.store import models, simulations
from core.store import results as store
from core.store.database import Connection, Database
from core.store.leases import Segment
from datasets.objectstore.base import ObjectStore

#: Seconds for which the presigned URL of an artifact is valid.
LINK_TTL = 900
#: Rows per query of segments and of artifacts; a shorter page is the last.
SEGMENTS, ARTIFACTS = 1000, 500


class Results:
    """Reads the results of simulations. No database transaction is open across a ``yield``."""

    def __init__(self, database: Database, objects: ObjectStore, changes: Waiters) -> None:
        self._database = database
        self._objects = objects
        self._changes = changes
        self.events = EventLog(database, changes, simulations.find, FINAL)
        self._extras = ArchiveExtras(database, objects)

    def inheritable(self, id: str) -> Inheritance:
        """Return the successful results of a simulation that has ended, which a retry takes over."""
        return inherit(self._database, self._objects, id)

    # -- events

    def delivered(self, caller: Caller, id: str, count: int) -> bool:
        """Return whether a client with ``count`` results has all results of an ended simulation."""
        with self._database.read() as c:
            row = simulations.find(c, caller.reading, id)
            return State(row.state) in FINAL and simulations.counts(c, id)[1] <= count

    # -- result lines

    def lines(
        self, caller: Caller, id: str, start: int = 0, stop: int | None = None, selection: Selection = ALL
    ) -> Iterator[bytes]:
        """Yield the present result lines of tasks [start, stop) in task order, in chunks of whole lines.

        Segments that hold no line of the selection are not read.
        """
        stage = self._stage(caller, id)
        return self.stage_lines(stage, start, stop, selection)

    def stage_lines(self, stage: str, start: int, stop: int | None, selection: Selection = ALL) -> Iterator[bytes]:
        """Yield the present result lines of a stage's tasks [start, stop), as ``lines`` does."""
        with self._database.read() as c:
            after = store.covering(c, stage, start)
        while True:
            with self._database.read() as c:
                page = store.segments_in(c, stage, after=after, upto=stop, limit=SEGMENTS)
            for segment in page:
                after = segment.start
                if segment.stop <= start or not selection.may_hold(segment.failed, segment.stop - segment.start):
                    continue
                body = self.segment_bytes(stage, segment)
                if segment.start < start or (stop is not None and segment.stop > stop):
                    lines = body.splitlines(keepends=True)
                    body = b"".join(
                        lines[max(0, start - segment.start) : None if stop is None else stop - segment.start]
                    )
                if body:
                    yield body
            if len(page) < SEGMENTS:
                return

    def lines_of(self, caller: Caller, id: str, tasks: Iterable[int]) -> Iterator[bytes]:
        """Yield the present result lines of these tasks, which ascend. A segment is read once, for all of its tasks."""
        stage = self._stage(caller, id)
        start = stop = 0
        lines: list[bytes] = []
        for task in tasks:
            if task >= stop:
                with self._database.read() as c:
                    page = store.segments_in(c, stage, after=store.covering(c, stage, task), limit=1)
                for segment in page:
                    start, stop = segment.start, segment.stop
                    lines = self.segment_bytes(stage, segment).splitlines(keepends=True)
            if start <= task < stop:
                yield lines[task - start]

    def follow(self, caller: Caller, id: str, *, skip: int = 0, heartbeat: float = 15.0) -> Iterator[bytes]:
        """Yield result lines in order of arrival until all are delivered; resume by the number of lines received.

        b"" is a heartbeat. If the simulation ends without all results, the last line is ``{"incomplete": reason}``.
        """
        stage = self._stage(caller, id)
        return self._follow(id, stage, skip, heartbeat)

    def _follow(self, id: str, stage: str, skip: int, heartbeat: float) -> Iterator[bytes]:
        after = 0
        with self._changes.watching(id):
            while True:
                version = self._changes.version(id)
                with self._database.read() as c:
                    news = store.news(c, id, stage, after)
                if news is None:
                    yield b'{"incomplete":"the simulation was deleted"}\n'
                    return
                page = self.arrived(stage, after, news)
                for number, segment in page:
                    after = number
                    count = segment.stop - segment.start
                    if skip >= count:
                        skip -= count
                        continue
                    body = self.segment_bytes(stage, segment)
                    if skip:
                        body = b"".join(body.splitlines(keepends=True)[skip:])
                        skip = 0
                    yield body
                if page:
                    continue
                if news.state in FINAL and not news.unnumbered:
                    with self._database.read() as c:
                        total, done, _ = simulations.counts(c, id)
                    if done < total:
                        yield json.dumps({"incomplete": news.reason or news.state}).encode() + b"\n"
                    return
                if not self._changes.wait(id, version, heartbeat):
                    yield b""

    def arrived(self, stage: str, after: int, news: store.News) -> Sequence[tuple[int, Segment]]:
        """Return the segments after number ``after``, once those that have arrived are numbered."""

        def numbered(c: Connection) -> list[tuple[int, Segment]]:
            store.number(c, stage)
            return store.arrived(c, stage, after)

        if news.unnumbered:
            return self._database.write(numbered, durable=False)
        if not news.arrived:
            return ()
        with self._database.read() as c:
            return store.arrived(c, stage, after)

    def _stage(self, caller: Caller, id: str) -> str:
        with self._database.read() as c:
            simulations.find(c, caller.reading, id)
            return store.newest_stage(c, id)

    def segment_bytes(self, stage: str, segment: Segment) -> bytes:
        """Return a segment's lines; read its row again if its object was compacted in the meantime."""
        for _ in range(3):
            try:
                body = b"".join(self._objects.get(segment.object, segment.offset, segment.bytes))
            except NotFound:
                with self._database.read() as c:
                    current = store.segment_at(c, stage, segment.start)
                if current is None:
                    raise Gone() from None
                segment = current
                continue
            if zlib.crc32(body) != segment.crc32:
                raise NotFound(f"The results of the tasks [{segment.start}, {segment.stop}) are damaged.")
            return body
        raise Gone()

    # -- artifacts

    def artifacts(
        self, caller: Caller, id: str, *, after: tuple[int, str] = (-2, ""), limit: int = 100
    ) -> list[dict[str, object]]:
        """Return a page of artifacts after (task, name)."""
        with self._database.read() as c:
            simulations.find(c, caller.reading, id)
            page = store.artifact_page(c, id, after, limit)
        return [
            {"task": item.task, "name": item.name, "media_type": item.media_type, "bytes": item.bytes} for item in page
        ]

    def artifact(self, caller: Caller, id: str, task: int, name: str) -> Download:
        """Return an artifact. Raise UnknownArtifact."""
        return self._download(id, self._artifact(caller, id, task, name))

    def _artifact(self, caller: Caller, id: str, task: int, name: str) -> store.Artifact:
        with self._database.read() as c:
            simulations.find(c, caller.reading, id)
            artifact = store.artifact(c, id, task, name)
        if artifact is None:
            raise UnknownArtifact()
        return artifact

    def link(self, caller: Caller, id: str, task: int, name: str) -> str | None:
        """Return a presigned URL of an artifact, or None if the object store has none.

        Artifacts share objects with others, and a presigned URL is of a whole object: the first request copies the
        artifact to an object of its own, which is deleted with the simulation.
        """
        artifact = self._artifact(caller, id, task, name)
        cut = hashlib.sha256(f"{task}/{name}".encode()).hexdigest()[:32]
        key = f"results/{id}/cut-{cut}-{artifact.crc32:08x}"
        link = self._objects.link(key, seconds=LINK_TTL, filename=name.rpartition("/")[2])
        if link is None:
            return None
        try:
            exists = self._objects.size(key) == artifact.bytes
        except NotFound:
            exists = False
        if not exists:
            self._objects.put(key, self._download(id, artifact).read(0, artifact.bytes))
        return link

    def _download(self, id: str, artifact: store.Artifact) -> Download:
        def read(start: int, stop: int) -> Iterator[bytes]:
            with self._database.read() as c:  # it may have been compacted
                current = store.artifact(c, id, artifact.task, artifact.name) or artifact
            return self._objects.get(current.object, current.offset + start, stop - start)

        return Download(artifact.bytes, artifact.media_type, f'"{artifact.crc32:08x}-{artifact.bytes:x}"', read)

    # -- logs

    def logs(self, caller: Caller, id: str, *, follow: bool = False, heartbeat: float = 15.0) -> Iterator[bytes]:
        """Yield output of models and simulators, each line prefixed with its process's name; b"" is a heartbeat."""
        with self._database.read() as c:
            simulations.find(c, caller.reading, id)
        return self._logs(caller, id, follow, heartbeat)

    def _logs(self, caller: Caller, id: str, follow: bool, heartbeat: float) -> Iterator[bytes]:
        after = 0
        with self._changes.watching(id):
            while True:
                version = self._changes.version(id)
                with self._database.read() as c:
                    try:
                        final = State(simulations.find(c, caller.reading, id).state) in FINAL
                    except NotFound:
                        return
                    page = store.log_pieces(c, id, after)
                for piece in page:
                    after = piece.seq
                    prefix = piece.name.encode() + b" | "
                    body = b"".join(self._objects.get(piece.object))
                    yield b"".join(prefix + line.rstrip(b"\n") + b"\n" for line in body.splitlines(keepends=True))
                if page:
                    continue
                if final or not follow:
                    return
                if not self._changes.wait(id, version, heartbeat):
                    yield b""

    # -- archive

    def archive(self, caller: Caller, id: str, *, model: bool = True) -> Download:
        """Return a zip of all results, with the model unless told otherwise, if the caller may read that.

        Its length and ETag are known in advance, and any range can be requested. Raise NotPermitted if the caller's
        token is for other models.
        """
        with self._database.read() as c:
            row = simulations.find(c, caller.reading, id)
            readable = model and _reads_model(c, caller, row)
        if model and row.model and row.model not in shipped():
            caller.patterns.require(SharedKind.MODELS, row.model)
        if State(row.state) not in FINAL or row.summary is None:
            raise NotFinished("The archive is available once the simulation has ended.")
        summary = load_document(row.summary)
        if "archive" not in summary:
            raise UnreadableRow("The simulation has no archive: it ended because its row cannot be read.")
        archive = msgspec.convert(summary["archive"], ArchiveDescription)
        documents = self._documents(row, summary)
        readme, following = self._extras.members(archive.extras, model=readable)
        extras = [readme, *following]

        def members() -> Iterator[zip.ArchiveMember]:
            return chain((readme,), self.members(caller, id, archive, documents), following)

        described = json.dumps(
            [
                *(summary["archive"], summary["results_digest"], documents),
                *((extra.name, extra.size, extra.crc32) for extra in extras),
            ],
            sort_keys=True,
        )
        etag = f'"{hashlib.sha256(described.encode()).hexdigest()[:32]}"'
        size = archive.size + sum(zip.size_within(extra) for extra in extras)
        return Download(size, "application/zip", etag, lambda start, stop: zip.read(members, start, stop))

    @staticmethod
    def _documents(row: simulations.SimulationRow, summary: Mapping[str, object]) -> dict[str, str]:
        document = {"id": row.id, "spec": load_document(row.spec), "provenance": load_document(row.provenance)}
        return {
            "simulation.json": indented(document) + "\n",
            "summary.json": indented({key: value for key, value in summary.items() if key != "archive"}) + "\n",
        }

    def members(
        self, caller: Caller, id: str, archive: ArchiveDescription, documents: Mapping[str, str]
    ) -> Iterator[zip.ArchiveMember]:
        """Yield the members of a zip of all results and artifacts; ``documents``: texts that come before them."""
        for name, text in documents.items():
            raw = text.encode()
            yield zip.ArchiveMember(name, len(raw), zlib.crc32(raw), _reader(raw))
        yield zip.ArchiveMember(
            "results.ndjson", archive.bytes, archive.crc32, lambda a, b: self._slice(self._stage(caller, id), a, b)
        )
        after = (-2, "")
        while True:
            with self._database.read() as c:
                page = store.artifact_page(c, id, after, ARTIFACTS)
            for item in page:
                after = (item.task, item.name)
                if item.task < 0:
                    continue  # made on demand after the end, so not part of the archive's computed size
                yield zip.ArchiveMember(
                    f"artifacts/{item.task}/{item.name}", item.bytes, item.crc32, self._download(id, item).read
                )
            if len(page) < ARTIFACTS:
                return

    def _slice(self, stage: str, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes [start, stop) of all result lines in task order."""
        position, after = 0, -1
        while position < stop:
            with self._database.read() as c:
                page = store.segments_in(c, stage, after=after)
            if not page:
                return
            for segment in page:
                after = segment.start
                low, high = max(0, start - position), min(segment.bytes, stop - position)
                if low < high:
                    yield self.segment_bytes(stage, segment)[low:high]
                position += segment.bytes
                if position >= stop:
                    return

    def describe_archive(
        self,
        caller: Caller,
        row: simulations.SimulationRow,
        summary: Mapping[str, object],
        size: int,
        crc32: int,
        extras: Sequence[ArchiveExtra] | None,
    ) -> ArchiveDescription:
        """Return sizes and CRC of the archive of a simulation that is being finalized, for its summary.

        ``size`` and ``crc32``: of all result lines. ``extras``: None to measure them, which reads model and logs. The
        size of the archive is that without its extras.
        """
        if extras is None:
            extras = self._extras.measure(caller, row.id, provenance_of(row.provenance))
        archive = ArchiveDescription(bytes=size, crc32=crc32, size=0, extras=extras)
        documents = self._documents(row, summary)
        return replace(archive, size=zip.measure(self.members(caller, row.id, archive, documents)))


def _reads_model(c: Connection, caller: Caller, row: simulations.SimulationRow) -> bool:
    """Return whether the model of a simulation is one's own or the platform's, or is shared with the caller now.

    One's own is in the archive also after its name was deleted, as long as the simulation has its bytes.
    """
    project = caller.scope.project
    if project is None or row.model in shipped() or (split_reference(row.model)[0] or row.project) == project:
        return True
    digest = provenance_of(row.provenance).model.digest
    return digest is not None and models.find(c, caller.reading, digest) is not None


def _reader(raw: bytes) -> Callable[[int, int], Iterator[bytes]]:
    return lambda start, stop: iter((raw[start:stop],))
