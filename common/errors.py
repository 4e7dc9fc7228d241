"""Exceptions of the platform, without protocol: the docstring of a class is the default `detail` of its errors.

`slug` names an error across processes and in stored failures; it is also its problem type (RFC 9457). It follows from
the name of the class, unless the class names another. The HTTP status and headers of each class are in
`api/problems.py`.
"""

import re
from typing import Any


class PlatformError(Exception):
    """The platform failed to serve the request; the error is logged. Report it with its time if it recurs."""

    slug: str = "internal"

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__ and "slug" not in vars(cls):  # elsewhere, a class has that of its base class
            cls.slug = re.sub(r"\B(?=[A-Z])", "-", cls.__name__).lower()

    def __init__(self, detail: str | None = None, **members: Any) -> None:
        super().__init__(detail or type(self).__doc__)
        self.detail = detail or type(self).__doc__
        self.members = members


class BadRequest(PlatformError):
    """The request cannot be parsed; the detail names the position. Correct it and send it again."""


class TruncatedUpload(BadRequest):
    """The body ended before its announced length. Nothing was stored; send it again."""


class StalledBody(TruncatedUpload):
    """The body stopped arriving, or arrived too slowly. Nothing was stored; send it again, without pauses."""


class Unauthorized(PlatformError):
    """A valid bearer token is required. Send `Authorization: Bearer <token>`."""


class Forbidden(PlatformError):
    """Requests from web pages of another origin are refused. Use a client, or a page that this server serves."""

    slug = "forbidden-origin"


class NotPermitted(PlatformError):
    """You may not do this here. A maintainer of the project gives roles; `GET /v1/session` lists yours."""


class ProjectRequired(BadRequest):
    """You are in several projects, or in none. Name one: `Windtunnel-Project: <project>`, or `?project=`."""


class ProjectClosed(PlatformError):
    """The project is closed: nothing new begins in it. Its content can be read until it is deleted."""


class ProjectOpen(PlatformError):
    """The project is open. Close it before you delete it: `POST /v1/projects/{project}/close`."""


class QuotaExceeded(PlatformError):
    """A quota of your project has no room for this. `GET /v1/projects/{project}/quotas` shows limits and use."""


class NameTaken(PlatformError):
    """This name is taken, or was once, and names are not used again. Choose another one."""


class SignInRefused(PlatformError):
    """The sign-in was not accepted; the detail says why. Begin it again."""


class ProviderUnavailable(PlatformError):
    """The identity provider does not answer. Try again shortly; a token or a passkey works meanwhile."""


class AccountsOff(PlatformError):
    """This platform has no accounts. Its operator starts it with them: `WINDTUNNEL_MULTI_USER=yes`."""


class NotFound(PlatformError):
    """There is no resource at this address. `/docs` lists every address."""


class UnknownSimulation(NotFound):
    """There is no simulation with this id. `GET /v1/simulations` lists them."""


class UnknownProject(NotFound):
    """There is no project of this name that you may see. `GET /v1/session` lists yours."""


class UnknownUser(NotFound):
    """There is no user of this name. `GET /v1/users` lists them."""


class UnknownToken(NotFound):
    """There is no token with this id. `GET /v1/projects/{project}/tokens` lists those of a project."""


class UnknownProvider(NotFound):
    """There is no identity provider of this name. `GET /v1/sign-in` lists them."""


class UnknownPasskey(NotFound):
    """There is no passkey with this id. `GET /v1/users/{user}/sign-in-methods` lists those of a user."""


class UnknownDevice(NotFound):
    """Nothing waits for this code: it was mistyped, answered, or is too old. Begin again on the device."""


class UnknownComparison(NotFound):
    """There is no comparison with this id. `GET /v1/comparisons` lists them."""


class UnknownWebhook(NotFound):
    """There is no webhook with this id. `GET /v1/webhooks` lists them."""


class UnknownDelivery(NotFound):
    """The webhook has no delivery with this id, or it was deleted. `GET .../deliveries` lists them."""


class UnknownPipeline(NotFound):
    """There is no pipeline with this id. `GET /v1/pipelines` lists them."""


class UnknownArtifact(NotFound):
    """This simulation has no artifact of that task and name. `GET .../artifacts` lists them."""


class NoReplay(NotFound):
    """The simulator failed when it ran this task again, so there is no replay. `GET .../results` has its result."""


class UnknownFile(NotFound):
    """This version of the dataset has no file with that path. `GET .../files` lists them."""


class UnknownTask(NotFound):
    """The simulation has no task of this number. `tasks.total` of it says how many there are, numbered from 0."""


class UnknownTaskFile(NotFound):
    """The task shows no file or folder of this name at present. `GET .../files` lists them."""


class LooksNotAllowed(PlatformError):
    """This platform lets nobody look into tasks while they run. Its operator allows it: WINDTUNNEL_LOOK_INSIDE=yes."""


class RunnerSilent(PlatformError):
    """The runner of the task has not answered in time. Try again shortly."""


class NotAcceptable(PlatformError):
    """None of the media types in `Accept` is available here; the detail lists those that are."""


class Conflict(PlatformError):
    """The resource was changed by another request in the meantime. Read it again, then decide."""


class Unsupported(Conflict):
    """The executor of this simulation does not support this change while it runs. Cancel it and submit it again."""


class IllegalTransition(Conflict):
    """The state of the simulation does not allow this. `GET` it to see its state."""


class TaskNotAtWork(Conflict):
    """The task does not run at present, and it can be looked into only while it does. `GET .../results` has results."""


class PortNotReached(Conflict):
    """The program does not listen at this port of its sandbox, or it cannot be reached there."""


class NotFinished(Conflict):
    """The simulation has not ended yet, and this is available only afterwards. Wait for its end, or cancel it."""


class InUse(Conflict):
    """A simulation that has not ended, or a comparison, still needs this. Cancel or delete it first."""


class ShippedModel(Conflict):
    """This model ships with the platform: it can be neither replaced nor deleted. Use another name for your model."""


class StillRunning(Conflict):
    """The first request with this Idempotency-Key is still being served. Try again shortly."""

    slug = "idempotency-in-progress"


class Gone(PlatformError):
    """This resource has been deleted, or has expired."""


class TooLarge(PlatformError):
    """The body, model or upload is larger than this server accepts. Its operator sets the limits."""


class UnsupportedMedia(PlatformError):
    """The body's content type or encoding is not supported here; the detail says what to send."""

    slug = "unsupported-media-type"


class PreconditionFailed(PlatformError):
    """The content does not have the entity tag in `If-Match` any more. Request it without `If-Match`."""


class RangeNotSatisfiable(PlatformError):
    """The requested range lies outside the content; `Content-Range` has its size."""


class Misdirected(PlatformError):
    """This server does not answer for that host name. Use localhost, or name the host in WINDTUNNEL_NAMES."""


class Invalid(PlatformError):
    """The request can be parsed, but its content is not valid; `detail` and `errors` name the fields."""


class NotAllowed(Invalid):
    """The submission names an option of the cluster that is not in its executor's `allowed`. Leave that option out."""


class TrustedNotAllowed(Invalid):
    """This platform runs no model in the evaluator's process. Leave `trusted` out, or set WINDTUNNEL_TRUSTED=yes."""


class UnknownRuntime(Invalid):
    """There is no runtime with this name. `GET /v1/runtimes` lists them."""


class UnknownDataset(Invalid):
    """There is no dataset with this name, version or tag. `GET /v1/datasets` lists them."""


class NoLock(NotFound):
    """The model has no lock: it declares no dependencies, or its first simulation has not resolved them yet."""


class UnknownModel(Invalid):
    """There is no model with this name, version, tag or digest. `GET /v1/models` lists them."""


class UnknownFormat(Invalid):
    """The model's format cannot be determined from its bytes. Name a `runtime` or a `format`."""


class FormatMismatch(Invalid):
    """The runtime does not support models of this format. Leave `runtime` out to have one chosen."""


class BadArchive(Invalid):
    """The archive is refused; the detail names the entry and the reason."""


class BadName(BadArchive):
    """A file's name cannot be stored; the detail has the name and the reason. Rename the file."""


class BadRequirements(Invalid):
    """A model declares dependencies in a way that is not accepted; the detail names file, line and the next step."""


class BadScenario(Invalid):
    """A `dataset.json` or scenario is not valid; the detail names the line and the field. Correct it."""


class NotPlayable(Invalid):
    """This dataset cannot be simulated: it has files only, without a `dataset.json` at its root."""


class NotReady(Conflict):
    """This version is still being registered, or its registration failed. `GET` it to see which."""


class ScenarioOutOfRange(Invalid):
    """The selection names scenarios that the dataset does not have. `GET` the dataset to see how many it has."""


class TooManyTasks(Invalid):
    """Sweep x repeat x scenarios gives more tasks than a simulation may have. Submit several simulations."""


class IdempotencyMismatch(Invalid):
    """This Idempotency-Key was used with another request. Use a new key for a new request."""


class Unsafe(Invalid):
    """The model contains code, and this machine's sandbox is too weak to run it; `/readyz` lists the missing layers."""


class TooManyStreams(PlatformError):
    """This server has no free stream. Poll instead, or try again shortly."""


class TooManyDryRuns(PlatformError):
    """Too many dry runs are unfinished. Try again after `Retry-After` seconds, or submit a simulation: it is queued."""


class TooManyBodies(PlatformError):
    """Too many request bodies are unfinished at the moment. Send the request again after `Retry-After` seconds."""


class TooManyGuesses(PlatformError):
    """Too many requests with a wrong token have come from your address. Try again after `Retry-After` seconds."""


class TooManyPasswords(PlatformError):
    """Too many wrong passwords of this user were tried. Try again after `Retry-After` seconds, or in another way."""


class TooManyRequests(PlatformError):
    """A project, or a user, asks for more than its share of this server. Try again after `Retry-After` seconds."""


class TooManyWaits(PlatformError):
    """Too many runners are waiting for a launch. Try again shortly."""


class StoreUnavailable(PlatformError):
    """The database or the object store does not answer. Nothing was lost; try again shortly."""


class UnknownImport(NotFound):
    """There is no import of a model with this id. `POST /v1/imports` begins one."""


class UnknownExecutor(NotFound):
    """There is no executor with this name. `GET /v1/executors` lists them."""


class OriginFailed(PlatformError):
    """Reading an object from its bucket failed after several attempts; the detail names bucket and key."""


class OriginRefused(OriginFailed):
    """The bucket refuses to be read, or the object is not there any more; the detail names bucket and key."""


class OriginChanged(Conflict):
    """An object was changed since it was registered. Register a new version of the dataset."""


class NodeFull(PlatformError):
    """This node's cache is too full for the dataset. Raise WINDTUNNEL_CACHE_CAPACITY, or wait for simulations."""


class LargerThanCache(NodeFull):
    """The dataset or model can never fit into this node's cache. Raise WINDTUNNEL_CACHE_CAPACITY."""


class NotPrepared(PlatformError):
    """The environments or the scenarios of a simulation are not on this machine; it is staged again."""


class NoDirectTransfer(Conflict):
    """This platform's object store has no presigned URLs. Send a form, or a resumable upload."""


class UnknownTransfer(Invalid):
    """There are no bytes under this key: the PUT did not finish, the key was used, or it is older than a day."""


class DigestMismatch(Invalid):
    """The bytes do not have the digest in the request. Nothing was created; send them again."""


class Corrupt(PlatformError):
    """A stored object does not match its digest and was not used. Restore the object store, or send the model again."""

    slug = "corrupt-object"


class UnreadableRow(Corrupt):
    """A row of the database cannot be read. Delete what it belongs to, or restore the database from a backup."""


class UnknownUpload(Invalid):
    """There is no upload with this id. `GET /v1/uploads` lists them."""


class UploadUnfinished(Conflict):
    """The upload is not finished, and only a finished upload can be used. Send the remaining bytes first."""


class OffsetMismatch(Conflict):
    """The upload has another offset. Ask for its offset with `HEAD`, then continue from there."""


class FinalUpload(PlatformError):
    """A final upload consists of partial uploads and accepts no bytes. Append to the partial uploads."""


class TusVersion(PlatformError):
    """Send `Tus-Resumable: 1.0.0`: this server supports that version of the protocol only."""


class TooManyUploads(PlatformError):
    """Too many uploads are unfinished. Finish or delete some of them, or wait until they expire."""


class ChecksumMismatch(PlatformError):
    """The bytes do not match `Upload-Checksum`. None of them was stored; send them again."""


class UploadsBusy(PlatformError):
    """Too many uploads are receiving bytes at this moment. Continue this upload shortly."""


class StorageFull(StoreUnavailable):
    """The disk, or the object store, is full. Stored data is intact; free some space, then try again."""


class NotGranted(PlatformError):
    """The platform's account in the cluster lacks a permission; the detail says what to grant."""


class LaunchRefused(PlatformError):
    """The cluster rejects this launch permanently; the detail has the cluster's message."""


class ClusterFull(PlatformError):
    """The cluster has no capacity at the moment. The launch is retried."""
