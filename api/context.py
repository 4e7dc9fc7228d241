"""What a view needs of the outside: the services, and a few limits that the composition root chose."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from flask import current_app

from core.services.platform import Platform

EXTENSION = "windtunnel"


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """Everything the application was built with. ``heartbeat`` in seconds, ``max_upload`` in bytes."""

    platform: Platform
    names: tuple[str, ...] = ()
    token: str = ""
    max_upload: int = 4 << 30
    spool: Path | None = None
    heartbeat: float = 15.0
    #: Streams that may be open at once.
    streams: int = 1000
    #: The sandbox of this machine, as /readyz tells it.
    sandbox: Mapping[str, Any] = field(default_factory=dict)
    #: Named checks; each returns None when all is well, else what is wrong.
    checks: Mapping[str, Callable[[], str | None]] = field(default_factory=dict)
    #: The checks without which nothing can be served; without the others it is only slower.
    vital: frozenset[str] = frozenset({"database"})


def context() -> Context:
    """Return the context of this application."""
    return cast(Context, current_app.extensions[EXTENSION])


def services() -> Platform:
    """Return the services."""
    return context().platform
