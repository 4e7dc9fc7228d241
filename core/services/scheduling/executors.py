"""Executor status for the API: the configured executors with their health and load."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from core.domain.executor_config import ExecutorConfig
from core.store import executors
from core.store.database import Database


class Executors:
    """Lists the configured executors with the health that the dispatcher recorded last."""

    def __init__(self, database: Database, executor_configs: Sequence[ExecutorConfig]) -> None:
        self._database = database
        self._executor_configs = executor_configs

    def list(self) -> list[dict[str, Any]]:
        """Return every executor; ``healthy`` is None until the dispatcher has checked it."""
        with self._database.read() as c:
            rows = {row.name: row for row in executors.all(c)}
        items = []
        for config in self._executor_configs:
            row = rows.get(config.name)
            items.append(
                {
                    "name": config.name,
                    "kind": config.kind,
                    "workers": config.workers,
                    "allowed": {name: list(patterns) for name, patterns in config.allowed.items()},
                    "in_use": row.in_use if row else 0,
                    "healthy": bool(row.healthy) if row else None,
                    "reason": row.last_error if row else None,
                    "since": datetime.fromtimestamp(row.since, UTC) if row else None,
                }
            )
        return items
