"""A store that does not answer while a simulation is made ready: it waits in the queue, and says why; not for ever."""

import pytest

from core.domain.records import Submission
from core.domain.states import State
from core.services.platform import Platform
from core.services.staging import ATTEMPTS, Staging
from core.settings import Settings
from core.store import simulations
from datasets.connections import Connection
from datasets.staging import NodeCache
from datasets.stores.s3 import S3Store
from datasets.transfer import Patience
from tests.system.house import free_ports, share_environments


@pytest.fixture
def away(platform: Platform, settings: Settings) -> Staging:
    """The staging of a node whose object store's host refuses to be spoken to."""
    home = settings.home
    share_environments(home)
    nowhere = Connection(name="own", endpoint=f"http://127.0.0.1:{free_ports(1)[0]}", access_key="a", secret_key="b")
    patience = Patience(connect=1.0, tries=1, first=0.01)
    cache = NodeCache(home / "elsewhere", S3Store(nowhere, "objects"), patience=patience)
    return Staging(
        platform.database,
        platform.bell,
        platform.datasets,
        cache,
        environments_folder=home / "environments",
        plays=home / "plays",
    )


def test_it_is_tried_again_later_and_given_up_at_last(platform: Platform, away: Staging, model: str) -> None:
    made, _ = platform.simulations.submit(Submission(dataset="noop", runtime="python", model=model))
    for attempt in range(1, ATTEMPTS + 1):
        with platform.database.read() as c:
            row = simulations.find(c, made.id)
            now = platform.database.now(c)
        assert (row.state, row.attempt) == ("queued", attempt)
        assert attempt == 1 or row.not_before > now - 1.0
        platform.database.write(lambda c: simulations.move(c, made.id, State.QUEUED, State.STAGING, 0.0))
        away.stage(made.id)
    ended = platform.simulations.get(made.id)
    assert ended.state is State.ERRORED
    assert ended.reason and "does not answer" in ended.reason
