"""Background jobs: the same job twice at once, and different jobs at the same time."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from core.domain.scheduling.states import State
from core.services.simulations.finalization import Finalization
from core.services.simulations.results import Results
from datasets.objectstore.filesystem import FilesystemStore
from tests.contracts.test_dispatcher import DispatcherRig
from tests.contracts.test_dispatcher import rig as rig  # a fixture
from workers.background_jobs import Jobs


class BlockingStore(FilesystemStore):
    """A store whose reads of one simulation's results block until released."""

    def __init__(self, root: Path, id: str) -> None:
        super().__init__(root)
        self.released = threading.Event()
        self.requested = threading.Event()
        self._id = id

    def get(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        if self._id in key:
            self.requested.set()
            assert self.released.wait(60)
        return super().get(key, start, length)


def test_a_simulation_finalized_twice_at_once_does_not_delay_another(rig: DispatcherRig, tmp_path: Path) -> None:
    large, small = rig.submit(), rig.submit(scenarios={"range": [0, 1]})
    for id in (large, small):
        rig.play(rig.launch(id)[1])
    rig.dispatcher.step()  # observes that every task of both simulations has a result
    platform = rig.platform
    store = BlockingStore(tmp_path / "objects", large)
    results = Results(platform.database, store, platform.submissions.changes)
    outputs = platform.jobs.finalization.outputs
    finalization = Finalization(platform.database, store, platform.notifier, results, outputs)
    services = replace(platform.jobs, finalization=finalization)
    jobs = Jobs(
        services,
        platform.files,
        platform.catalogue,
        platform.pipelines,
        platform.upkeep,
        environments_folder=tmp_path,
        sandbox=None,
    )
    first_run = threading.Thread(target=jobs.table["collect"], args=(large,))
    first_run.start()
    try:
        assert store.requested.wait(30)
        jobs.table["collect"](large)  # enqueued twice: the second run ends at once, because the first has the claim
        jobs.table["collect"](small)
        rig.until(lambda: rig.state(small) is State.SUCCEEDED)
        assert rig.state(large) is State.RUNNING
    finally:
        store.released.set()
        first_run.join()
    rig.until(lambda: rig.state(large) is State.SUCCEEDED)
