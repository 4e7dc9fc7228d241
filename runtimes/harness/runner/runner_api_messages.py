"""Messages of the runner API, shared by its client and its server: JSON, and reports with bytes after a JSON header."""

import struct
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

_LENGTH = struct.Struct("<I")
#: Largest number of a task, and most bytes of a part of a report: what every database and every reader can hold.
LARGEST = 2**53 - 1
#: A task's number, or the end of a range of them; with -1 for none; bytes; a rate per second.
Position = Annotated[int, Meta(ge=0, le=LARGEST)]
Task = Annotated[int, Meta(ge=-1, le=LARGEST)]
Size = Annotated[int, Meta(ge=0, le=LARGEST)]
Rate = Annotated[float, Meta(ge=0)]
#: A name or an id, and what people read, shortened by the service that stores it. PostgreSQL stores no NUL.
Name = Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00]*\Z")]
#: Count, sum, sum of squares, minimum and maximum of a metric.
Sketch = tuple[float, float, float, float, float]


class LeaseRequest(msgspec.Struct, frozen=True):
    """A worker asks for a lease. ``rate``: its tasks per second, None before the first report."""

    worker: Name
    rate: Rate | None = None


class GrantedLease(msgspec.Struct, frozen=True):
    """A leased range: run tasks [cursor, stop). Up to the task ``careful``, report every result separately."""

    stage: str
    start: int
    cursor: int
    stop: int
    fencing_token: str
    ttl: float
    careful: int = -1


class LeaseAnswer(msgspec.Struct, frozen=True):
    """Answer to a request for a lease or to a report. ``cursor`` and ``stop`` None: no statement about the range."""

    cursor: int | None = None
    stop: int | None = None
    lost: bool = False
    lease: GrantedLease | None = None
    retry_after: float | None = None
    ended: bool = False


class LeaseEntry(msgspec.Struct, frozen=True):
    """A held lease in a heartbeat or a release. ``task``: the task at work, -1 if unknown."""

    stage: Name
    start: Position
    fencing_token: Name
    task: Task = -1


class LeaseEntries(msgspec.Struct, frozen=True):
    """The held leases that a heartbeat renews, or that a runner releases."""

    leases: list[LeaseEntry]


class LeaseStanding(msgspec.Struct, frozen=True):
    """State of a lease that a heartbeat named."""

    start: int
    cursor: int = 0
    stop: int = 0
    lost: bool = False


class LeaseStandings(msgspec.Struct, frozen=True):
    """Answer to a heartbeat: one entry per lease, in order. ``looked``: people wait for looks into the task at work."""

    leases: list[LeaseStanding]
    looked: bool = False


class StoredArtifact(msgspec.Struct, frozen=True):
    """An artifact that was stored as a file of its task before the report (`TaskFileHeader`); ``object``: its key."""

    task: Position
    name: Name
    media_type: Name
    bytes: Size
    crc32: Size
    object: Name


class ReportHeader(msgspec.Struct, frozen=True, rename={"since": "from"}):
    """Header of a report: the result lines of tasks [since, to), ``lines`` bytes of them, then the artifacts' bytes.

    ``artifacts``: (task, name, media type, bytes) of each artifact, in the order of their bytes; ``stored``: artifacts
    whose bytes were sent before. ``sketch``: count, sum, sum of squares, minimum and maximum by metric. ``rate``: tasks
    per second of the worker. ``next``: the answer may have the next lease. ``checkpointed``: the tasks whose
    checkpoints are needed no more.
    """

    worker: Name
    stage: Name
    start: Position
    fencing_token: Name
    since: Position
    to: Position
    lines: Size
    artifacts: list[tuple[Task, Name, Name, Size]] = []
    stored: list[StoredArtifact] = []
    checkpointed: list[Position] = []
    sketch: dict[str, Sketch] = {}
    rate: Rate | None = None
    next: bool = False


class DeathReport(msgspec.Struct, frozen=True):
    """A worker's evaluator, or a gang, died by itself while it held a lease. ``task``: the task at work, or -1."""

    worker: Name
    stage: Name
    start: Position
    fencing_token: Name
    task: Task = -1
    reason: str = "its process ended"


class TaskFileHeader(msgspec.Struct, frozen=True):
    """The query of a request that stores a file of a task under its lease: an output, or a checkpoint's.

    A request that is repeated stores another object; the first one is deleted after the simulation's end.
    """

    stage: Name
    start: Position
    fencing_token: Name
    task: Position


class StoredFile(msgspec.Struct, frozen=True):
    """Answer to a stored file: its object's key, its bytes and their CRC-32."""

    object: str
    bytes: int
    crc32: int


class CheckpointFile(msgspec.Struct, frozen=True):
    """A file of a checkpoint: whose rank's, its path in the rank's folder, and its object."""

    rank: Position
    path: Name
    object: Name
    bytes: Size


class Checkpoint(msgspec.Struct, frozen=True):
    """A complete checkpoint of a task: its name, and the files of all ranks."""

    name: Name
    files: list[CheckpointFile]


class CheckpointReport(msgspec.Struct, frozen=True):
    """All files of a checkpoint are stored: from now on it is the newest."""

    stage: Name
    start: Position
    fencing_token: Name
    task: Position
    checkpoint: Checkpoint


class ProgressReport(msgspec.Struct, frozen=True):
    """A program tells how far it is with its task: ``fraction`` from 0 to 1."""

    stage: Name
    start: Position
    fencing_token: Name
    task: Position
    fraction: Annotated[float, Meta(ge=0, le=1)]


class NewestCheckpoint(msgspec.Struct, frozen=True):
    """Answer to the question for a task's newest checkpoint; None: it has none."""

    checkpoint: Checkpoint | None = None


class LookRequest(msgspec.Struct, frozen=True):
    """A person looks into a task: ``kind`` is "list" for the entries of a folder, "read" for bytes of a file, "connect"
    for a connection to the port that ``path`` is, whose bytes pass under the ``id``.

    ``offset``: of the bytes, from the end of the file if it is negative; ``length``: the most of them. ``wait``:
    seconds to wait for bytes, if there are none yet.
    """

    id: Name
    task: Position
    kind: Literal["list", "read", "connect"]
    path: Name
    offset: int = 0
    length: int = 0
    wait: float = 0.0


class LookRequests(msgspec.Struct, frozen=True):
    """Answer to the question for looks into the tasks of a launch."""

    looks: list[LookRequest]


class LookedEntry(msgspec.Struct, frozen=True):
    """An entry of a folder that was looked at: a "file", a "folder", or "other", which cannot be read."""

    name: Annotated[str, Meta(max_length=10_000)]
    kind: Literal["file", "folder", "other"]
    bytes: Size
    changed_at: float


class LookAnswer(msgspec.Struct, frozen=True):
    """The answer to a look; bytes follow. ``problem``: why it has seen nothing, ``ended``: the task does not run.

    ``more``: the folder has further entries. ``start``: where the bytes begin; ``size``: of the file.
    """

    id: Name
    problem: Annotated[str, Meta(max_length=1000)] | None = None
    ended: bool = False
    entries: list[LookedEntry] = []
    more: bool = False
    start: Size = 0
    size: Size = 0


class PieceQuery(msgspec.Struct, frozen=True):
    """The query of a request for bytes of a forwarded connection, or with some: the piece's number, from 0."""

    id: Name
    number: Position = 0


class PieceAccepted(msgspec.Struct, frozen=True):
    """Answer to a piece of a connection: whether there was room for it, or the connection is ``over``."""

    accepted: bool = False
    over: bool = False


class PiecesHeader(msgspec.Struct, frozen=True):
    """Answer to a request for bytes of a connection, which follow: the number of the ``next`` piece.

    ``end``: no more follow from the other side; ``over``: the connection is.
    """

    next: int
    end: bool = False
    over: bool = False


class ModelRefusal(msgspec.Struct, frozen=True):
    """The model does not load, or does not fit the dataset."""

    reason: str
    status: str = "failed"


_header = msgspec.json.Decoder(ReportHeader)
_look_answer = msgspec.json.Decoder(LookAnswer)
_pieces_header = msgspec.json.Decoder(PiecesHeader)
Header = TypeVar("Header")


def pack_look(answer: LookAnswer | PiecesHeader, data: bytes) -> bytes:
    """Return the body of the answer to a look: the answer's length, the answer, the bytes that it has seen."""
    encoded = msgspec.json.encode(answer)
    return b"".join((_LENGTH.pack(len(encoded)), encoded, data))


def unpack_pieces(body: bytes) -> tuple[PiecesHeader, bytes]:
    """Return the header of bytes of a connection, and the bytes; raise msgspec.DecodeError if there is none."""
    header, edge = _unpack_header(body, _pieces_header)
    return header, body[edge:]


def unpack_look(body: bytes) -> tuple[LookAnswer, bytes]:
    """Return an answer and the bytes that it has seen; raise msgspec.DecodeError if there is no answer."""
    answer, edge = _unpack_header(body, _look_answer)
    return answer, body[edge:]


def pack_report(header: ReportHeader, lines: "memoryview | bytes", blobs: "memoryview | bytes") -> bytes:
    """Return the body of a report: the header's length, the header, the result lines, the artifacts' bytes."""
    encoded = msgspec.json.encode(header)
    return b"".join((_LENGTH.pack(len(encoded)), encoded, lines, blobs))


def unpack_report(body: bytes) -> tuple[ReportHeader, bytes, bytes]:
    """Return a report's header, result lines and artifacts' bytes; raise msgspec.DecodeError if it has no header."""
    header, edge = _unpack_header(body, _header)
    return header, body[edge : edge + header.lines], body[edge + header.lines :]


def _unpack_header(body: bytes, decoder: msgspec.json.Decoder[Header]) -> tuple[Header, int]:
    """Return the header of a body, and where it ends."""
    if len(body) < _LENGTH.size:
        raise msgspec.DecodeError("The report has no header.")
    edge = _LENGTH.size + _LENGTH.unpack_from(body)[0]
    return decoder.decode(body[_LENGTH.size : edge]), edge
