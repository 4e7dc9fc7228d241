"""Shipped models: the baselines and the datasets' own programs, which are part of the platform.

Submissions may name them; they cannot be changed.
"""

import functools
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from common.ids import digest_of
from core.domain.submissions.records import Model
from core.services.uploads.declared_dependencies import declared, dependencies_document
from datasets.catalogue import datasets
from runtimes import catalogue, formats


@functools.cache
def shipped() -> dict[str, Path]:
    """Return the shipped models by name: the stem of the file's name if no other file has it, else the whole name."""
    found = catalogue.SIMULATORS.glob("*/baselines/*")
    models = [path for path in found if path.suffix in formats.suffixes()]  # others describe the models
    programs = [dataset.program for dataset in datasets().values() if dataset.program is not None]
    files = sorted([*models, *programs])
    stems = [path.stem for path in files]
    return {path.stem if stems.count(path.stem) == 1 else path.name: path for path in files}


@functools.cache
def describe(name: str) -> Model:
    """Return the record of a shipped model; it has one version, and its name as its id."""
    path = shipped()[name]
    content = path.read_bytes()
    format = formats.detect(path, path.name)
    manifest = formats.formats()[format].manifest
    declaration = declared(path, format, largest=len(content)) if manifest else None
    return Model(
        id=name,
        name=name,
        version=1,
        digest=digest_of(content),
        format=format,
        size=len(content),
        filename=path.name,
        runtime=None,
        created_at=datetime.fromtimestamp(0, UTC),
        baseline=True,
        dependencies=None if declaration is None else dependencies_document(declaration),
    )


def find(ref: str) -> Model | None:
    """Return the shipped model with this name, ``name@1``, ``name@latest``, digest or ``name@digest``, or None."""
    name, at, selector = ref.rpartition("@")
    if selector.startswith("sha256:"):
        equal = [model for model in map(describe, shipped()) if model.digest == selector]
        return next((model for model in equal if model.name == name), equal[0] if equal else None)
    if not at:
        name = ref
    elif selector not in {"1", "latest"}:
        return None
    return describe(name) if name in shipped() else None


def page(*, name: str | None, format: str | None, after: str | None, limit: int) -> Sequence[Model]:
    """Return up to ``limit`` shipped models in the order of their names, after the name ``after``."""
    models = (describe(known) for known in sorted(shipped()) if after is None or known > after)
    return [
        model for model in models if (name is None or model.name == name) and (format is None or model.format == format)
    ][:limit]
