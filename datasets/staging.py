"""Bring an object near: verified by digest on arrival, visible only when whole, fetched once however many ask."""

import fcntl
import hashlib
import os
from pathlib import Path

from core.errors import Corrupt
from datasets.stores.base import ObjectStore


def stage(store: ObjectStore, key: str, digest: str, folder: Path) -> Path:
    """Return a read-only file with the content that ``digest`` (``sha256:<hex>``) names.

    Fetched if it is not there yet.
    """
    target = folder / digest.removeprefix("sha256:")
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f".{target.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # freed by the kernel, also by kill -9
        if target.exists():
            return target
        draft = folder / f".{target.name}.partial"
        hasher = hashlib.sha256()
        with open(draft, "wb") as file:
            for chunk in store.get(key):
                hasher.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if "sha256:" + hasher.hexdigest() != digest:
            draft.unlink()
            raise Corrupt(f"The object {key} does not have the digest {digest}; it was not used.")
        draft.chmod(0o444)
        draft.rename(target)
    return target
