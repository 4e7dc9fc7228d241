"""Every way the platform says no: a class is a problem type, its docstring the default detail.

Naming an HTTP status here is a small, deliberate impurity: the alternative is a second table to keep in step.
"""

from http import HTTPStatus
from typing import Any, ClassVar


def _unregistered(code: int, phrase: str) -> HTTPStatus:
    """Make a status that a standard of its own defines and the registry does not know."""
    status = int.__new__(HTTPStatus, code)
    vars(status).update(_name_=phrase.upper().replace(" ", "_"), _value_=code, phrase=phrase, description="")
    return status


class PlatformError(Exception):
    """The request could not be served; the fault is ours, and it has been logged."""

    slug: ClassVar[str] = "internal"
    status: ClassVar[HTTPStatus] = HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, detail: str | None = None, **members: Any) -> None:
        super().__init__(detail or type(self).__doc__)
        self.detail = detail or type(self).__doc__
        self.members = members


class BadRequest(PlatformError):
    """The request cannot be read; see the detail for the place."""

    slug = "bad-request"
    status = HTTPStatus.BAD_REQUEST


class TruncatedUpload(BadRequest):
    """The body ended before its announced length. Nothing was kept; send it again."""

    slug = "truncated-upload"


class Unauthorized(PlatformError):
    """A valid launch token is needed here."""

    slug = "unauthorized"
    status = HTTPStatus.UNAUTHORIZED


class Forbidden(PlatformError):
    """A web page of another origin may not drive this platform."""

    slug = "forbidden-origin"
    status = HTTPStatus.FORBIDDEN


class NotFound(PlatformError):
    """There is no such thing here."""

    slug = "not-found"
    status = HTTPStatus.NOT_FOUND


class UnknownSimulation(NotFound):
    """There is no simulation of this id. `GET /v1/simulations` lists them."""

    slug = "unknown-simulation"


class UnknownArtifact(NotFound):
    """This simulation holds no artifact of that task and name."""

    slug = "unknown-artifact"


class NoReplay(NotFound):
    """This task cannot be played again; the detail has the simulator's words."""

    slug = "no-replay"


class UnknownFile(NotFound):
    """This version of the dataset holds no file of that path. `GET .../files` lists them."""

    slug = "unknown-file"


class NotAcceptable(PlatformError):
    """None of the formats you accept can be given here."""

    slug = "not-acceptable"
    status = HTTPStatus.NOT_ACCEPTABLE


class Conflict(PlatformError):
    """Somebody else changed this in the meantime. Look again, then decide."""

    slug = "conflict"
    status = HTTPStatus.CONFLICT


class Unsupported(Conflict):
    """What runs this simulation cannot do that to it while it runs. Cancel it and submit it anew."""

    slug = "unsupported"


class IllegalTransition(Conflict):
    """The simulation is not in a state from which this can be done."""

    slug = "illegal-transition"


class NotFinished(Conflict):
    """The simulation has not ended yet; this can be had only afterwards."""

    slug = "not-finished"


class InUse(Conflict):
    """A simulation that has not ended still needs this. Cancel it first."""

    slug = "in-use"


class StillRunning(Conflict):
    """The first request with this Idempotency-Key is still being served. Try again shortly."""

    slug = "idempotency-in-progress"


class Gone(PlatformError):
    """This has been deleted, or is over."""

    slug = "gone"
    status = HTTPStatus.GONE


class TooLarge(PlatformError):
    """The body is larger than this platform takes."""

    slug = "too-large"
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class UnsupportedMedia(PlatformError):
    """The body's content type or encoding is not one that is understood here."""

    slug = "unsupported-media-type"
    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class PreconditionFailed(PlatformError):
    """The content is not the one that `If-Match` names any more. Ask without it for what is there now."""

    slug = "precondition-failed"
    status = HTTPStatus.PRECONDITION_FAILED


class RangeNotSatisfiable(PlatformError):
    """The range lies outside of the content."""

    slug = "range-not-satisfiable"
    status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE


class Misdirected(PlatformError):
    """This server does not answer for that host name. Use localhost, or name the host in WINDTUNNEL_NAMES."""

    slug = "misdirected"
    status = HTTPStatus.MISDIRECTED_REQUEST


class Invalid(PlatformError):
    """The request is understood, but what it asks for cannot be done; see the detail."""

    slug = "invalid"
    status = HTTPStatus.UNPROCESSABLE_ENTITY


class UnknownRuntime(Invalid):
    """There is no runtime of this name. `GET /v1/runtimes` lists them."""

    slug = "unknown-runtime"


class UnknownDataset(Invalid):
    """There is no dataset of this name and version. `GET /v1/datasets` lists them."""

    slug = "unknown-dataset"


class UnknownModel(Invalid):
    """There is no model of this name, version or digest. `GET /v1/models` lists them."""

    slug = "unknown-model"


class UnknownFormat(Invalid):
    """The binary's format cannot be told from its bytes. Name a runtime, or a format."""

    slug = "unknown-format"


class FormatMismatch(Invalid):
    """The runtime does not take a model of this format."""

    slug = "format-mismatch"


class BadArchive(Invalid):
    """The archive is not one that is taken here: see the detail for the entry and the reason."""

    slug = "bad-archive"


class BadName(BadArchive):
    """A file has a name that cannot be kept here: see the detail for the name and the reason."""

    slug = "bad-name"


class BadScenario(Invalid):
    """The dataset's own description, or one of its scenarios, says what may not be said there; see the line."""

    slug = "bad-scenario"


class NotPlayable(Invalid):
    """This dataset holds files, not scenarios: it has no `dataset.json` at its root, and cannot be simulated."""

    slug = "not-playable"


class NotReady(Conflict):
    """This version is still being registered, or its registration failed. `GET` it to see which."""

    slug = "not-ready"


class ScenarioOutOfRange(Invalid):
    """The selection names scenarios that the dataset does not have."""

    slug = "scenario-out-of-range"


class TooManyTasks(Invalid):
    """Sweep x repeat x scenarios gives more tasks than one simulation may have."""

    slug = "too-many-tasks"


class IdempotencyMismatch(Invalid):
    """This Idempotency-Key was used with another request. Use a new key for a new request."""

    slug = "idempotency-mismatch"


class Unsafe(Invalid):
    """This machine's sandbox is too weak for a model that is code."""

    slug = "unsafe"


class TooManyStreams(PlatformError):
    """All streams are taken. Poll instead, or try again shortly."""

    slug = "too-many-streams"
    status = HTTPStatus.SERVICE_UNAVAILABLE


class TooManyWaits(PlatformError):
    """Too many runners wait for a launch already. Ask again shortly."""

    slug = "too-many-waits"
    status = HTTPStatus.TOO_MANY_REQUESTS


class StoreUnavailable(PlatformError):
    """The store does not answer. Nothing was lost; try again shortly."""

    slug = "store-unavailable"
    status = HTTPStatus.SERVICE_UNAVAILABLE


class OriginFailed(PlatformError):
    """The object storage that holds this does not give it, after several tries; see the detail for bucket and key."""

    slug = "origin-failed"
    status = HTTPStatus.BAD_GATEWAY


class OriginChanged(Conflict):
    """An object was changed since it was registered. Register a new version of the dataset."""

    slug = "origin-changed"


class NodeFull(PlatformError):
    """This node's cache cannot hold this beside what running simulations need."""

    slug = "node-full"
    status = HTTPStatus.INSUFFICIENT_STORAGE


class NoDirectTransfer(Conflict):
    """This platform's object store has no addresses of its own. Send a form, or a resumable upload."""

    slug = "no-direct-transfer"


class UnknownTransfer(Invalid):
    """Nothing was sent to this address yet, or it was used, or lay there for more than a day."""

    slug = "unknown-transfer"


class DigestMismatch(Invalid):
    """The bytes do not have the digest that was sent along. Nothing was made of them."""

    slug = "digest-mismatch"


class Corrupt(PlatformError):
    """A stored object does not have the digest it should have; it was not used."""

    slug = "corrupt-object"


class UnknownUpload(Invalid):
    """There is no upload of this id. `GET /v1/uploads` lists them."""

    slug = "unknown-upload"


class UploadUnfinished(Conflict):
    """The upload still waits for bytes; this can be had only of a finished one."""

    slug = "upload-unfinished"


class OffsetMismatch(Conflict):
    """The upload does not stand at this offset. Ask for its offset, then go on from there."""

    slug = "offset-mismatch"


class FinalUpload(PlatformError):
    """A final upload is made of partial ones; it takes no bytes itself."""

    slug = "final-upload"
    status = HTTPStatus.FORBIDDEN


class TusVersion(PlatformError):
    """Send `Tus-Resumable: 1.0.0`: that is the version of the protocol that is spoken here."""

    slug = "tus-version"
    status = HTTPStatus.PRECONDITION_FAILED


class TooManyUploads(PlatformError):
    """Too many uploads wait for bytes already. Finish or delete some of them first."""

    slug = "too-many-uploads"
    status = HTTPStatus.TOO_MANY_REQUESTS


class ChecksumMismatch(PlatformError):
    """The bytes do not have the checksum that was sent along. None of them was kept; send them again."""

    slug = "checksum-mismatch"
    status = _unregistered(460, "Checksum Mismatch")  # by tus 1.0


class UploadsBusy(PlatformError):
    """Too many uploads bring bytes at this moment. Go on with yours shortly."""

    slug = "uploads-busy"
    status = HTTPStatus.SERVICE_UNAVAILABLE


class StorageFull(StoreUnavailable):
    """The disk, or the object store, is full. What was kept before is there still; make room, then go on."""

    slug = "storage-full"
    status = HTTPStatus.INSUFFICIENT_STORAGE


class NotGranted(PlatformError):
    """The cluster does not let the platform do this; the detail says what to grant."""

    slug = "not-granted"
    status = HTTPStatus.BAD_GATEWAY


class LaunchRefused(PlatformError):
    """The cluster does not take this launch, and would not the next time; the detail has its words."""

    slug = "launch-refused"
    status = HTTPStatus.BAD_GATEWAY


class ClusterFull(PlatformError):
    """The cluster takes no more at the moment. It is offered this launch again."""

    slug = "cluster-full"
    status = HTTPStatus.SERVICE_UNAVAILABLE
