"""What a runner far from our folders needs of its launch: fetched by two digests, verified, laid out in a folder.

From the cache service's nodes where there are any, else from the runner API, resumed where it broke off.
"""

import hashlib
import http.client
import logging
import os
import random
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from io import BufferedRandom
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

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
from runtimes.harness.runner.worker import SetupFailed

if TYPE_CHECKING:
    from datasets.scs_client.client import CacheClient

logger = logging.getLogger(__name__)

CHUNK = 256 << 10
#: What the dataset's folder is called among what was fetched.
PLAY = "play"


class Damaged(SetupFailed):
    """What came is not what was announced, again and again."""


class Deliveries:
    """Brings the model and the folder that an evaluator sees."""

    def __init__(
        self, credentials: Credentials, stop: threading.Event, folder: Path, near: "CacheClient | None" = None
    ) -> None:
        self._credentials = credentials
        self._stop = stop
        self._folder = folder
        self._near = near

    def bring(self, files: Mapping[str, Any], *, model: str | None, dataset: str) -> tuple[str, str]:
        """Return the model's file and the dataset's folder; what is named already is not fetched."""
        self._folder.mkdir(parents=True, exist_ok=True)
        found: dict[str, Path] = {}
        failed: list[BaseException] = []

        def play() -> None:
            try:
                found["play"] = self._play(files["play"])
            except BaseException as error:  # raised again below, in the thread that can say so
                failed.append(error)

        beside = None
        if not dataset:
            if not files.get("play"):
                raise Damaged("The launch names no folder to play in, and offers none.")
            beside = threading.Thread(target=play, name="play", daemon=True)
            beside.start()
        if model is None:
            model = str(self._object("model", files["model"]))
        if beside is not None:
            beside.join()
        if failed:
            raise failed[0]
        return model, dataset or str(found["play"])

    def _object(self, what: str, file: Mapping[str, Any]) -> Path:
        """Fetch one object; it has its name only once it is whole and right."""
        digest, size = str(file["digest"]), int(file["size"])
        path = self._folder / digest.removeprefix("sha256:")
        if path.exists():
            return path
        draft = self._folder / f".{secrets.token_hex(8)}"
        with open(draft, "w+b") as target:
            came_near = self._near is not None and self._near.get(digest, size, target) and right(target, digest)
            if not came_near:
                target.seek(0)
                target.truncate()
                self._fetch(what, digest, size, target)
        os.chmod(draft, 0o444)
        draft.rename(path)
        if self._near is not None and not came_near:
            threading.Thread(target=self._near.put, args=(digest, path), name="fill", daemon=True).start()
        return path

    def _fetch(self, what: str, digest: str, size: int, target: BufferedRandom) -> None:
        """Copy from the runner API until all is there, from where it broke off each time."""
        failing_since, pause, wrong = time.monotonic(), 0.0, 0
        while True:
            before = target.tell()
            trouble = f"{what} ended early"
            try:
                for piece in self._pieces(what, before):
                    target.write(piece)
            except (OSError, http.client.HTTPException) as error:
                trouble = str(error)
            if target.tell() >= size:
                if target.tell() == size and right(target, digest):
                    return
                wrong += 1
                if wrong == 3:
                    raise Damaged(f"The {what} that came is not the one that was announced, three times.")
                target.seek(0)
                target.truncate()
            if target.tell() > before:
                failing_since, pause = time.monotonic(), 0.0
            if time.monotonic() - failing_since > PATIENCE:
                raise Unreachable(f"the {what} does not come: {trouble}")
            pause = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, pause * 2))
            if self._stop.wait(pause * random.uniform(0.5, 1.0)):
                raise LaunchOver("the runner stops")

    def _pieces(self, what: str, start: int) -> Iterator[bytes]:
        """Yield what is there from a byte on; a redirection is followed without our credentials."""
        address = f"{self._credentials.url.rstrip('/')}/v1/launches/{self._credentials.launch}/{what}"
        headers = {"Authorization": f"Bearer {self._credentials.token}"}
        for _ in range(2):
            place = urlsplit(address)
            link = connection(place, TIMEOUT)
            try:
                query = f"?{place.query}" if place.query else ""
                link.request("GET", place.path + query, headers=headers | {"Range": f"bytes={start}-"})
                answer = link.getresponse()
                if answer.status == 307:
                    address, headers = urljoin(address, answer.headers["Location"]), {}
                    continue
                if answer.status in {401, 410}:
                    raise LaunchOver(f"HTTP {answer.status}")
                if answer.status != 206:
                    raise OSError(f"HTTP {answer.status}")
                while piece := answer.read(CHUNK):
                    yield piece
                return
            finally:
                link.close()
        raise OSError("it sends us on and on")

    def _play(self, file: Mapping[str, Any]) -> Path:
        """Fetch the packed folder and unpack it; an evaluator reads it, and nobody writes to it."""
        from datasets.versions.archives.tar import files  # the launch may name a folder, and then nobody needs this

        folder = self._folder / PLAY
        if folder.is_dir():
            return folder
        packed = self._object("play", file)
        draft = self._folder / f".{secrets.token_hex(8)}"
        draft.mkdir(mode=0o755)
        with open(packed, "rb") as tar:
            for member in files(iter(lambda: tar.read(CHUNK), b"")):
                path = draft / member.path
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "xb") as target:
                    target.writelines(member.chunks)
                path.chmod(0o444)
        draft.rename(folder)
        packed.unlink()
        return folder


def right(file: BufferedRandom, digest: str) -> bool:
    """Tell whether a file has this digest; it is left at its end."""
    file.flush()
    file.seek(0)
    return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest() == digest
