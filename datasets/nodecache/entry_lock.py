"""Lock of a node cache's entry: processes that wait for it see the progress of its holder, and share its failure."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from common.errors import (
    BadName,
    Corrupt,
    LargerThanCache,
    NodeFull,
    OriginChanged,
    OriginFailed,
    OriginRefused,
    PlatformError,
    StoreUnavailable,
)
from common.full_disks import is_disk_full
from datasets.download.downloader import PROGRESS_INTERVAL, DownloadProgress
from datasets.nodecache.disk_cache import DiskCache
from datasets.nodecache.locks import locked

#: Errors of a failed download that are also raised to the callers that waited for it, so that they do not repeat it.
SHARED_ERRORS = {
    error.slug: error
    for error in (
        OriginFailed,
        OriginRefused,
        OriginChanged,
        Corrupt,
        LargerThanCache,
        NodeFull,
        BadName,
        StoreUnavailable,
    )
}


class EntryLock:
    """The lock of one tree or object. A caller that waited for a failed download fails with the download's error."""

    def __init__(self, disk: DiskCache, id: str, on_progress: Callable[[DownloadProgress], None]) -> None:
        self._disk = disk
        self._failure = disk.partial(id, "failure")
        self._progress = disk.partial(id, "progress")
        self._on_progress = on_progress
        self._reported_at = time.monotonic()
        self._since = time.time()
        self._lock = locked(disk.lock(id), self._report_while_waiting)

    def __enter__(self) -> None:
        if self._lock.__enter__():
            try:
                self._raise_shared_failure()
            except BaseException:
                self._lock.__exit__(None, None, None)
                raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._progress.unlink(missing_ok=True)
            if isinstance(error, PlatformError) and error.slug in SHARED_ERRORS:
                with contextlib.suppress(OSError):  # without the file, each waiting caller tries for itself
                    self._failure.parent.mkdir(parents=True, exist_ok=True)
                    self._failure.write_text(json.dumps([time.time(), error.slug, error.detail]))
            else:
                self._failure.unlink(missing_ok=True)
        finally:
            self._lock.__exit__(None, None, None)

    def _report_while_waiting(self) -> None:
        if time.monotonic() - self._reported_at >= PROGRESS_INTERVAL:
            self._reported_at = time.monotonic()
            try:
                self._on_progress(DownloadProgress(**json.loads(self._progress.read_bytes())))
            except (OSError, ValueError, TypeError):
                return

    def _raise_shared_failure(self) -> None:
        try:
            at, slug, detail = json.loads(self._failure.read_bytes())
        except (OSError, ValueError):
            return
        if at >= self._since:
            raise SHARED_ERRORS[slug](detail)


class ProgressReporter:
    """Reports the progress to a callback, and writes it to a file for the callers that wait for the same entry."""

    def __init__(self, path: Path, on_progress: Callable[[DownloadProgress], None]) -> None:
        self._path = path
        self._on_progress = on_progress

    def __call__(self, progress: DownloadProgress) -> None:
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(progress)))
        draft.rename(self._path)
        self._on_progress(progress)


@contextlib.contextmanager
def disk_full_as_node_full() -> Iterator[None]:
    """Raise NodeFull for an OSError that means that the disk is full."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise NodeFull("This node's disk is full; the unfinished download is not used.") from None
        raise
