"""Launch inputs: model and dataset of a launch, downloaded by a runner that shares no folder with the platform.

Each is an object with a digest, which is verified. It comes from the cache service if there is one, else from the
runner API, where an interrupted download is resumed.
"""

import hashlib
import http.client
import logging
import os
import random
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import BufferedRandom
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from common.errors import BadArchive, TooLarge
from runtimes.harness.runner.model_folder import MODEL
from runtimes.harness.runner.runner_api_client import (
    LONGEST_PAUSE,
    PATIENCE,
    SHORTEST_PAUSE,
    TIMEOUT,
    Credentials,
    LaunchOver,
    Unreachable,
    connection,
)
from runtimes.harness.runner.worker import ModelRejected, SetupFailed

if TYPE_CHECKING:
    from datasets.scs_client.client import CacheClient

logger = logging.getLogger(__name__)

#: Bytes of a read.
CHUNK = 256 << 10
#: Name of the dataset's folder in the download folder.
DATASET_FOLDER = "play"
#: Name of the folder of a model's own packages in the download folder.
ENVIRONMENT_FOLDER = "environment"
#: Complete downloads with a wrong digest before the launch is given up.
MAX_MISMATCHES = 3


class WrongInput(SetupFailed):
    """An input is missing, or its content repeatedly does not match its digest."""


class LaunchInputs:
    """Downloads a launch's model and dataset to ``folder``; gives up with LaunchOver when ``stop`` is set."""

    def __init__(
        self, credentials: Credentials, stop: threading.Event, folder: Path, cache: "CacheClient | None" = None
    ) -> None:
        self._credentials = credentials
        self._stop = stop
        self._folder = folder
        self._cache = cache

    def download(self, files: Mapping[str, Any], *, model: str | None, dataset: str) -> tuple[str, str]:
        """Return the paths of the model's file and the dataset's folder; one that is given already is not downloaded.

        ``files`` has digest and size by name, from the runner API. Raises WrongInput, LaunchOver or Unreachable.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        play = None
        if not dataset:
            if not files.get("play"):
                raise WrongInput("The launch names no dataset folder, and the runner API offers none to download.")
            play = ThreadPoolExecutor(1, "play").submit(self._unpacked, "play", files["play"], DATASET_FOLDER)
        if model is None:
            model = str(self._object("model", files["model"]))
            if "environment" in files:
                self._unpacked("environment", files["environment"], ENVIRONMENT_FOLDER)
        return model, dataset if play is None else str(play.result())

    def _object(self, name: str, file: Mapping[str, Any]) -> Path:
        """Download an object; the file gets its final name once it is complete and verified."""
        digest, size = str(file["digest"]), int(file["size"])
        path = self._folder / digest.removeprefix("sha256:")
        if path.exists():
            return path
        draft = self._folder / f".{secrets.token_hex(8)}"
        with open(draft, "w+b") as target:
            cached = self._cache is not None and self._cache.get(digest, size, target) and matches(target, digest)
            if not cached:
                target.seek(0)
                target.truncate()
                self._fetch(name, digest, size, target)
        os.chmod(draft, 0o444)
        draft.rename(path)
        if self._cache is not None and not cached:
            threading.Thread(target=self._cache.put, args=(digest, path), name="fill", daemon=True).start()
        return path

    def _fetch(self, name: str, digest: str, size: int, target: BufferedRandom) -> None:
        """Download an object from the runner API, resuming after each interruption."""
        failing_since, pause, mismatches = time.monotonic(), 0.0, 0
        while True:
            before = target.tell()
            cause = "the response ended early"
            try:
                for chunk in self._chunks(name, before):
                    target.write(chunk)
            except (OSError, http.client.HTTPException) as error:
                cause = str(error)
            if target.tell() >= size:
                if target.tell() == size and matches(target, digest):
                    return
                mismatches += 1
                if mismatches == MAX_MISMATCHES:
                    raise WrongInput(f"The downloaded {name} did not match its digest, {MAX_MISMATCHES} times.")
                target.seek(0)
                target.truncate()
            if target.tell() > before:
                failing_since, pause = time.monotonic(), 0.0
            if time.monotonic() - failing_since > PATIENCE:
                raise Unreachable(f"no progress in downloading the {name} from the runner API: {cause}")
            pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, pause * 2))
            if self._stop.wait(pause * random.uniform(0.5, 1.0)):
                raise LaunchOver("the runner stops")

    def _chunks(self, name: str, start: int) -> Iterator[bytes]:
        """Yield an object's bytes from ``start`` on; one redirect is followed, without the launch's credentials."""
        url = f"{self._credentials.url.rstrip('/')}/v1/launches/{self._credentials.launch}/{name}"
        headers = {"Authorization": f"Bearer {self._credentials.token}"}
        for _ in range(2):
            parts = urlsplit(url)
            http_connection = connection(parts, TIMEOUT)
            try:
                query = f"?{parts.query}" if parts.query else ""
                http_connection.request("GET", parts.path + query, headers=headers | {"Range": f"bytes={start}-"})
                response = http_connection.getresponse()
                if response.status == 307:
                    url, headers = urljoin(url, response.headers["Location"]), {}
                    continue
                if response.status in {401, 410}:
                    raise LaunchOver(f"HTTP {response.status}")
                if response.status != 206:
                    raise OSError(f"HTTP {response.status}")
                while chunk := response.read(CHUNK):
                    yield chunk
                return
            finally:
                http_connection.close()
        raise OSError("more than one redirect")

    def _unpacked(self, name: str, file: Mapping[str, Any], folder_name: str) -> Path:
        """Download a bundle and unpack it to a folder of files that are readable and executable by all."""
        from datasets.versions.archives.tar import files  # only needed if the launch names no folder

        folder = self._folder / folder_name
        if folder.is_dir():
            return folder
        packed = self._object(name, file)
        draft = self._folder / f".{secrets.token_hex(8)}"
        draft.mkdir(mode=0o755)
        with open(packed, "rb") as tar:
            for member in files(iter(lambda: tar.read(CHUNK), b"")):
                path = draft / member.path
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "xb") as target:
                    target.writelines(member.chunks)
                path.chmod(0o555)
        for above, _, _ in os.walk(draft):  # a job of Slurm has the umask of the process that submitted it
            os.chmod(above, 0o755)
        draft.rename(folder)
        packed.unlink()
        return folder


def unpacked_model(model: str, folder: Path, largest: int, placed: str = "") -> str:
    """Unpack a model that is an archive into a model folder; return the path of its files, or of the model.

    ``largest``: most bytes of the files. ``placed``: the name that a model of one file gets in the folder; empty: it
    stays where it is. Raises ModelRejected for an archive that cannot be unpacked.
    """
    from datasets.nodecache.model_files import is_archive, place
    from datasets.versions.archives.extraction import extract

    file, target = Path(model), folder / MODEL
    archive = not target.is_dir() and is_archive(file)
    if target.is_dir() or not (archive or placed):
        return str(target) if target.is_dir() else model
    draft = folder.parent / f".{secrets.token_hex(8)}"
    draft.mkdir(mode=0o755)
    try:
        if archive:
            extract(file, draft, largest=largest)
        else:
            place(file, draft, placed)
    except (BadArchive, TooLarge) as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise ModelRejected(f"The model cannot be unpacked: {error.detail}", "invalid") from None
    for above, _, _ in os.walk(draft):
        os.chmod(above, 0o755)
    draft.rename(target)
    return str(target)


def matches(file: BufferedRandom, digest: str) -> bool:
    """Return whether a file's content has this digest; leave its position at the end."""
    file.flush()
    file.seek(0)
    return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest() == digest
