"""Audit log on both databases: an act and its entry are one transaction, and the log is read and forgotten by scope."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import NoReturn

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from core.domain.access.audit import AuditEntry, AuditFilter, AuditOutcome
from core.domain.access.scopes import DEFAULT_PROJECT, PLATFORM, Scope
from core.services.access.accounts import Accounts
from core.services.access.audit import Audit
from core.store import accounts as account_store
from core.store.audit import AuditRow
from core.store.database import Database
from core.store.recording import CURRENT_RECORDING, Recording
from tests.conftest import Clock

ACT = AuditEntry(act="create_user", user="ada", project=DEFAULT_PROJECT, subject="users", address="192.0.2.1")
DAY = 86_400.0


@pytest.fixture
def audit(database: Database) -> Iterator[Audit]:
    audit = Audit(database, retention=30 * DAY)
    yield audit
    audit.close()


@pytest.fixture
def recording() -> Iterator[Recording]:
    recording = Recording(lambda: ACT)
    token = CURRENT_RECORDING.set(recording)
    yield recording
    CURRENT_RECORDING.reset(token)


def rows(database: Database) -> list[tuple[str, str]]:
    with database.read() as c:
        return [(act, subject) for act, subject in c.execute(text("SELECT act, subject FROM audit ORDER BY id"))]


def add(database: Database, name: str) -> bool:
    values: dict[str, object] = {"state": "active", "created_by": "ada", "created_at": 1.0}
    return database.write(lambda c: account_store.add_user(c, name, values))


def users(database: Database) -> set[str]:
    with database.read() as c:
        return set(c.scalars(text("SELECT name FROM users")))


def test_the_transaction_of_an_act_has_its_entry(database: Database, recording: Recording) -> None:
    add(database, "bob")
    assert rows(database) == [("create_user", "users/bob")] and recording.written


def test_an_act_that_is_undone_has_no_entry(database: Database, recording: Recording) -> None:
    def fail(c: Connection) -> NoReturn:
        account_store.add_user(c, "bob", {"state": "active", "created_by": "ada", "created_at": 1.0})
        raise RuntimeError("the disk is on fire")

    with pytest.raises(RuntimeError):
        database.write(fail)
    assert rows(database) == [] and users(database) == set() and not recording.written
    add(database, "eve")
    assert rows(database) == [("create_user", "users/eve")]


def test_an_act_whose_entry_cannot_be_written_is_undone(database: Database, recording: Recording) -> None:
    database.write(lambda c: c.execute(text("ALTER TABLE audit RENAME TO elsewhere")), durable=False)
    with pytest.raises(DBAPIError):
        add(database, "bob")
    database.write(lambda c: c.execute(text("ALTER TABLE elsewhere RENAME TO audit")), durable=False)
    assert users(database) == set() and rows(database) == []


def test_each_transaction_of_a_request_is_recorded_once_for_each_subject(
    database: Database, recording: Recording
) -> None:
    for name in ("bob", "bob", "eve"):
        add(database, name)
    database.write(lambda c: c.execute(text("UPDATE users SET left_at = 2")))
    assert rows(database) == [("create_user", "users/bob"), ("create_user", "users/eve")]
    with database.read() as c:
        assert set(c.scalars(text("SELECT request FROM audit"))) == {recording.request}


def test_what_is_not_durable_or_of_no_request_is_not_recorded(database: Database, recording: Recording) -> None:
    database.write(lambda c: account_store.note_use(c, "x", "192.0.2.1", 1.0), durable=False)
    CURRENT_RECORDING.set(None)
    add(database, "bob")
    assert rows(database) == []


def page(audit: Audit, scope: Scope = PLATFORM, limit: int = 100, **asked: object) -> list[AuditRow]:
    return list(audit.page(scope, AuditFilter(**asked), after=None, limit=limit)[0])  # type: ignore[arg-type]


def test_entries_are_read_by_scope_and_filter(audit: Audit, database: Database, clock: Clock) -> None:
    Accounts(database)
    audit.observe(replace(ACT, project="red", subject="models/brake", outcome=AuditOutcome.REFUSED))
    audit.flush()
    clock.now += 10
    audit.observe(replace(ACT, project="blue", subject="models/brake_2", affected=("models/1",), credential="t1"))
    audit.flush()
    assert [row.project for row in page(audit)] == ["blue", "red"]
    assert [row.project for row in page(audit, Scope("red"))] == ["red"]
    assert page(audit, Scope("")) == []
    for asked, expected in (
        ({"outcome": AuditOutcome.REFUSED}, ["red"]),
        ({"subject": "models/brake"}, ["red"]),
        ({"subject": "models"}, ["blue", "red"]),
        ({"subject": "models/1"}, ["blue"]),
        ({"token": "t1"}, ["blue"]),
        ({"words": ("BRAKE", "create")}, ["blue", "red"]),
        ({"words": ("brake_2",)}, ["blue"]),
        ({"words": ("brake%",)}, []),
        ({"since": datetime.fromtimestamp(clock.now, UTC)}, ["blue"]),
        ({"until": datetime.fromtimestamp(clock.now, UTC)}, ["red"]),
    ):
        assert [row.project for row in page(audit, **asked)] == expected, asked  # type: ignore[arg-type]


def test_pages_and_the_export_have_every_entry_once(audit: Audit) -> None:
    for number in range(25):
        audit.observe(replace(ACT, subject=f"users/{number}"))
    seen: list[str] = []
    after: str | None = None
    while True:
        found, after = audit.page(PLATFORM, AuditFilter(), after=after, limit=7)
        seen += [row.shown_id for row in found]
        if after is None:
            break
    assert len(seen) == 25 and seen == sorted(set(seen), reverse=True)
    assert [row.shown_id for rows in audit.export(PLATFORM, AuditFilter()) for row in rows] == seen


def test_entries_that_an_earlier_version_has_numbered_are_paged_with_others(audit: Audit, database: Database) -> None:
    for number in range(6):
        audit.observe(replace(ACT, subject=f"users/{number}"))
        audit.flush()
    database.write(lambda c: c.execute(text("UPDATE audit SET entry=NULL WHERE id<=3")) and None)
    seen: list[str] = []
    after: str | None = None
    while True:
        found, after = audit.page(PLATFORM, AuditFilter(), after=after, limit=1)
        seen += [row.shown_id for row in found]
        if after is None:
            break
    assert len(set(seen)) == 6 and seen[3:] == [f"{number:026}" for number in (3, 2, 1)]


def test_no_id_says_how_much_other_projects_do(audit: Audit) -> None:
    for number, project in enumerate(("red", "blue", "blue", "red")):
        audit.observe(replace(ACT, project=project, subject=f"users/{number}"))
        audit.flush()
    assert [row.shown_id.isdecimal() for row in page(audit, Scope("red"))] == [False, False]


def test_a_cursor_of_another_project_leads_nowhere(audit: Audit) -> None:
    audit.observe(replace(ACT, project="red"))
    audit.observe(replace(ACT, project="blue"))
    newest = page(audit, Scope("blue"))[0].shown_id
    assert audit.page(Scope("red"), AuditFilter(), after=newest, limit=9) == ([], None)


def test_the_oldest_are_forgotten_in_batches(
    audit: Audit, database: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.services.access.audit.SWEPT", 3)
    for number in range(8):
        audit.observe(replace(ACT, subject=f"users/{number}"))
    audit.flush()
    clock.now += 31 * DAY
    audit.observe(replace(ACT, subject="users/new"))
    audit.flush()
    assert audit.sweep() == 8 and [row.subject for row in page(audit)] == ["users/new"]
    assert audit.sweep() == 0


def test_an_entry_is_written_by_itself_and_what_waits_at_the_end(database: Database) -> None:
    from tests.waiting import until

    audit = Audit(database, retention=DAY)
    audit.observe(ACT)
    until(lambda: len(rows(database)) == 1)
    audit.observe(ACT)
    audit.close()
    with database.read() as c:
        assert c.scalar(text("SELECT sum(times) FROM audit")) == 2
