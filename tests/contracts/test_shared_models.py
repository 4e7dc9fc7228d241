"""Shares on both databases: a reader finds what is shared, races end in one state, and what runs keeps its content."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import NotFound, PlatformError, UnknownModel
from core.domain.access.scopes import LOCAL_CALLER, Scope
from core.domain.access.shared_kinds import SharedKind
from core.domain.submissions.submission import Submission
from core.services.access.shares import Shares
from core.store import accounts
from core.store.database import Database
from tests.api.answers import MODEL
from tests.contracts.test_dispatcher import DispatcherRig, dispatcher_rig

RED, BLUE = (replace(LOCAL_CALLER, scope=Scope(name)) for name in ("red", "blue"))


@pytest.fixture
def rig(tmp_path: Path, database: Database) -> Iterator[DispatcherRig]:
    with dispatcher_rig(tmp_path, database) as rig:
        for name in ("red", "blue"):
            database.write(lambda c, name=name: accounts.add_project(c, name, "", database.now(c)))  # type: ignore[misc]
        rig.platform.files.models.add(RED, (MODEL,), filename="model.py", name="brake", tags=["gold"])
        yield rig


@pytest.fixture
def shares(rig: DispatcherRig) -> Shares:
    return rig.platform.access.shares


def submit(rig: DispatcherRig, model: str) -> str:
    submission = Submission(dataset="noop", runtime="python", model=model, scenarios={"range": [0, 40]}, workers=2)
    return rig.platform.submissions.simulations.submit(BLUE, submission)[0].id


def test_a_reader_finds_a_shared_model_by_each_of_its_references_and_nobody_else_does(
    rig: DispatcherRig, shares: Shares
) -> None:
    models = rig.platform.files.models
    made = models.get(RED, "brake")
    shares.share(RED, SharedKind.MODELS, "red/brake@gold", "blue")
    for reference in ("brake", "red/brake", "brake@1", "red/brake@gold", "red/brake@latest", made.id, made.digest):
        found = models.get(BLUE, reference)
        assert (found.id, found.name, list(found.tags)) == (made.id, "red/brake", ["gold"]), reference
        with pytest.raises(UnknownModel):
            models.get(LOCAL_CALLER, reference)
    shares.unshare(RED, SharedKind.MODELS, made.id, "blue")
    with pytest.raises(UnknownModel):
        models.get(BLUE, made.id)
    with pytest.raises(NotFound):
        shares.unshare(RED, SharedKind.MODELS, "brake", "blue")


def test_shares_that_are_made_at_once_are_one(rig: DispatcherRig, shares: Shares) -> None:
    together = threading.Barrier(8)
    errors: list[Exception] = []

    def share() -> None:
        together.wait()
        try:
            shares.share(RED, SharedKind.MODELS, "brake", "blue")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=share) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and len(shares.page(BLUE)[0]) == 1


def test_a_submission_that_races_with_the_deletion_of_its_model_has_the_model_or_is_refused(
    rig: DispatcherRig, shares: Shares
) -> None:
    models, digest = rig.platform.files.models, rig.platform.files.models.get(RED, "brake").digest
    shares.share(RED, SharedKind.MODELS, "brake", "blue")
    submitted: list[str] = []
    together = threading.Barrier(5)

    def submit_some() -> None:
        together.wait()
        try:
            for _ in range(10):
                submitted.append(submit(rig, "red/brake"))
        except PlatformError as error:
            assert isinstance(error, UnknownModel), error

    threads = [threading.Thread(target=submit_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    together.wait()
    models.delete(RED, "brake")
    for thread in threads:
        thread.join()
    models.remove_orphans()
    stored = [key for key in rig.platform.store.list("models/") if key.endswith(digest.removeprefix("sha256:"))]
    assert bool(stored) == bool(submitted)
    assert shares.page(BLUE)[0] == []
