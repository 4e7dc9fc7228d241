"""Executors for people: the places simulations run in, and how each fares."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from core.domain.executor_config import Context
from core.store import executors
from core.store.database import Database


class Executors:
    """Tells of what is configured, and of what the dispatcher saw of it last."""

    def __init__(self, database: Database, contexts: Sequence[Context]) -> None:
        self._database = database
        self._contexts = contexts

    def list(self) -> list[dict[str, Any]]:
        """Return every place; ``well`` is None until the dispatcher has looked."""
        with self._database.read() as c:
            seen = {row.name: row for row in executors.all(c)}
        found = []
        for one in self._contexts:
            row = seen.get(one.name)
            found.append(
                {
                    "name": one.name,
                    "kind": one.kind,
                    "cores": one.cores,
                    "held": row.held if row else 0,
                    "well": bool(row.well) if row else None,
                    "reason": row.said if row else None,
                    "since": datetime.fromtimestamp(row.since, UTC) if row else None,
                }
            )
        return found
