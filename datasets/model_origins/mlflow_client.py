"""MLflow tracking server over its REST API (mlflow.org, "REST API"): registry, runs, artifacts, metrics."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from urllib3 import BaseHTTPResponse, make_headers
from urllib3.exceptions import HTTPError

from common.errors import OriginFailed, OriginRefused
from datasets.model_origins.config import MlflowServer
from datasets.model_origins.model_references import LoggedModel, RegisteredModel, RunModel
from datasets.objectstore.connection_pools import LIMITS, connection_pools
from datasets.objectstore.connections import permitted
from datasets.objectstore.guarded_pools import ForbiddenAddress, guard

#: Most bytes of an answer in JSON.
LARGEST_ANSWER = 8 << 20
#: Most bytes of a chunk of an artifact.
CHUNK = 1 << 20
#: Logged models of a run that are compared with a name.
MOST_MODELS = 100
_TEMPORARY = frozenset({408, 425, 429})

T = TypeVar("T")


class _Version(msgspec.Struct):
    name: str
    version: str | int
    source: str = ""
    run_id: str = ""
    status: str = "READY"


class _VersionAnswer(msgspec.Struct):
    model_version: _Version


class _DownloadUri(msgspec.Struct):
    artifact_uri: str


class _LoggedInfo(msgspec.Struct):
    model_id: str
    artifact_uri: str
    name: str = ""
    source_run_id: str = ""


class _Logged(msgspec.Struct):
    info: _LoggedInfo


class _LoggedAnswer(msgspec.Struct):
    model: _Logged


class _RunInfo(msgspec.Struct):
    run_id: str
    artifact_uri: str


class _Output(msgspec.Struct):
    model_id: str = ""


class _Outputs(msgspec.Struct):
    model_outputs: list[_Output] = []


class _Run(msgspec.Struct):
    info: _RunInfo
    outputs: _Outputs = msgspec.field(default_factory=_Outputs)


class _RunAnswer(msgspec.Struct):
    run: _Run


class _File(msgspec.Struct):
    path: str
    is_dir: bool = False
    file_size: int | None = None


class _FilesAnswer(msgspec.Struct):
    files: list[_File] = []


class FoundModel(msgspec.Struct, frozen=True):
    """Where a model's artifacts are, and what its reference resolved to, for provenance.

    ``file``: the name of a file in the folder ``uri`` that is the model itself, rather than an MLflow model.
    """

    uri: str
    resolved: Mapping[str, Any]
    file: str = ""


class ListedArtifact(msgspec.Struct, frozen=True):
    """A file or folder among artifacts, by its name in its folder. ``size`` in bytes, None for a folder."""

    name: str
    folder: bool
    size: int | None


class MlflowClient:
    """Client of one tracking server; thread-safe. Redirects are not followed."""

    def __init__(self, server: MlflowServer) -> None:
        self._server = server
        self._base = server.uri.rstrip("/")
        self._pools = guard(connection_pools(LIMITS), permitted)
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "windtunnel"}
        if server.token:
            self._headers["Authorization"] = f"Bearer {server.token}"
        elif server.username:
            self._headers |= make_headers(basic_auth=f"{server.username}:{server.password}")

    @property
    def host(self) -> str:
        """Host and port, as `mlflow-artifacts://` addresses may name them."""
        return urlsplit(self._base).netloc

    def find(self, reference: RegisteredModel | LoggedModel | RunModel) -> FoundModel:
        """Resolve a reference, once; raise OriginRefused if there is no such model."""
        match reference:
            case RegisteredModel():
                return self._registered(reference)
            case LoggedModel():
                return self._logged(self._logged_model(reference.id))
        return self._of_run(reference)

    def _registered(self, reference: RegisteredModel) -> FoundModel:
        if reference.alias:
            query = {"name": reference.name, "alias": reference.alias}
            found = self._get("mlflow/registered-models/alias", query, _VersionAnswer).model_version
        else:
            query = {"name": reference.name, "version": reference.version}
            found = self._get("mlflow/model-versions/get", query, _VersionAnswer).model_version
        version = str(found.version)
        if found.status != "READY":
            raise OriginRefused(f"Version {version} of the model {reference.name} is {found.status}, not READY.")
        query = {"name": reference.name, "version": version}
        uri = self._get("mlflow/model-versions/get-download-uri", query, _DownloadUri).artifact_uri
        resolved = {"registered_model": reference.name, "version": version, "run_id": found.run_id or None}
        if found.source.startswith("models:/m-"):
            resolved["model_id"] = found.source.removeprefix("models:/")
        return FoundModel(uri, {"uri": uri, "source": found.source, **resolved})

    def _logged_model(self, id: str) -> _LoggedInfo:
        return self._get(f"mlflow/logged-models/{quote(id, safe='')}", {}, _LoggedAnswer).model.info

    def _logged(self, info: _LoggedInfo) -> FoundModel:
        resolved = {"uri": info.artifact_uri, "model_id": info.model_id, "run_id": info.source_run_id or None}
        return FoundModel(info.artifact_uri, resolved)

    def _of_run(self, reference: RunModel) -> FoundModel:
        run = self.run(reference.run)
        root, folder = run.info.artifact_uri.rstrip("/"), reference.path.rpartition("/")[0]
        beside = self._list("mlflow/artifacts/list", {"run_id": reference.run, **({"path": folder} if folder else {})})
        item = next((item for item in beside if item.name == reference.name), None)
        if item is not None:
            resolved = {"uri": f"{root}/{reference.path}", "run_id": run.info.run_id}
            if item.folder:
                return FoundModel(resolved["uri"], resolved)
            return FoundModel(f"{root}/{folder}".rstrip("/"), resolved, reference.name)
        for output in run.outputs.model_outputs[:MOST_MODELS]:  # MLflow 3 keeps models beside the run's artifacts
            info = self._logged_model(output.model_id)
            if info.name == reference.path:
                found = self._logged(info)
                return FoundModel(found.uri, {**found.resolved, "run_id": run.info.run_id})
        raise OriginRefused(f"The run {reference.run} has neither a model nor an artifact {reference.path!r}.")

    def run(self, id: str) -> _Run:
        """Return a run; raise OriginRefused if it does not exist."""
        return self._get("mlflow/runs/get", {"run_id": id}, _RunAnswer).run

    # -- artifacts that the server serves

    def list(self, path: str) -> Sequence[ListedArtifact]:
        """Return the files and folders of a folder of `mlflow-artifacts:`."""
        return self._list("mlflow-artifacts/artifacts", {"path": path})

    def _list(self, route: str, query: Mapping[str, str]) -> Sequence[ListedArtifact]:
        files = self._get(route, query, _FilesAnswer).files
        return [ListedArtifact(file.path.rstrip("/").rpartition("/")[2], file.is_dir, file.file_size) for file in files]

    def read(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file of `mlflow-artifacts:`."""
        route = f"mlflow-artifacts/artifacts/{quote(path)}"
        response = self._request("GET", route)
        try:
            with self._translated():
                while chunk := response.read1(CHUNK, decode_content=False):
                    yield chunk
        finally:
            response.close()

    # -- results

    def log_batch(self, run: str, metrics: Mapping[str, float], tags: Mapping[str, str], at: float) -> None:
        """Log metrics and tags to a run; repeating it with equal arguments changes nothing. ``at``: time in seconds."""
        moment = int(at * 1000)
        values = [{"key": key, "value": value, "timestamp": moment, "step": 0} for key, value in metrics.items()]
        named = [{"key": key, "value": value} for key, value in tags.items()]
        body = json.dumps({"run_id": run, "metrics": values, "tags": named}).encode()
        self._answer("POST", "mlflow/runs/log-batch", body=body)

    # -- requests

    def _get(self, route: str, query: Mapping[str, str], kind: type[T]) -> T:
        answer = self._answer("GET", f"{route}?{urlencode(query)}" if query else route)
        try:
            return msgspec.json.decode(answer, type=kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise OriginFailed(
                f"The MLflow server {self._server.name} answers {route} with a document that the route does not have."
            ) from None

    def _answer(self, method: str, route: str, body: bytes | None = None) -> bytes:
        response = self._request(method, route, body)
        try:
            with self._translated():
                answer = response.read(LARGEST_ANSWER + 1, decode_content=False)
        finally:
            response.close()
        if len(answer) > LARGEST_ANSWER:
            raise OriginRefused(f"An answer of the MLflow server {self._server.name} has more than 8 MiB.")
        return bytes(answer)

    def _request(self, method: str, route: str, body: bytes | None = None) -> BaseHTTPResponse:
        """Send a request; return the answer if it is a success, with its body unread."""
        url = f"{self._base}/api/2.0/{route}"
        headers = self._headers | ({"Content-Type": "application/json"} if body is not None else {})
        with self._translated():
            response = self._pools.request(
                method, url, body=body, headers=headers, preload_content=False, redirect=False
            )
            if response.status == 200:
                return response
            try:
                reason = response.read(4096, decode_content=False)
            finally:
                response.close()
        self._refuse(response.status, reason)
        raise AssertionError("unreachable")

    def _refuse(self, status: int, reason: bytes) -> None:
        name = f"The MLflow server {self._server.name}"
        if status >= 500 or status in _TEMPORARY:
            raise OriginFailed(f"{name} answers with the status {status}.")
        if status in {401, 403}:
            raise OriginRefused(f"{name} refuses the operator's credentials (status {status}).")
        try:
            message = str(json.loads(reason)["message"])[:300]
        except (ValueError, KeyError, TypeError, RecursionError):
            message = f"status {status}"
        raise OriginRefused(f"{name}: {message}")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except ForbiddenAddress:
            raise OriginRefused(f"The MLflow server {self._server.name} resolves to a forbidden address.") from None
        except HTTPError as error:
            name = type(error).__name__
            raise OriginFailed(f"The MLflow server {self._server.name} does not answer: {name}.") from None
