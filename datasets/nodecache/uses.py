"""Uses: when each entry was added and last used, and its eviction key. Stored as files, which outlive processes."""

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets.eviction.policies import load_policy
from datasets.eviction.policy import Item


@dataclass(frozen=True, slots=True)
class Use:
    """Last use of an entry: ``added``, ``used`` in seconds since 1970; ``key``: its eviction key since then."""

    added: float
    used: float
    key: float


class Uses:
    """A folder with a file per entry, and one for the floor of the eviction policy. Callers must hold the node's lock.

    A file that is missing or damaged, or was written under another policy, costs its entry only the past of its key.
    """

    def __init__(self, folder: Path, policy: str) -> None:
        self._folder, self._name = folder, policy
        self.policy = load_policy(policy)

    def record(self, id: str, size: int, now: float) -> None:
        """Record that an entry is used now; it counts as added now if it has no record."""
        stored = self._read(id)
        added = stored.get("added", now)
        key = self.policy.key(Item(id, size, added, now), self._floor())
        self._write(id, {"policy": self._name, "added": added, "used": now, "key": key})

    def get(self, id: str, size: int, present_since: float) -> Use:
        """Return an entry's last use; ``present_since`` replaces the times of an entry without a record."""
        stored = self._read(id)
        added, used = stored.get("added", present_since), stored.get("used", present_since)
        if stored.get("policy") == self._name:
            return Use(added, used, stored["key"])
        return Use(added, used, self.policy.key(Item(id, size, added, used), self._floor()))

    def forget(self, id: str) -> None:
        """Delete the record of an entry that was removed."""
        (self._folder / id).unlink(missing_ok=True)

    def raise_floor(self, key: float) -> None:
        """Record the key of an evicted entry, if it is the highest so far."""
        if key > self._floor():
            self._write("floor", {"policy": self._name, "key": key})

    def _floor(self) -> float:
        stored = self._read("floor")
        return float(stored["key"]) if stored.get("policy") == self._name else 0.0

    def _read(self, name: str) -> dict[str, Any]:
        try:
            stored: dict[str, Any] = json.loads((self._folder / name).read_bytes())
        except (OSError, ValueError):
            return {}
        return stored

    def _write(self, name: str, content: dict[str, object]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f".{name}.{secrets.token_hex(4)}"
        draft.write_text(json.dumps(content))
        draft.replace(self._folder / name)
