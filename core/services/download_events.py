"""Download events: the progress of a download as the body of an event, at intervals."""

import time
from collections.abc import Callable
from dataclasses import asdict

from datasets.nodecache.node_cache import DownloadProgress

#: Seconds between two progress events of one download.
PROGRESS_INTERVAL = 0.5


def download_event(progress: DownloadProgress) -> dict[str, object]:
    """Return a download's progress as an event body; rate in bytes per second."""
    whole = progress.total_bytes
    fraction = min(1.0, progress.bytes / whole) if whole else 1.0
    return {"what": "dataset", **asdict(progress), "fraction": fraction}


def at_intervals(say: Callable[[DownloadProgress], None]) -> Callable[[DownloadProgress], None]:
    """Limit calls to one per PROGRESS_INTERVAL, plus the last one."""
    reported_at = -PROGRESS_INTERVAL

    def say_if_due(progress: DownloadProgress) -> None:
        nonlocal reported_at
        done = progress.bytes >= progress.total_bytes and progress.files >= progress.total_files
        if done or time.monotonic() - reported_at >= PROGRESS_INTERVAL:
            reported_at = time.monotonic()
            say(progress)

    return say_if_due
