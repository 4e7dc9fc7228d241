"""Executors for people: the places simulations run in, and how each fares."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from core.domain.executor_config import ExecutorConfig
from core.store import executors
from core.store.database import Database


class Executors:
    """Tells of what is configured, and of what the dispatcher saw of it last."""

    def __init__(self, database: Database, executor_configs: Sequence[ExecutorConfig]) -> None:
        self._database = database
        self._executor_configs = executor_configs

    def list(self) -> list[dict[str, Any]]:
        """Return every place; ``healthy`` is None until the dispatcher has looked."""
        with self._database.read() as c:
            seen = {row.name: row for row in executors.all(c)}
        found = []
        for one in self._executor_configs:
            row = seen.get(one.name)
            found.append(
                {
                    "name": one.name,
                    "kind": one.kind,
                    "workers": one.workers,
                    "in_use": row.in_use if row else 0,
                    "healthy": bool(row.healthy) if row else None,
                    "reason": row.last_error if row else None,
                    "since": datetime.fromtimestamp(row.since, UTC) if row else None,
                }
            )
        return found
