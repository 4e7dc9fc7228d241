"""Models that are registered while the last model of the same bytes is deleted: no row ever lacks its bytes."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import delete, insert

from common.errors import UnknownModel
from core.domain.access.scopes import LOCAL_CALLER, PLATFORM
from core.services.uploads.models import Models, key_of
from core.store.database import Database
from core.store.tables import models, simulations
from datasets.objectstore.filesystem import FilesystemStore

CODE = b"def create():\n    return lambda observation: 0\n"


class StoreWithPauses(FilesystemStore):
    """Object store that calls functions of a test at the moments between two steps of a service."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.after_put: list[Callable[[], object]] = []
        self.before_delete: list[Callable[[], object]] = []

    def put(self, key: str, chunks: Iterable[bytes]) -> int:
        size = super().put(key, chunks)
        if self.after_put:
            self.after_put.pop()()
        return size

    def delete(self, key: str) -> None:
        if self.before_delete:
            self.before_delete.pop()()
        super().delete(key)


@pytest.fixture
def objects(tmp_path: Path) -> StoreWithPauses:
    return StoreWithPauses(tmp_path / "objects")


@pytest.fixture
def service(database: Database, objects: StoreWithPauses, tmp_path: Path) -> Models:
    return Models(database, objects, tmp_path / "scratch")


@pytest.fixture
def others() -> Iterator[ThreadPoolExecutor]:
    """Threads of requests that run beside the test's own."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


def add(service: Models, name: str = "m", body: bytes = CODE) -> str:
    return service.add(LOCAL_CALLER, iter([body]), filename="m.py", name=name).id


def content(service: Models, ref: str) -> bytes:
    return b"".join(service.content(service.get(LOCAL_CALLER, ref)))


def test_a_model_put_before_and_registered_after_the_deletion_of_its_bytes_has_them(
    service: Models, objects: StoreWithPauses
) -> None:
    first = add(service)
    objects.after_put.append(lambda: service.delete(LOCAL_CALLER, first))
    second = add(service)
    assert content(service, second) == CODE


def test_a_model_registered_while_its_bytes_are_deleted_has_them(
    service: Models, objects: StoreWithPauses, others: ThreadPoolExecutor
) -> None:
    first = add(service)
    pending = []

    def register() -> None:
        pending.append(others.submit(add, service))
        with pytest.raises(TimeoutError):  # it waits for the deletion, or would have finished by now
            pending[0].result(0.3)

    objects.before_delete.append(register)
    service.delete(LOCAL_CALLER, first)
    assert content(service, pending[0].result(30)) == CODE


def test_many_registrations_and_deletions_of_the_same_bytes_leave_no_row_without_bytes(
    service: Models, objects: StoreWithPauses, others: ThreadPoolExecutor
) -> None:
    def churn(number: int) -> None:
        for _ in range(10):
            try:
                service.delete(LOCAL_CALLER, add(service, f"m{number}"))
            except UnknownModel:  # never: each thread has a name of its own
                raise AssertionError from None
            kept = add(service, f"m{number}")
            assert content(service, kept) == CODE
            service.delete(LOCAL_CALLER, kept)

    for future in [others.submit(churn, number) for number in range(4)]:
        future.result(60)
    assert list(objects.list("models/")) == []


def test_bytes_without_a_row_are_removed_and_others_stay(
    service: Models, objects: StoreWithPauses, database: Database
) -> None:
    kept, lost = add(service, "kept"), add(service, "lost", CODE + b"#")
    shipped = service.baseline("zero")
    digest = service.get(LOCAL_CALLER, lost).digest
    database.write(lambda c: c.execute(delete(models).where(models.c.id == lost)) and None)  # killed before its object
    assert service.remove_orphans() == 1
    assert sorted(objects.list("models/")) == sorted(
        [key_of(service.get(LOCAL_CALLER, kept).digest), key_of(shipped.digest)]
    )
    assert add(service, "lost", CODE + b"#") and service.get(LOCAL_CALLER, "lost").digest == digest
    assert content(service, "lost") == CODE + b"#"


def test_a_simulation_is_not_stored_with_a_model_that_was_deleted_meanwhile(
    service: Models, database: Database
) -> None:
    model = service.get(LOCAL_CALLER, add(service))
    database.write(lambda c: Models.keep(c, PLATFORM, model))
    service.delete(LOCAL_CALLER, model.id)
    with pytest.raises(UnknownModel, match="deleted"):
        database.write(lambda c: Models.keep(c, PLATFORM, model))
    baseline = service.baseline("zero")
    database.write(lambda c: Models.keep(c, PLATFORM, baseline))


def test_a_deletion_waits_for_the_submission_that_uses_the_model(
    service: Models, database: Database, others: ThreadPoolExecutor
) -> None:
    model = service.get(LOCAL_CALLER, add(service))
    if database.embedded:
        return  # SQLite has one writer
    with database.engine.begin() as connection:
        Models.keep(connection, PLATFORM, model)
        deletion = others.submit(service.delete, LOCAL_CALLER, model.id)
        with pytest.raises(TimeoutError):
            deletion.result(0.3)
        connection.execute(insert(simulations).values(**simulation(model.digest)))
    with pytest.raises(Exception, match="still needs this model"):
        deletion.result(30)


def simulation(digest: str) -> dict[str, object]:
    row = dict.fromkeys(("id", "project", "dataset", "runtime", "model"), "x")
    return row | {
        "project": "default",
        "state": "queued",
        "spec": "{}",
        "provenance": "{}",
        "digest": digest,
        "created_at": 0.0,
    }
