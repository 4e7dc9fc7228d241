"""A model that is being read where it is: the name of its file, its bytes, and what its reference resolved to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedModel:
    """A model at its origin. ``size`` in bytes, None if the origin does not tell; ``resolved`` is for provenance."""

    filename: str
    chunks: Iterator[bytes]
    size: int | None = None
    resolved: Mapping[str, Any] = field(default_factory=dict)
