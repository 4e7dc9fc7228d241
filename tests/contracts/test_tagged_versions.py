"""Tags of models, on each database engine: they move, they end with their version, and no tag refers to nothing."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import func, select

from common.errors import Invalid, NotFound, PlatformError, ShippedModel, UnknownModel
from core.domain.access.scopes import LOCAL_CALLER, PLATFORM
from core.services.uploads.models import Models
from core.store import models as store
from core.store.database import Database
from core.store.tables import model_tags
from datasets.objectstore.filesystem import FilesystemStore

CODE = b"def create():\n    return lambda observation: 0\n"


@pytest.fixture
def service(database: Database, tmp_path: Path) -> Models:
    return Models(database, FilesystemStore(tmp_path / "objects"), tmp_path / "scratch")


@pytest.fixture
def others() -> Iterator[ThreadPoolExecutor]:
    """Threads of requests that run beside the test's own."""
    with ThreadPoolExecutor(4) as pool:
        yield pool


def add(service: Models, number: int, name: str = "prod", **tags: list[str]) -> str:
    """Register a model whose content is that of a number; return its id."""
    return service.add(
        LOCAL_CALLER, iter([CODE + b"#" * number]), filename="m.py", name=name, tags=tags.get("tags", [])
    ).id


def tag_count(database: Database) -> int:
    with database.read() as c:
        return int(c.scalar(select(func.count()).select_from(model_tags)) or 0)


def test_a_tag_refers_to_a_version_until_it_is_moved(service: Models) -> None:
    first, second = add(service, 1), add(service, 2)
    assert service.tag(LOCAL_CALLER, "prod", "gold", "1").tags == ["gold"]
    assert service.get(LOCAL_CALLER, "prod@gold").id == first and service.get(LOCAL_CALLER, "prod@latest").id == second
    for version, id in (
        ("2", second),
        ("1", first),
        ("latest", second),
        (service.get(LOCAL_CALLER, first).digest, first),
    ):
        assert service.tag(LOCAL_CALLER, "prod", "gold", version).id == id == service.get(LOCAL_CALLER, "prod@gold").id
    assert service.tag(LOCAL_CALLER, "prod", "fallback", "gold").tags == ["fallback", "gold"]
    assert service.get(LOCAL_CALLER, second).tags == ()
    service.untag(LOCAL_CALLER, "prod", "gold")
    with pytest.raises(UnknownModel):
        service.get(LOCAL_CALLER, "prod@gold")
    with pytest.raises(NotFound, match="no tag 'gold'"):
        service.untag(LOCAL_CALLER, "prod", "gold")


def test_names_do_not_share_their_tags(service: Models) -> None:
    first, other = add(service, 1, tags=["gold"]), add(service, 2, "other", tags=["gold"])
    assert (service.get(LOCAL_CALLER, "prod@gold").id, service.get(LOCAL_CALLER, "other@gold").id) == (first, other)
    with pytest.raises(UnknownModel, match="prod has no version or tag 'sha256:"):
        service.tag(LOCAL_CALLER, "prod", "gold", service.get(LOCAL_CALLER, other).digest)
    assert service.get(LOCAL_CALLER, "prod@gold").id == first


def test_an_unknown_tag_is_refused_with_the_tags_that_there_are(service: Models) -> None:
    add(service, 1)
    with pytest.raises(UnknownModel, match=r"has no version or tag 'glod'\. It has no tags but `latest`\."):
        service.get(LOCAL_CALLER, "prod@glod")
    service.tag(LOCAL_CALLER, "prod", "gold", "1")
    service.tag(LOCAL_CALLER, "prod", "candidate", "1")
    with pytest.raises(UnknownModel, match=r"has no version or tag 'glod'\. Its tags: latest, candidate, gold\."):
        service.get(LOCAL_CALLER, "prod@glod")
    with pytest.raises(UnknownModel, match=r"has no version or tag '7'\. Its tags: latest, candidate, gold\."):
        service.tag(LOCAL_CALLER, "prod", "gold", "7")
    with pytest.raises(UnknownModel, match=r"Did you mean prod\?"):
        service.get(LOCAL_CALLER, "prdo@gold")


@pytest.mark.parametrize("tag", ["latest", "7", "sha256:" + "0" * 64, "", "a b", "-x", "x" * 101])
def test_a_text_that_means_something_else_is_not_a_tag(service: Models, tag: str) -> None:
    id = add(service, 1)
    for refused in (lambda: service.tag(LOCAL_CALLER, "prod", tag, "1"), lambda: add(service, 2, tags=[tag])):
        with pytest.raises(Invalid, match="is not a tag"):
            refused()
    assert service.get(LOCAL_CALLER, "prod").id == id


def test_a_shipped_model_has_its_version_and_no_tags(service: Models) -> None:
    assert (
        service.get(LOCAL_CALLER, "idm@latest")
        == service.get(LOCAL_CALLER, "idm@1")
        == service.get(LOCAL_CALLER, "idm")
    )
    with pytest.raises(ShippedModel, match="ships with the platform"):
        service.tag(LOCAL_CALLER, "idm", "gold", "1")
    with pytest.raises(UnknownModel, match="ships with the platform, in one version without tags"):
        service.get(LOCAL_CALLER, "idm@gold")


def test_tags_of_a_registration_are_set_on_the_version_that_has_the_bytes_already(service: Models) -> None:
    first = add(service, 1, tags=["gold", "gold", "stable"])
    assert service.get(LOCAL_CALLER, first).tags == ["gold", "stable"]
    assert add(service, 1, tags=["candidate"]) == first
    assert service.get(LOCAL_CALLER, "prod@candidate").tags == ["candidate", "gold", "stable"]
    second = add(service, 2, tags=["gold"])
    assert service.get(LOCAL_CALLER, "prod@gold").id == second and service.get(LOCAL_CALLER, first).tags == [
        "candidate",
        "stable",
    ]
    assert {model.id: model.tags for model in service.list(LOCAL_CALLER, name="prod")[0]} == {
        second: ["gold"],
        first: ["candidate", "stable"],
    }


def test_a_deleted_version_loses_its_tags(service: Models, database: Database) -> None:
    first, second = add(service, 1, tags=["gold"]), add(service, 2, tags=["candidate"])
    service.delete(LOCAL_CALLER, "prod@gold")
    with pytest.raises(UnknownModel, match=r"Its tags: latest, candidate\."):
        service.get(LOCAL_CALLER, "prod@gold")
    with pytest.raises(UnknownModel):
        service.get(LOCAL_CALLER, first)
    assert service.get(LOCAL_CALLER, "prod@candidate").id == second
    service.delete(LOCAL_CALLER, second)
    assert tag_count(database) == 0


def test_a_tag_of_a_version_that_is_being_deleted_waits_and_is_refused(
    service: Models, database: Database, others: ThreadPoolExecutor
) -> None:
    if database.embedded:
        return  # SQLite has one writer
    id = add(service, 1)
    with database.engine.begin() as connection:
        store.lock(connection, PLATFORM, id)
        tagging = others.submit(service.tag, LOCAL_CALLER, "prod", "gold", "1")
        with pytest.raises(TimeoutError):
            tagging.result(0.3)
        store.delete(connection, PLATFORM, id)
    with pytest.raises(UnknownModel):
        tagging.result(30)
    assert tag_count(database) == 0


def test_a_deletion_waits_for_the_tag_that_is_being_set_and_deletes_it(
    service: Models, database: Database, others: ThreadPoolExecutor
) -> None:
    if database.embedded:
        return  # SQLite has one writer
    id = add(service, 1)
    with database.engine.begin() as connection:
        assert store.hold_version(connection, PLATFORM, id)
        deletion = others.submit(service.delete, LOCAL_CALLER, id)
        with pytest.raises(TimeoutError):
            deletion.result(0.3)
        store.tags.put(connection, LOCAL_CALLER.scope, "prod", "gold", id)
    deletion.result(30)
    assert tag_count(database) == 0


def test_many_who_set_move_and_delete_the_same_tag_leave_it_at_a_version_or_without(
    service: Models, database: Database, others: ThreadPoolExecutor
) -> None:
    ids = [add(service, number) for number in range(4)]

    def churn(number: int) -> None:
        for step in range(10):
            service.tag(LOCAL_CALLER, "prod", "gold", str(number + 1))
            try:
                assert service.get(LOCAL_CALLER, "prod@gold").id in ids
                if step % 3 == 0:
                    service.untag(LOCAL_CALLER, "prod", "gold")
            except PlatformError as error:  # another thread has deleted the tag
                assert isinstance(error, UnknownModel | NotFound)

    for future in [others.submit(churn, number) for number in range(4)]:
        future.result(60)
    service.tag(LOCAL_CALLER, "prod", "gold", "2")
    assert tag_count(database) == 1 and service.get(LOCAL_CALLER, "prod@gold").id == ids[1]
