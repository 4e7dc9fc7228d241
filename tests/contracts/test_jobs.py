"""Background jobs over the services: the same job at once, and jobs beside each other."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from core.domain.states import State
from core.services.simulations.finalization import Finalization
from core.services.simulations.results import Results
from datasets.objectstore.filesystem import FilesystemStore
from tests.contracts.test_dispatcher import DispatcherRig
from tests.contracts.test_dispatcher import rig as rig  # a fixture is found by its name in here
from workers.background_jobs import Jobs


class Held(FilesystemStore):
    """A store that gives the results of one simulation only once it is told to."""

    def __init__(self, root: Path, id: str) -> None:
        super().__init__(root)
        self.given = threading.Event()
        self.asked = threading.Event()
        self._id = id

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        if self._id in key:
            self.asked.set()
            assert self.given.wait(60)
        return super().get(key, start, length)


def test_a_large_simulation_that_is_finalized_twice_at_once_delays_no_other(rig: DispatcherRig, tmp_path: Path) -> None:
    large, small = rig.submit(), rig.submit(scenarios={"range": [0, 1]})
    for id in (large, small):
        rig.play(rig.launch(id)[1])
    rig.dispatcher.step()  # sees that every task of both has a result
    platform = rig.platform
    store = Held(tmp_path / "objects", large)
    reading = Results(platform.database, store, platform.changes)
    finalization = Finalization(platform.database, store, platform.notifier, reading)
    jobs = Jobs(replace(platform, finalization=finalization), environments_folder=tmp_path, sandbox=None)
    running = threading.Thread(target=jobs.table["collect"], args=(large,))
    running.start()
    try:
        assert store.asked.wait(30)
        jobs.table["collect"](large)  # enqueued twice: it ends at once, because the first run has the claim
        jobs.table["collect"](small)
        rig.until(lambda: rig.state(small) is State.SUCCEEDED)
        assert rig.state(large) is State.RUNNING
    finally:
        store.given.set()
        running.join()
    rig.until(lambda: rig.state(large) is State.SUCCEEDED)
