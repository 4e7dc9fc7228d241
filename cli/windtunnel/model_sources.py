"""Model of a submission as the user names it: a file, a folder, a stored model, or a reference to where it is."""

import hashlib
import os
import re
import stat
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from windtunnel.errors import WindtunnelError
from windtunnel.folder_files import folder_files

#: References that the platform itself reads: `s3://bucket/key`, `models:/name/1` of MLflow, an address.
_REFERENCE = re.compile(r"(s3|gs|https?|models|runs|mlflow)(\+\w+)?:/", re.IGNORECASE)
_PROJECT = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
#: The time of every entry of an archive, so that equal folders have equal digests: the earliest that zip can hold.
EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model that the platform has: a name, ``name@version``, ``name@tag``, an id or a digest.

    The model of another project has its name before its own: ``team-a/brake``.
    """

    name: str


@dataclass(frozen=True, slots=True)
class ReferencedModel:
    """A model that the platform reads where it is."""

    reference: str


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model file, or a folder that is sent as a zip archive."""

    path: Path


Source = StoredModel | ReferencedModel | LocalModel


def source_of(model: str | os.PathLike[str]) -> Source:
    """Return what a model's name stands for; raise WindtunnelError for the path of a file that is not there."""
    if not isinstance(model, str | os.PathLike):
        raise WindtunnelError(f"{model!r:.200} is not a model: give the path of a file, or the name of a stored model.")
    text = os.fspath(model)
    path = Path(text).expanduser()
    if text and os.path.exists(path):
        if not (path.is_file() or path.is_dir()):
            raise WindtunnelError(f"{text} is neither a file nor a folder.")
        return LocalModel(path)
    if _REFERENCE.match(text):
        return ReferencedModel(text)
    folder, slash, name = text.rpartition("/")
    # `missing/file.py` is a file that is not there; a shared model with such a name has a version: `team-a/brake.py@1`.
    is_shared = _PROJECT.fullmatch(folder) is not None and not os.path.exists(folder)
    is_shared = is_shared and ("@" in name or "." not in name)
    if not isinstance(model, str) or (slash and not is_shared) or text.startswith((".", "~")):
        raise WindtunnelError(f"There is no file {text}.")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,199}", text.rpartition("/")[2]):
        raise WindtunnelError(f"{text!r} is neither a file nor the name of a model.")
    return StoredModel(text)


def file_digest(file: Path) -> str:
    """Return the digest of a file as the platform writes it: `sha256:` and 64 hexadecimal digits."""
    with open(file, "rb") as content:
        return content_digest(content)


def content_digest(content: IO[bytes]) -> str:
    """Return the digest of an open file, from its beginning on."""
    content.seek(0)
    return "sha256:" + hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]


def pack(path: Path, target: Path) -> Path:
    """Write the files of a folder, or a file under its name, as a zip archive; equal files give equal bytes.

    Programs can be executed in it. See `folder_files` for what belongs to a folder.
    """
    files = {path.name: path} if path.is_file() else folder_files(path)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            status = file.stat()
            entry.file_size = status.st_size  # decides whether the entry needs the format for large files
            mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, mode << 16
            with open(file, "rb") as content, archive.open(entry, "w") as packed:
                while piece := content.read(1 << 20):
                    packed.write(piece)
    return target
