"""Audit entries: what an address names, which entries a transaction has, and a buffer that nobody fills."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.access import audit_buffer
from core.domain.access.audit import MOST_AFFECTED_SUBJECTS, AuditEntry, AuditOutcome, entries_of, subject_of
from core.domain.access.audit_buffer import INTERVAL, AuditBuffer
from core.domain.access.credentials import INVITATION_PREFIX, PREFIX, SESSION_PREFIX, new_credential

COLLECTION = AuditEntry(act="create_simulation", user="ada", subject="simulations")
ONE = AuditEntry(act="cancel_simulation", user="ada", subject="simulations/1")
NOBODY = AuditEntry(act="authenticate", outcome=AuditOutcome.REFUSED, problem="unauthorized")
subjects = st.lists(st.sampled_from(["simulations/1", "simulations/2", "models/1", "tokens/1"]), max_size=6)


@pytest.mark.parametrize(
    ("rule", "path", "subject"),
    [
        ("/v1/simulations", "/v1/simulations", "simulations"),
        ("/v1/simulations/cancel", "/v1/simulations/cancel", "simulations"),
        ("/v1/simulations/<id:id>", "/v1/simulations/1", "simulations/1"),
        ("/v1/simulations/<id:id>/cancel", "/v1/simulations/1/cancel", "simulations/1"),
        (
            "/v1/datasets/<ref:dataset>/files/<path:file>",
            "/v1/datasets/a@1/files/b/c.txt",
            "datasets/a@1/files/b/c.txt",
        ),
        ("/v1/projects/<name:project>/tokens", "/v1/projects/red/tokens", "projects/red"),
        ("/1.0/simulation/tests", "/1.0/simulation/tests", "simulation"),
        ("/healthz", "/healthz", ""),
    ],
)
def test_a_subject_is_what_the_address_names(rule: str, path: str, subject: str) -> None:
    assert subject_of(rule, path) == subject


@pytest.mark.parametrize("prefix", [PREFIX, SESSION_PREFIX, INVITATION_PREFIX])
def test_a_credential_in_an_address_is_not_in_its_subject(prefix: str) -> None:
    secret = new_credential(prefix)
    subject = subject_of("/v1/models/<ref:model>", f"/v1/models/{secret}")
    assert secret[len(prefix) :] not in subject and subject.startswith("models/wt_")


@given(subjects, st.frozensets(st.sampled_from(["simulations/1", "models/1"])))
def test_the_first_transaction_has_an_entry_and_each_subject_is_named_once(
    noted: list[str], before: frozenset[str]
) -> None:
    for act in (COLLECTION, ONE):
        first = entries_of(act, noted, before, first=True)
        later = entries_of(act, noted, before, first=False)
        named = [subject for entry in first for subject in (entry.subject, *entry.affected)]
        assert first and len(named) == len(set(named))
        assert set(noted) - before <= set(named)
        assert bool(later) == bool(set(noted) - before - {act.subject})
        assert not later or later == first


def test_a_subject_of_the_address_stays_the_subject_and_the_list_is_bounded() -> None:
    [entry] = entries_of(ONE, [f"simulations/{number}" for number in range(200)], set(), first=True)
    assert entry.subject == "simulations/1" and len(entry.affected) == MOST_AFFECTED_SUBJECTS


def test_the_first_of_equal_entries_is_due_at_once_and_the_others_once_in_an_interval() -> None:
    buffer = AuditBuffer()
    buffer.add(ONE)
    assert buffer.due(0.0) == [(ONE, 1)]
    for _ in range(9):
        buffer.add(ONE)
    assert buffer.due(INTERVAL - 1) == []
    assert buffer.due(INTERVAL) == [(ONE, 9)]
    assert buffer.due(INTERVAL + 1) == [] and len(buffer) == 1
    assert buffer.due(2 * INTERVAL) == [] and len(buffer) == 0


def test_at_the_end_every_entry_is_due() -> None:
    buffer = AuditBuffer()
    buffer.add(ONE)
    buffer.due(0.0)
    buffer.add(ONE, 3)
    assert buffer.due(1.0, every=True) == [(ONE, 3)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 400)), max_size=600))
def test_the_buffer_is_bounded_and_loses_no_count(tries: list[tuple[bool, int]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(audit_buffer, "MOST_ENTRIES", 50)
        patched.setattr(audit_buffer, "MOST_ANONYMOUS_ENTRIES", 10)
        buffer = AuditBuffer()
        for known, number in tries:
            base = ONE if known else NOBODY
            buffer.add(replace(base, address=f"192.0.2.{number}"))
        assert len(buffer) <= 52
        assert sum(times for _, times in buffer.due(0.0)) == len(tries)


def test_who_is_known_keeps_a_place_when_attackers_fill_theirs() -> None:
    buffer = AuditBuffer()
    for number in range(10_000):
        buffer.add(replace(NOBODY, address=f"2001:db8::{number:x}"))
    buffer.add(ONE)
    due = dict(buffer.due(0.0))
    assert due[ONE] == 1 and len(due) <= audit_buffer.MOST_ANONYMOUS_ENTRIES + 2
    assert sum(due.values()) == 10_001
