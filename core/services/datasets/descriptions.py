"""JSON descriptions of datasets (short and full, built-in and registered), and differences between versions."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from core.domain.submissions.stored_documents import decode_document
from core.store.datasets import DatasetVersionRow
from datasets.catalogue import Dataset, datasets
from datasets.catalogue.never_values import described_metrics
from datasets.versions import openenv_environment
from datasets.versions.manifest import ManifestEntry
from datasets.versions.version_description import VersionDescription
from runtimes.harness.dataset_definition import definition_of
from runtimes.harness.simulators.declared_interface import described_interface


def built_in_document(dataset: Dataset) -> dict[str, object]:
    """Return the full description of a built-in dataset."""
    definition = dict(dataset.definition) | {"metrics": described_metrics(dataset.definition)}
    definition["interface"] = described_interface(definition_of(dataset.definition))
    return definition | {"digest": dataset.digest, "registered": False, "state": "ready", "tags": []}


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
    "next_step",
    "progress",
)


#: For a person whose registration failed.
NEXT_STEP = "Correct the source and register it again under the same name: `POST /v1/datasets`."


def brief_document(described: Mapping[str, object]) -> dict[str, object]:
    """Return the members of a description that lists have."""
    return {name: described[name] for name in _BRIEF if name in described}


def version_document(row: DatasetVersionRow, tags: Sequence[str]) -> dict[str, object]:
    """Return the description of a registered version."""
    content = decode_document(row.described, VersionDescription) if row.described else None
    built_in = datasets()[content.extends] if content is not None else None
    document: dict[str, object] = {
        "id": row.id,
        "name": row.name,
        "version": str(row.version) if row.version is not None else None,
        "state": row.state,
        "digest": row.digest,
        "tags": list(tags),
        "title": (content and content.title) or row.name,
        "description": content.description if content is not None else "",
        "simulator": built_in.simulator if built_in is not None else None,
        "extends": content.extends if content is not None else None,
        "tasks": content.tasks if content is not None else None,
        "file_count": row.files,
        "bytes": row.bytes,
        "registered": True,
        "source": shortened(decode_document(row.source, dict[str, object])),
        "created_at": moment(row.created_at),
        "interface": None,
        "metrics": [],
        "params": {},
        "score": None,
    }
    if built_in is not None and content is not None:
        definition = dict(built_in.definition) | dict(content.definition)
        if content.openenv:
            document["openenv"] = content.openenv
            definition |= openenv_environment.definition(content.openenv)
        document["metrics"] = described_metrics(definition)
        for name in ("params", "score", "failure", "group_by"):
            if name in definition:
                document[name] = definition[name]
        document["interface"] = described_interface(definition_of(definition))
        if content.maps:
            document |= {"maps": content.maps, "generate": content.generate}
    if row.state == "failed":
        document["reason"] = row.reason
        document["next_step"] = NEXT_STEP
    if row.state == "registering":
        begun = {"files": 0, "bytes": 0, "rate": None}
        document["progress"] = decode_document(row.progress, dict[str, object]) if row.progress else begun
    return document


def shortened(source: Mapping[str, object]) -> dict[str, object]:
    """Return a source with its lists replaced by their lengths."""
    return {name: f"{len(value)} files" if isinstance(value, list) else value for name, value in source.items()}


def location(entry: ManifestEntry) -> str:
    """Return the location of a file: its S3 URL, or `store` for the platform's own objects."""
    kind, _, rest = entry.source.partition(":")
    return f"s3://{rest.split('/', 1)[1]}" if kind == "s3" else "store"


def differences(old: Iterator[ManifestEntry], new: Iterator[ManifestEntry]) -> Iterator[dict[str, object]]:
    """Yield the changes between two manifests, by path; both are sorted."""
    before, after = next(old, None), next(new, None)
    while before is not None or after is not None:
        if after is None or (before is not None and before.path.encode() < after.path.encode()):
            assert before is not None
            yield {"path": before.path, "change": "removed", "from": facts(before), "to": None}
            before = next(old, None)
        elif before is None or after.path.encode() < before.path.encode():
            yield {"path": after.path, "change": "added", "from": None, "to": facts(after)}
            after = next(new, None)
        else:
            if before.digest != after.digest:
                yield {"path": before.path, "change": "changed", "from": facts(before), "to": facts(after)}
            before, after = next(old, None), next(new, None)


def facts(entry: ManifestEntry) -> dict[str, object]:
    return {"size": entry.size, "digest": entry.digest}


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
