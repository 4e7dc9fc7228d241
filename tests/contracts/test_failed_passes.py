"""A pass of the dispatcher that the database ends anywhere: what it has taken up is not forgotten."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from common.errors import StoreUnavailable
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.states import State
from core.store.database import Database
from tests.api.answers import MODEL
from tests.contracts.test_dispatcher import DispatcherRig, dispatcher_rig
from tests.databases import sqlite_database
from tests.waiting import until

#: The first transaction that fails in a test, which goes on with each fourth: all are tried over the parameters.
STRIDES = range(1, 5)


class FailingDatabase:
    """Lets one transaction of the dispatcher's passes fail, before or after it has been committed."""

    def __init__(self, database: Database, failing: int, *, committed: bool) -> None:
        self._read, self._write = database.read, database.write
        self._failing, self._committed = failing, committed
        self.transactions = 0
        self.armed = False
        database.read, database.write = self.read, self.write  # type: ignore[method-assign]

    def _fails(self) -> bool:
        self.transactions += self.armed
        return self.armed and self.transactions == self._failing

    @contextmanager
    def read(self) -> Iterator[Any]:
        if self._fails():
            raise StoreUnavailable("the database does not answer")
        with self._read() as connection:
            yield connection

    def write(self, work: Callable[[Any], Any], *, durable: bool = True) -> Any:
        failed = self._fails()
        if failed and not self._committed:
            raise StoreUnavailable("the database does not answer")
        result = self._write(work, durable=durable)
        if failed:
            raise StoreUnavailable("the connection was lost")
        return result


def play_three(rig: DispatcherRig, failing: int, *, committed: bool) -> int:
    """Play three simulations, of which two find workers at once; return the number of transactions of all passes."""
    database = FailingDatabase(rig.platform.database, failing, committed=committed)
    ids = [rig.submit(scenarios={"range": [0, 4]}) for _ in range(3)]
    played: set[str] = set()
    unstaged: list[str] = []
    rig.platform.notifier.enqueue = lambda job, id: unstaged.append(id)  # type: ignore[method-assign,assignment]

    def ended() -> bool:
        database.armed = True
        with suppress(StoreUnavailable):
            rig.dispatcher.step()
        database.armed = False
        while unstaged:
            rig.platform.scheduling.staging.stage(unstaged.pop())
        for launch in [*rig.east.launches.values(), *rig.west.launches.values()]:
            if launch.id in rig.active_launches - played:
                played.add(launch.id)
                rig.play(launch)
        for id in ids:
            if rig.state(id) is State.RUNNING:
                rig.platform.jobs.finalization.collect(id)
        return all(rig.state(id) is State.SUCCEEDED for id in ids)

    until(ended, 20.0, every=0.0)
    return database.transactions


@pytest.mark.parametrize("committed", [pytest.param(False, id="refused"), pytest.param(True, id="committed")])
@pytest.mark.parametrize("first", STRIDES)
def test_simulations_end_whichever_transaction_of_a_pass_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int, committed: bool
) -> None:
    monkeypatch.setattr("workers.dispatcher.GRACE", 0.2)  # a launch that was committed may not have been submitted
    failing, transactions = first, first
    while failing <= transactions:
        home = tmp_path / str(failing)
        home.mkdir()
        with dispatcher_rig(home, sqlite_database(home / "platform.db")) as rig:
            rig.platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
            transactions = play_three(rig, failing, committed=committed)
        failing += len(STRIDES)
    assert failing > 30, "there are as many transactions in three passes"
