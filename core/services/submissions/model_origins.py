"""Model origins: what a model reference may name here, by the operator's connections, and how it is read."""

from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from common.errors import Invalid, OriginRefused
from core.domain.submissions.records import Model
from core.domain.submissions.submission import Submission
from core.services.datasets.dataset_sources import split
from core.services.datasets.file_sources import Sources
from datasets.model_origins import artifacts, model_references
from datasets.model_origins.artifacts import BucketFolder, Folder, ServedFolder
from datasets.model_origins.base import OpenedModel
from datasets.model_origins.config import MlflowServer, OriginConfig
from datasets.model_origins.mlflow_client import MlflowClient
from datasets.model_origins.model_references import (
    Address,
    BucketObject,
    LoggedModel,
    Reference,
    RegisteredModel,
    RunModel,
)
from datasets.model_origins.web import WebReader


class ModelOrigins:
    """Reads models by reference. ``largest``: most bytes of a model."""

    def __init__(self, sources: Sources, config: OriginConfig, scratch: Path, *, largest: int) -> None:
        self._sources = sources
        self._config = config
        self._web = WebReader(config.addresses)
        self._scratch = scratch
        self._largest = largest
        self._clients: dict[str, MlflowClient] = {}

    def check(self, project: str, text: str, connection: str | None) -> tuple[Reference, str]:
        """Return a reference, and the connection by which a project reads it; raise Invalid if it may not be read.

        Asks no origin: whether the model exists is found out by the import.
        """
        reference = model_references.parse(text)
        match reference:
            case BucketObject():
                return reference, self._sources.connection(connection, reference.bucket, project).name
            case Address():
                if connection is not None:
                    raise Invalid("An address has no `connection`: the operator allows it by its origin.")
                self._web.check(reference.url, project)
                return reference, ""
        return reference, self.server(project, connection).name

    def open(self, project: str, text: str, connection: str) -> OpenedModel:
        """Open a model at its origin for a project, as it is now.

        Raise OriginRefused if it is not there or may not be read, OriginFailed while its origin does not answer.
        """
        reference, connection = self.check(project, text, connection or None)
        match reference:
            case BucketObject():
                return self._object(project, reference, connection)
            case Address():
                return self._web.open(reference.url, project)
        return self._logged(project, reference, self.mlflow(project, connection))

    def server(self, project: str, name: str | None) -> MlflowServer:
        """Return an MLflow server as the operator configured it for a project, the only one if none is named.

        Raise Invalid if the project may use none with this name.
        """
        return self._config.of_project(project).server(name)

    def mlflow(self, project: str, name: str) -> MlflowClient:
        """Return the client of an MLflow server, which keeps its HTTP connections open; raise Invalid."""
        server = self.server(project, name)
        if (client := self._clients.get(name)) is None:
            client = self._clients[name] = MlflowClient(server)
        return client

    def run_server(self, project: str, submission: Submission, model: Model | None) -> str | None:
        """Return the name of the MLflow server that a submission's results go to; None if it does not ask for that.

        Raise Invalid if the model cannot have a run, or the operator does not allow it.
        """
        if not submission.log_to_run or submission.dry_run:
            return None
        name = None
        if submission.model_reference is not None:
            reference, connection = self.check(project, submission.model_reference, submission.connection)
            if isinstance(reference, RegisteredModel | LoggedModel | RunModel):
                name = connection
        elif model is not None and model.source is not None and model.source.get("run_id"):
            name = str(model.source["connection"])
        if name is None:
            raise Invalid(
                "`log_to_run` is for models of MLflow: name it by `models:/name/version` or `runs:/run/path`."
            )
        if not self.server(project, name).log_results:
            raise Invalid(
                f"The operator does not allow results to be logged to the MLflow server {name}: `log_results` in"
                " connections.json (docs/model-references.md)."
            )
        return name

    def _object(self, project: str, reference: BucketObject, connection: str) -> OpenedModel:
        bucket, key = reference.bucket, reference.key
        reader = self._sources.reader(self._sources.connection(connection, bucket, project))
        found = reader.find(bucket, key)
        resolved = {"uri": f"s3://{bucket}/{key}", "etag": found.etag, "size": found.size}
        chunks = reader.read(bucket, key, found.etag)  # the bytes of this version, also if the download is resumed
        return OpenedModel(filename=reference.name, chunks=chunks, size=found.size, resolved=resolved)

    def _logged(
        self, project: str, reference: RegisteredModel | LoggedModel | RunModel, client: MlflowClient
    ) -> OpenedModel:
        found = client.find(reference)
        opened = artifacts.open_model(self._folder(project, found.uri, client), found, self._scratch, self._largest)
        if found.file:
            return opened
        suffix = opened.filename.rpartition(".")[2]
        return replace(opened, filename=f"{reference.name}.{suffix}")  # rather than `model` for every model

    def _folder(self, project: str, uri: str, client: MlflowClient) -> Folder:
        """Return the folder of artifacts at an address that an MLflow server names, which may be any text."""
        parts = urlsplit(uri)
        try:
            if parts.scheme == "mlflow-artifacts" and parts.netloc in {"", client.host}:
                return ServedFolder(client, parts.path)
            if parts.scheme == "s3":
                bucket, prefix = split(uri)
                return BucketFolder(
                    self._sources.reader(self._sources.connection(None, bucket, project)), bucket, prefix
                )
        except Invalid as error:
            raise OriginRefused(f"The artifacts at {uri[:200]} cannot be read: {error.detail}") from None
        raise OriginRefused(
            f"The artifacts are at {uri[:200]}. Artifacts are read that the tracking server serves"
            " (`mlflow server --serve-artifacts`), or that are in a bucket of a connection."
        )
