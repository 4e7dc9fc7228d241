"""Exceptions of the platform, without protocol: the docstring of a class is the default `detail` of its errors.

`slug` names an error across processes and in stored failures; it is also its problem type (RFC 9457). The HTTP status
and headers of each class are in `api/problems.py`.
"""

from typing import Any


class PlatformError(Exception):
    """The platform failed to serve the request; the error is logged. Report it with its time if it recurs."""

    slug: str = "internal"

    def __init__(self, detail: str | None = None, **members: Any) -> None:
        super().__init__(detail or type(self).__doc__)
        self.detail = detail or type(self).__doc__
        self.members = members


class BadRequest(PlatformError):
    """The request cannot be parsed; the detail names the position. Correct it and send it again."""

    slug = "bad-request"


class TruncatedUpload(BadRequest):
    """The body ended before its announced length. Nothing was stored; send it again."""

    slug = "truncated-upload"


class StalledBody(TruncatedUpload):
    """The body stopped arriving, or arrived too slowly. Nothing was stored; send it again, without pauses."""

    slug = "stalled-body"


class Unauthorized(PlatformError):
    """A valid bearer token is required. Send `Authorization: Bearer <token>`."""

    slug = "unauthorized"


class Forbidden(PlatformError):
    """Requests from web pages of another origin are refused. Use a client, or a page that this server serves."""

    slug = "forbidden-origin"


class NotFound(PlatformError):
    """There is no resource at this address. `/docs` lists every address."""

    slug = "not-found"


class UnknownSimulation(NotFound):
    """There is no simulation with this id. `GET /v1/simulations` lists them."""

    slug = "unknown-simulation"


class UnknownComparison(NotFound):
    """There is no comparison with this id. `GET /v1/comparisons` lists them."""

    slug = "unknown-comparison"


class UnknownArtifact(NotFound):
    """This simulation has no artifact of that task and name. `GET .../artifacts` lists them."""

    slug = "unknown-artifact"


class NoReplay(NotFound):
    """The simulator failed when it ran this task again, so there is no replay. `GET .../results` has its result."""

    slug = "no-replay"


class UnknownFile(NotFound):
    """This version of the dataset has no file with that path. `GET .../files` lists them."""

    slug = "unknown-file"


class NotAcceptable(PlatformError):
    """None of the media types in `Accept` is available here; the detail lists those that are."""

    slug = "not-acceptable"


class Conflict(PlatformError):
    """The resource was changed by another request in the meantime. Read it again, then decide."""

    slug = "conflict"


class Unsupported(Conflict):
    """The executor of this simulation does not support this change while it runs. Cancel it and submit it again."""

    slug = "unsupported"


class IllegalTransition(Conflict):
    """The state of the simulation does not allow this. `GET` it to see its state."""

    slug = "illegal-transition"


class NotFinished(Conflict):
    """The simulation has not ended yet, and this is available only afterwards. Wait for its end, or cancel it."""

    slug = "not-finished"


class InUse(Conflict):
    """A simulation that has not ended, or a comparison, still needs this. Cancel or delete it first."""

    slug = "in-use"


class ShippedModel(Conflict):
    """This model ships with the platform: it can be neither replaced nor deleted. Use another name for your model."""

    slug = "shipped-model"


class StillRunning(Conflict):
    """The first request with this Idempotency-Key is still being served. Try again shortly."""

    slug = "idempotency-in-progress"


class Gone(PlatformError):
    """This resource has been deleted, or has expired."""

    slug = "gone"


class TooLarge(PlatformError):
    """The body, model or upload is larger than this server accepts. Its operator sets the limits."""

    slug = "too-large"


class UnsupportedMedia(PlatformError):
    """The body's content type or encoding is not supported here; the detail says what to send."""

    slug = "unsupported-media-type"


class PreconditionFailed(PlatformError):
    """The content does not have the entity tag in `If-Match` any more. Request it without `If-Match`."""

    slug = "precondition-failed"


class RangeNotSatisfiable(PlatformError):
    """The requested range lies outside the content; `Content-Range` has its size."""

    slug = "range-not-satisfiable"


class Misdirected(PlatformError):
    """This server does not answer for that host name. Use localhost, or name the host in WINDTUNNEL_NAMES."""

    slug = "misdirected"


class Invalid(PlatformError):
    """The request can be parsed, but its content is not valid; `detail` and `errors` name the fields."""

    slug = "invalid"


class NotAllowed(Invalid):
    """The submission names an option of the cluster that is not in its executor's `allowed`. Leave that option out."""

    slug = "not-allowed"


class UnknownRuntime(Invalid):
    """There is no runtime with this name. `GET /v1/runtimes` lists them."""

    slug = "unknown-runtime"


class UnknownDataset(Invalid):
    """There is no dataset with this name, version or tag. `GET /v1/datasets` lists them."""

    slug = "unknown-dataset"


class NoLock(NotFound):
    """The model has no lock: it declares no dependencies, or its first simulation has not resolved them yet."""

    slug = "no-lock"


class UnknownModel(Invalid):
    """There is no model with this name, version, tag or digest. `GET /v1/models` lists them."""

    slug = "unknown-model"


class UnknownFormat(Invalid):
    """The model's format cannot be determined from its bytes. Name a `runtime` or a `format`."""

    slug = "unknown-format"


class FormatMismatch(Invalid):
    """The runtime does not support models of this format. Leave `runtime` out to have one chosen."""

    slug = "format-mismatch"


class BadArchive(Invalid):
    """The archive is refused; the detail names the entry and the reason."""

    slug = "bad-archive"


class BadName(BadArchive):
    """A file's name cannot be stored; the detail has the name and the reason. Rename the file."""

    slug = "bad-name"


class BadRequirements(Invalid):
    """A model declares dependencies in a way that is not accepted; the detail names file, line and the next step."""

    slug = "bad-requirements"


class BadScenario(Invalid):
    """A `dataset.json` or scenario is not valid; the detail names the line and the field. Correct it."""

    slug = "bad-scenario"


class NotPlayable(Invalid):
    """This dataset cannot be simulated: it has files only, without a `dataset.json` at its root."""

    slug = "not-playable"


class NotReady(Conflict):
    """This version is still being registered, or its registration failed. `GET` it to see which."""

    slug = "not-ready"


class ScenarioOutOfRange(Invalid):
    """The selection names scenarios that the dataset does not have. `GET` the dataset to see how many it has."""

    slug = "scenario-out-of-range"


class TooManyTasks(Invalid):
    """Sweep x repeat x scenarios gives more tasks than a simulation may have. Submit several simulations."""

    slug = "too-many-tasks"


class IdempotencyMismatch(Invalid):
    """This Idempotency-Key was used with another request. Use a new key for a new request."""

    slug = "idempotency-mismatch"


class Unsafe(Invalid):
    """The model contains code, and this machine's sandbox is too weak to run it; `/readyz` lists the missing layers."""

    slug = "unsafe"


class TooManyStreams(PlatformError):
    """This server has no free stream. Poll instead, or try again shortly."""

    slug = "too-many-streams"


class TooManyDryRuns(PlatformError):
    """Too many dry runs are unfinished. Try again after `Retry-After` seconds, or submit a simulation: it is queued."""

    slug = "too-many-dry-runs"


class TooManyBodies(PlatformError):
    """Too many request bodies are unfinished at the moment. Send the request again after `Retry-After` seconds."""

    slug = "too-many-bodies"


class TooManyGuesses(PlatformError):
    """Too many requests with a wrong token have come from your address. Try again after `Retry-After` seconds."""

    slug = "too-many-guesses"


class TooManyWaits(PlatformError):
    """Too many runners are waiting for a launch. Try again shortly."""

    slug = "too-many-waits"


class StoreUnavailable(PlatformError):
    """The database or the object store does not answer. Nothing was lost; try again shortly."""

    slug = "store-unavailable"


class UnknownImport(NotFound):
    """There is no import of a model with this id. `POST /v1/imports` begins one."""

    slug = "unknown-import"


class UnknownExecutor(NotFound):
    """There is no executor with this name. `GET /v1/executors` lists them."""

    slug = "unknown-executor"


class OriginFailed(PlatformError):
    """Reading an object from its bucket failed after several attempts; the detail names bucket and key."""

    slug = "origin-failed"


class OriginRefused(OriginFailed):
    """The bucket refuses to be read, or the object is not there any more; the detail names bucket and key."""

    slug = "origin-refused"


class OriginChanged(Conflict):
    """An object was changed since it was registered. Register a new version of the dataset."""

    slug = "origin-changed"


class NodeFull(PlatformError):
    """This node's cache is too full for the dataset. Raise WINDTUNNEL_CACHE_CAPACITY, or wait for simulations."""

    slug = "node-full"


class LargerThanCache(NodeFull):
    """The dataset or model can never fit into this node's cache. Raise WINDTUNNEL_CACHE_CAPACITY."""

    slug = "larger-than-cache"


class NotPrepared(PlatformError):
    """The environments or the scenarios of a simulation are not on this machine; it is staged again."""

    slug = "not-prepared"


class NoDirectTransfer(Conflict):
    """This platform's object store has no presigned URLs. Send a form, or a resumable upload."""

    slug = "no-direct-transfer"


class UnknownTransfer(Invalid):
    """There are no bytes under this key: the PUT did not finish, the key was used, or it is older than a day."""

    slug = "unknown-transfer"


class DigestMismatch(Invalid):
    """The bytes do not have the digest in the request. Nothing was created; send them again."""

    slug = "digest-mismatch"


class Corrupt(PlatformError):
    """A stored object does not match its digest and was not used. Restore the object store, or send the model again."""

    slug = "corrupt-object"


class UnknownUpload(Invalid):
    """There is no upload with this id. `GET /v1/uploads` lists them."""

    slug = "unknown-upload"


class UploadUnfinished(Conflict):
    """The upload is not finished, and only a finished upload can be used. Send the remaining bytes first."""

    slug = "upload-unfinished"


class OffsetMismatch(Conflict):
    """The upload has another offset. Ask for its offset with `HEAD`, then continue from there."""

    slug = "offset-mismatch"


class FinalUpload(PlatformError):
    """A final upload consists of partial uploads and accepts no bytes. Append to the partial uploads."""

    slug = "final-upload"


class TusVersion(PlatformError):
    """Send `Tus-Resumable: 1.0.0`: this server supports that version of the protocol only."""

    slug = "tus-version"


class TooManyUploads(PlatformError):
    """Too many uploads are unfinished. Finish or delete some of them, or wait until they expire."""

    slug = "too-many-uploads"


class ChecksumMismatch(PlatformError):
    """The bytes do not match `Upload-Checksum`. None of them was stored; send them again."""

    slug = "checksum-mismatch"


class UploadsBusy(PlatformError):
    """Too many uploads are receiving bytes at this moment. Continue this upload shortly."""

    slug = "uploads-busy"


class StorageFull(StoreUnavailable):
    """The disk, or the object store, is full. Stored data is intact; free some space, then try again."""

    slug = "storage-full"


class NotGranted(PlatformError):
    """The platform's account in the cluster lacks a permission; the detail says what to grant."""

    slug = "not-granted"


class LaunchRefused(PlatformError):
    """The cluster rejects this launch permanently; the detail has the cluster's message."""

    slug = "launch-refused"


class ClusterFull(PlatformError):
    """The cluster has no capacity at the moment. The launch is retried."""

    slug = "cluster-full"
