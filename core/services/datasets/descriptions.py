"""How datasets are described: in short and in full, built-in and registered, and what two versions differ in."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from datasets.catalogue import Dataset, datasets
from datasets.versions.manifest import ManifestEntry


def full(dataset: Dataset) -> dict[str, Any]:
    """Describe a built-in dataset."""
    return dict(dataset.definition) | {"digest": dataset.digest, "registered": False, "state": "ready", "tags": []}


def brief(dataset: Dataset) -> dict[str, Any]:
    """Describe a built-in dataset in short."""
    return short(full(dataset))


_BRIEF = (
    "id",
    "name",
    "version",
    "state",
    "digest",
    "tags",
    "title",
    "description",
    "simulator",
    "extends",
    "tasks",
    "file_count",
    "bytes",
    "registered",
    "created_at",
    "reason",
    "progress",
)


def short(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: described[name] for name in _BRIEF if name in described}


def view(row: Any, tags: Sequence[str]) -> dict[str, Any]:
    """Describe a registered version."""
    said = json.loads(row.described) if row.described else {}
    built_in = datasets()[said["extends"]] if said else None
    described = {
        "id": row.id,
        "name": row.name,
        "version": str(row.version) if row.version is not None else None,
        "state": row.state,
        "digest": row.digest,
        "tags": list(tags),
        "title": said.get("title") or row.name,
        "description": said.get("description", ""),
        "simulator": built_in.simulator if built_in is not None else None,
        "extends": said.get("extends"),
        "tasks": said.get("tasks"),
        "file_count": row.files,
        "bytes": row.bytes,
        "registered": True,
        "source": shortened(json.loads(row.source)),
        "created_at": moment(row.created_at),
        "interface": None,
        "metrics": [],
        "params": {},
        "score": None,
    }
    if built_in is not None:
        for name in ("interface", "metrics", "params", "score"):
            described[name] = built_in.definition[name]
    if row.state == "failed":
        described["reason"] = row.reason
    if row.state == "registering":
        described["progress"] = json.loads(row.progress) if row.progress else {"files": 0, "bytes": 0, "rate": None}
    return described


def shortened(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return a source without the lists it may hold."""
    return {name: f"{len(value)} files" if isinstance(value, list) else value for name, value in source.items()}


def place(entry: ManifestEntry) -> str:
    """Say where a file lies, without the names of our own objects."""
    kind, _, place = entry.source.partition(":")
    return f"s3://{place.split('/', 1)[1]}" if kind == "s3" else "store"


def differences(old: Iterator[ManifestEntry], new: Iterator[ManifestEntry]) -> Iterator[dict[str, Any]]:
    one, other = next(old, None), next(new, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one.path.encode() < other.path.encode()):
            assert one is not None
            yield {"path": one.path, "change": "removed", "from": facts(one), "to": None}
            one = next(old, None)
        elif one is None or other.path.encode() < one.path.encode():
            yield {"path": other.path, "change": "added", "from": None, "to": facts(other)}
            other = next(new, None)
        else:
            if one.digest != other.digest:
                yield {"path": one.path, "change": "changed", "from": facts(one), "to": facts(other)}
            one, other = next(old, None), next(new, None)


def facts(entry: ManifestEntry) -> dict[str, Any]:
    return {"size": entry.size, "digest": entry.digest}


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
