"""Executors for the API: the configured ones with their health and load, and which of them are drained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from common.errors import UnknownExecutor
from common.moments import moment_of
from core.domain.access.roles import Verb
from core.domain.access.scopes import Caller
from core.domain.scheduling.executor_config import ExecutorConfig
from core.notifications.notifier import Notifier
from core.store import executors, launches
from core.store.database import Connection, Database


@dataclass(frozen=True, slots=True)
class Drain:
    """Since when, why and by whom an executor is given no simulations."""

    since: datetime
    reason: str | None
    by: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorState:
    """A configured executor with its health; ``healthy`` is None until the dispatcher has checked it."""

    name: str
    kind: str
    workers: int
    allowed: Mapping[str, Sequence[str]]
    in_use: int
    healthy: bool | None
    reason: str | None
    since: datetime | None
    drain: Drain | None


class Executors:
    """Lists the configured executors with the health that the dispatcher recorded last; drains them."""

    def __init__(self, database: Database, notifier: Notifier, executor_configs: Sequence[ExecutorConfig]) -> None:
        self._database = database
        self._notifier = notifier
        self._executor_configs = {config.name: config for config in executor_configs}

    def list(self, caller: Caller) -> list[ExecutorState]:
        """Return every executor; to who does not operate the platform, with the workers that his project uses."""
        with self._database.read() as c:
            rows = {row.name: row for row in executors.all(c)}
            drains = executors.drains(c)
            own = None if Verb.OPERATE in caller.verbs else launches.in_use(c, caller.scope)
        states = {
            name: _state_of(one, rows.get(name), drains.get(name)) for name, one in self._executor_configs.items()
        }
        if own is not None:
            states = {name: replace(state, in_use=own.get(name, 0)) for name, state in states.items()}
        return [*states.values()]

    def drain(self, caller: Caller, name: str, *, reason: str = "") -> ExecutorState:
        """Give an executor no simulations from now on; what it runs goes on. Of a drained one, replace the reason."""

        def write(c: Connection) -> None:
            executors.drain(c, name, reason=reason, by=caller.name, now=self._database.now(c))

        self._known(name)
        self._database.write(write)
        return self._changed(caller, name)

    def undrain(self, caller: Caller, name: str) -> ExecutorState:
        """Give an executor simulations again. Idempotent."""
        self._known(name)
        self._database.write(lambda c: executors.undrain(c, name))
        return self._changed(caller, name)

    def _known(self, name: str) -> None:
        if name not in self._executor_configs:
            known = ", ".join(self._executor_configs)
            raise UnknownExecutor(f"There is no executor {name[:64]!r}; there are {known}.")

    def _changed(self, caller: Caller, name: str) -> ExecutorState:
        self._notifier.wake("dispatch")
        return next(state for state in self.list(caller) if state.name == name)


def _state_of(
    config: ExecutorConfig, row: executors.ExecutorRow | None, drain: executors.DrainRow | None
) -> ExecutorState:
    return ExecutorState(
        name=config.name,
        kind=config.kind,
        workers=config.workers,
        allowed=config.allowed,
        in_use=row.in_use if row else 0,
        healthy=bool(row.healthy) if row else None,
        reason=row.last_error if row else None,
        since=moment_of(row.since) if row else None,
        drain=Drain(moment_of(drain.since), drain.reason or None, drain.drained_by or None) if drain else None,
    )
