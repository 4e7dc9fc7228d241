"""Artifacts of MLflow models: folders of a tracking server or of a bucket, and the model in such a folder."""

import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from common.errors import Invalid, OriginRefused, TooLarge
from datasets.model_origins import mlflow_model
from datasets.model_origins.base import OpenedModel
from datasets.model_origins.mlflow_client import FoundModel, ListedArtifact, MlflowClient
from datasets.model_origins.model_references import confined

if TYPE_CHECKING:
    from datasets.objectstore.bucket_reader import BucketReader

#: Suffixes of a model that is a file in a flavour's folder, and the file that makes a folder a SavedModel.
SUFFIXES = (".keras", ".h5", ".pth", ".pt")
SAVED_MODEL = "saved_model.pb"
#: Most files of a model's folder, and its deepest level.
MOST_FILES, DEEPEST = 2000, 8
_DATE = (1980, 1, 1, 0, 0, 0)


class Folder(Protocol):
    """A folder of artifacts."""

    def list(self, path: str) -> Sequence[ListedArtifact]:
        """Return the files and folders of a folder in it; none if it does not exist."""

    def read(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file in it."""


class ServedFolder:
    """A folder of `mlflow-artifacts:`, through the tracking server."""

    def __init__(self, client: MlflowClient, root: str) -> None:
        self._client = client
        self._root = confined(root)

    def list(self, path: str) -> Sequence[ListedArtifact]:
        return self._client.list(f"{self._root}/{path}".rstrip("/"))

    def read(self, path: str) -> Iterator[bytes]:
        return self._client.read(f"{self._root}/{path}")


class BucketFolder:
    """A folder of an operator's bucket."""

    def __init__(self, reader: "BucketReader", bucket: str, prefix: str) -> None:
        self._reader = reader
        self._bucket = bucket
        self._prefix = prefix.strip("/")

    def list(self, path: str) -> Sequence[ListedArtifact]:
        prefix = f"{self._prefix}/{path}".strip("/") + "/"
        found: dict[str, ListedArtifact] = {}
        for number, item in enumerate(self._reader.listing(self._bucket, prefix)):
            if number >= MOST_FILES:
                raise OriginRefused(f"The model has more than {MOST_FILES:,} files.")
            name, slash, _ = item.key.removeprefix(prefix).partition("/")
            found.setdefault(name, ListedArtifact(name, bool(slash), None if slash else item.size))
        return list(found.values())

    def read(self, path: str) -> Iterator[bytes]:
        return self._reader.read(self._bucket, f"{self._prefix}/{path}")


def open_model(folder: Folder, found: FoundModel, scratch: Path, largest: int) -> OpenedModel:
    """Open the model of a folder: its file, or a zip of its SavedModel, or of its ONNX graph and the files of weights.

    Raise OriginRefused for other models.
    """
    listed = {item.name: item for item in folder.list("")}
    if found.file:
        file, size = found.file, listed[found.file].size if found.file in listed else None
        return OpenedModel(filename=file, chunks=folder.read(file), size=size, resolved=found.resolved)
    if mlflow_model.MLMODEL not in listed:
        raise OriginRefused(f"There is no MLmodel in {found.uri}: the reference is not the folder of an MLflow model.")
    choice = mlflow_model.choose(_bounded(folder.read(mlflow_model.MLMODEL), mlflow_model.LARGEST))
    resolved = {**found.resolved, "flavour": choice.flavour, "flavour_version": choice.version}
    parent, _, name = choice.path.rpartition("/")
    item = next((item for item in folder.list(parent) if item.name == name), None)
    if item is None:
        raise OriginRefused(f"The MLmodel names {choice.path}, which is not there.")
    if not item.folder:
        resolved["file"] = choice.path
        if beside := mlflow_model.weights_beside(choice, listed):
            paths = sorted([choice.path, *_files(folder, [listed[name] for name in beside])])
            return OpenedModel(
                filename="model.zip", chunks=_zipped(folder, "", paths, scratch, largest), resolved=resolved
            )
        return OpenedModel(filename=name, chunks=folder.read(choice.path), size=item.size, resolved=resolved)
    files = _files(folder, [ListedArtifact(choice.path, True, None)])
    models = [path for path in files if path.endswith(SUFFIXES)]
    if len(models) == 1 and not any(path.endswith(f"/{SAVED_MODEL}") for path in files):
        resolved["file"] = models[0]
        filename = models[0].rpartition("/")[2].replace(".pth", ".pt")
        return OpenedModel(filename=filename, chunks=folder.read(models[0]), size=files[models[0]], resolved=resolved)
    roots = [path.removesuffix(SAVED_MODEL) for path in files if path.endswith(f"/{SAVED_MODEL}")]
    if len(roots) != 1:
        raise OriginRefused(
            f"The folder {choice.path} of the flavour {choice.flavour} has neither one model file"
            f" ({', '.join(SUFFIXES)}) nor one SavedModel. {mlflow_model.INSTEAD}"
        )
    paths = sorted(path for path in files if path.startswith(roots[0]))
    resolved["file"] = roots[0].rstrip("/")
    return OpenedModel(
        filename="model.zip", chunks=_zipped(folder, roots[0], paths, scratch, largest), resolved=resolved
    )


def _files(folder: Folder, items: Iterable[ListedArtifact]) -> dict[str, int | None]:
    """Return the paths of files, and of those in folders, with their sizes. Raises OriginRefused for too many."""
    files: dict[str, int | None] = {}
    for path, size in _walk(folder, "", items):
        files[path] = size
        if len(files) > MOST_FILES:
            raise OriginRefused(f"The model has more than {MOST_FILES:,} files.")
    return files


def _walk(
    folder: Folder, above: str, items: Iterable[ListedArtifact], level: int = 0
) -> Iterator[tuple[str, int | None]]:
    if level > DEEPEST:
        raise OriginRefused(f"The model's folder has more than {DEEPEST} levels.")
    for item in items:
        try:
            path = f"{above}{confined(item.name)}"
        except Invalid as error:
            raise OriginRefused(error.detail) from None
        if item.folder:
            yield from _walk(folder, f"{path}/", folder.list(path), level + 1)
        else:
            yield path, item.size


def _bounded(chunks: Iterator[bytes], most: int) -> bytes:
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > most:
            break
    return bytes(data)


def _zipped(folder: Folder, root: str, paths: Sequence[str], scratch: Path, largest: int) -> Iterator[bytes]:
    """Yield a zip of files below a folder; equal files give equal bytes."""
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=scratch) as file:
        written = 0
        with zipfile.ZipFile(file, "w") as archive:
            for path in paths:
                with archive.open(zipfile.ZipInfo(path.removeprefix(root), _DATE), "w", force_zip64=True) as member:
                    for chunk in folder.read(path):
                        written += len(chunk)
                        if written > largest:
                            raise TooLarge(
                                f"The model's files have more than {largest:,} bytes (WINDTUNNEL_MAX_UPLOAD)."
                            )
                        member.write(chunk)
        yield from _chunks_of(file)


def _chunks_of(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(1 << 20):
        yield chunk
