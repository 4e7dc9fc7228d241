"""Bin and rules on both databases: what is in the bin is nowhere else, comes back as it was, and is charged."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from common.errors import Conflict, NotFound, NotPermitted, UnknownDataset, UnknownModel, UnknownSimulation
from core.domain.access.quotas import Quota
from core.domain.access.scopes import LOCAL_CALLER, Caller, Scope
from core.domain.access.shared_kinds import SharedKind
from core.domain.retention.retention_rules import BinnedKind, Protection, Retention, RetentionRule
from core.services.due_jobs import DueJobs
from core.services.retention import project_retention as retention_service
from core.services.retention.bin import Bin
from core.services.retention.project_retention import ProjectRetention
from core.services.uploads.models import key_of
from core.store import references
from core.store.database import Connection, Database
from tests.api.answers import MODEL
from tests.contracts.test_dataset_versions import register
from tests.contracts.test_dispatcher import DispatcherRig, dispatcher_rig

BINNING = Retention(bin=True)
#: A rule that takes each simulation that has ended.
ALL = RetentionRule(kind=BinnedKind.SIMULATIONS, older_than=0)


@pytest.fixture
def rig(tmp_path: Path, database: Database) -> Iterator[DispatcherRig]:
    with dispatcher_rig(tmp_path, database) as rig:
        rig.platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine", tags=["gold"])
        rig.platform.files.retention.decide(LOCAL_CALLER, BINNING)
        yield rig


def ended(rig: DispatcherRig, **fields: Any) -> str:
    """Return a simulation that has ended, with results."""
    from core.domain.submissions.submission import Submission

    defaults = {"dataset": "noop", "runtime": "python", "model": "mine", "scenarios": {"range": [0, 8]}, "workers": 1}
    id = rig.platform.submissions.simulations.submit(LOCAL_CALLER, Submission(**defaults | fields))[0].id
    _, launch = rig.launch(id)
    rig.play(launch)
    rig.end(id)
    return id


def bin_of(rig: DispatcherRig) -> Bin:
    return rig.platform.files.bin


def rules_of(rig: DispatcherRig) -> ProjectRetention:
    return rig.platform.files.retention


def stored(rig: DispatcherRig) -> int | None:
    uses = rig.platform.access.quotas.of_project(LOCAL_CALLER)
    return next(use.used for use in uses if use.quota is Quota.STORED_BYTES)


def kept(rig: DispatcherRig) -> int:
    """Return the bytes that are charged, but for those of uploads."""
    with rig.platform.database.read() as c:
        uploads = int(c.scalar(text("SELECT coalesce(sum(bytes), 0) FROM upload_parts")) or 0)
    return (stored(rig) or 0) - uploads


def lines(rig: DispatcherRig, id: str) -> bytes:
    return b"".join(rig.platform.analysis.results.lines(LOCAL_CALLER, id))


def binned(rig: DispatcherRig) -> list[str]:
    return [item.id for item in bin_of(rig).page(LOCAL_CALLER)[0]]


def row(rig: DispatcherRig, id: str) -> Mapping[str, object]:
    with rig.platform.database.read() as c:
        found = c.execute(text("SELECT * FROM simulations WHERE id=:i"), {"i": id}).mappings().one()
        return {name: value for name, value in found.items() if name != "changed_at"}


# -- simulations


def test_a_simulation_in_the_bin_is_nowhere_is_charged_and_comes_back_as_it_was(rig: DispatcherRig) -> None:
    id = ended(rig)
    simulations, before = rig.platform.submissions.simulations, (row(rig, id), lines(rig, id), stored(rig))
    got = simulations.get(LOCAL_CALLER, id)
    simulations.delete(LOCAL_CALLER, id)
    with pytest.raises(UnknownSimulation):
        simulations.get(LOCAL_CALLER, id)
    with pytest.raises(UnknownSimulation):
        simulations.retry(LOCAL_CALLER, id, only_failed=False)
    with pytest.raises(UnknownSimulation):
        simulations.delete(LOCAL_CALLER, id)
    assert simulations.list(LOCAL_CALLER)[0] == [] and binned(rig) == [id]
    assert DueJobs(rig.platform.database).of("delete") == [], "its objects stay"
    assert stored(rig) == before[2] and rig.platform.access.quotas.recount() == 0
    rig.platform.jobs.deletion.remove(id)
    rig.platform.jobs.deletion.remove_orphans(grace=-1.0)
    bin_of(rig).restore(LOCAL_CALLER, id)
    assert (row(rig, id), lines(rig, id), stored(rig)) == before
    assert simulations.get(LOCAL_CALLER, id) == got and binned(rig) == []
    assert rig.platform.access.quotas.recount() == 0


def test_a_backup_has_the_objects_of_what_is_in_the_bin(rig: DispatcherRig) -> None:
    id = ended(rig)
    with rig.platform.database.read() as c:
        before = references.objects(c), references.models(c)
    rig.platform.submissions.simulations.delete(LOCAL_CALLER, id)
    rig.platform.files.models.delete(LOCAL_CALLER, "mine")
    with rig.platform.database.read() as c:
        assert (references.objects(c), references.models(c)) == before


def test_an_emptied_bin_gives_nothing_back_and_frees_what_it_had(rig: DispatcherRig) -> None:
    id, kept = ended(rig), ended(rig)
    simulations = rig.platform.submissions.simulations
    both = stored(rig) or 0
    for each in (id, kept):
        simulations.delete(LOCAL_CALLER, each)
    bin_of(rig).empty(LOCAL_CALLER, id)
    with pytest.raises(NotFound):
        bin_of(rig).restore(LOCAL_CALLER, id)
    with pytest.raises(NotFound):
        bin_of(rig).empty(LOCAL_CALLER, id)
    assert binned(rig) == [kept] and stored(rig) == both
    assert bin_of(rig).sweep() == 1 and bin_of(rig).sweep() == 0
    assert DueJobs(rig.platform.database).of("delete") == [id]
    rig.platform.jobs.deletion.remove(id)
    assert list(rig.platform.store.list(f"results/{id}/")) == [] and list(rig.platform.store.list(f"results/{kept}/"))
    assert (stored(rig) or 0) < both and rig.platform.access.quotas.recount() == 0
    bin_of(rig).empty(LOCAL_CALLER)
    bin_of(rig).sweep()
    rig.platform.jobs.deletion.remove(kept)
    assert stored(rig) == len(MODEL) and rig.platform.access.quotas.recount() == 0
    assert bin_of(rig).totals(LOCAL_CALLER) == (0, 0)


def test_what_has_been_in_the_bin_for_its_term_is_purged(rig: DispatcherRig) -> None:
    id = ended(rig)
    rig.platform.submissions.simulations.delete(LOCAL_CALLER, id)
    assert bin_of(rig).sweep() == 0
    over = Bin(rig.platform.database, rig.platform.notifier, rig.platform.files.models, term=-1.0)
    assert over.page(LOCAL_CALLER) == ([], None)
    with pytest.raises(NotFound):
        over.restore(LOCAL_CALLER, id)
    assert over.sweep() == 1 and DueJobs(rig.platform.database).of("delete") == [id]


def test_a_removal_that_an_earlier_version_has_begun_is_not_undone(rig: DispatcherRig) -> None:
    id = ended(rig)
    rig.platform.submissions.simulations.delete(LOCAL_CALLER, id)
    claiming = text("UPDATE simulations SET claim='old', claim_until=1.0 WHERE id=:i")
    rig.platform.database.write(lambda c: c.execute(claiming, {"i": id}).rowcount)
    with pytest.raises(Conflict):
        bin_of(rig).restore(LOCAL_CALLER, id)
    assert binned(rig) == [id]


def test_without_a_decision_what_is_deleted_is_gone_at_once(rig: DispatcherRig) -> None:
    id = ended(rig)
    rules_of(rig).decide(LOCAL_CALLER, Retention())
    rig.platform.submissions.simulations.delete(LOCAL_CALLER, id)
    assert binned(rig) == [] and stored(rig) == len(MODEL) and DueJobs(rig.platform.database).of("delete") == [id]


def test_the_bin_of_another_project_is_not_there_and_one_restores_what_one_may_change(rig: DispatcherRig) -> None:
    id = ended(rig)
    rig.platform.submissions.simulations.delete(LOCAL_CALLER, id)
    other = Caller(Scope("other"))
    assert bin_of(rig).page(other) == ([], None)
    for act in (bin_of(rig).restore, bin_of(rig).empty, bin_of(rig).purge):
        with pytest.raises(NotFound):
            act(other, id)
    submitter = replace(LOCAL_CALLER, user="ada", verbs=frozenset())
    with pytest.raises(NotPermitted):
        bin_of(rig).restore(submitter, id)
    assert binned(rig) == [id]


# -- models


def test_a_model_in_the_bin_is_nowhere_is_charged_and_comes_back_with_its_tags(rig: DispatcherRig) -> None:
    models = rig.platform.files.models
    before, size = models.get(LOCAL_CALLER, "mine"), stored(rig)
    models.delete(LOCAL_CALLER, "mine")
    for ref in ("mine", "mine@1", "mine@gold", before.id, before.digest):
        with pytest.raises(UnknownModel):
            models.get(LOCAL_CALLER, ref)
    assert stored(rig) == size and rig.platform.access.quotas.recount() == 0
    assert models.remove_orphans() == 0
    bin_of(rig).restore(LOCAL_CALLER, before.id)
    after = models.get(LOCAL_CALLER, "mine@gold")
    assert after == before and b"".join(models.content(after)) == MODEL
    assert stored(rig) == size and rig.platform.access.quotas.recount() == 0


def test_no_other_version_gets_the_number_of_one_in_the_bin_and_a_tag_that_was_taken_is_said(
    rig: DispatcherRig,
) -> None:
    models = rig.platform.files.models
    first = models.get(LOCAL_CALLER, "mine")
    models.delete(LOCAL_CALLER, "mine")
    again = models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine", tags=["gold"])
    assert again.version == 2 and stored(rig) == len(MODEL), "equal content is charged once"
    with pytest.raises(Conflict, match="gold"):
        bin_of(rig).restore(LOCAL_CALLER, first.id)
    models.untag(LOCAL_CALLER, "mine", "gold")
    bin_of(rig).restore(LOCAL_CALLER, first.id)
    assert models.get(LOCAL_CALLER, "mine@gold").version == 1 and models.get(LOCAL_CALLER, "mine").version == 2
    assert rig.platform.access.quotas.recount() == 0


def test_a_model_that_is_purged_leaves_no_bytes_unless_something_has_them(rig: DispatcherRig) -> None:
    models = rig.platform.files.models
    other = models.add(LOCAL_CALLER, (MODEL + b"#",), filename="model.py", name="other")
    other_copy = models.add(LOCAL_CALLER, (MODEL + b"#",), filename="model.py", name="copy")
    for id in (other.id, other_copy.id):
        models.delete(LOCAL_CALLER, id)
    bin_of(rig).purge(LOCAL_CALLER, other.id)
    assert stored(rig) == 2 * len(MODEL) + 1 and rig.platform.store.size(key_of(other_copy.digest))
    bin_of(rig).purge(LOCAL_CALLER, other_copy.id)
    assert stored(rig) == len(MODEL) and rig.platform.access.quotas.recount() == 0
    with pytest.raises(NotFound):
        rig.platform.store.size(key_of(other_copy.digest))


# -- datasets


def test_a_dataset_in_the_bin_is_nowhere_is_charged_and_comes_back_with_its_tags(rig: DispatcherRig) -> None:
    datasets, base = rig.platform.catalogue.datasets, kept(rig)
    for body in (b"1", b"22"):
        register(rig.platform, "drives", {"a": body * 100})
    datasets.tag(LOCAL_CALLER, "drives", "gold", "1")
    before, size = datasets.get(LOCAL_CALLER, "drives@gold"), kept(rig)
    assert size == base + 300
    datasets.delete(LOCAL_CALLER, "drives")
    for ref in ("drives", "drives@1", "drives@gold", before["id"], before["digest"]):
        with pytest.raises(UnknownDataset):
            datasets.get(LOCAL_CALLER, ref)
    garbage = rig.platform.catalogue.datasets.garbage
    assert garbage.collect(grace=-1.0) == 0 and garbage.remove_orphans(grace=-1.0) == 0
    assert kept(rig) == size and rig.platform.access.quotas.recount() == 0
    assert register(rig.platform, "drives", {"a": b"1" * 100})["version"] == "3" and kept(rig) == size
    assert {item.version for item in bin_of(rig).page(LOCAL_CALLER)[0]} == {1, 2}
    bin_of(rig).restore(LOCAL_CALLER, before["id"])
    assert datasets.get(LOCAL_CALLER, "drives@gold") == before
    assert rig.platform.access.quotas.recount() == 0
    bin_of(rig).empty(LOCAL_CALLER)
    assert bin_of(rig).sweep() == 1 and kept(rig) == base + 100
    assert garbage.collect(grace=-1.0) > 0 and rig.platform.access.quotas.recount() == 0


def test_a_dataset_whose_objects_an_earlier_version_removes_is_not_restored(rig: DispatcherRig) -> None:
    id = register(rig.platform, "drives", {"a": b"1"})["id"]
    rig.platform.catalogue.datasets.delete(LOCAL_CALLER, "drives")
    rig.platform.catalogue.datasets.garbage.purge(id)
    with pytest.raises(Conflict):
        bin_of(rig).restore(LOCAL_CALLER, id)


def test_a_rule_takes_the_old_versions_of_a_dataset(rig: DispatcherRig) -> None:
    for body in (b"1", b"22", b"333"):
        register(rig.platform, "drives", {"a": body})
    rig.platform.catalogue.datasets.tag(LOCAL_CALLER, "drives", "gold", "1")
    rule = RetentionRule(kind=BinnedKind.DATASETS, older_than=0, keep_last=1)
    said = preview(rig, rule)
    assert [v.thing.bytes for v in said.first] == [2] and said.spared == {Protection.TAGGED: 1}
    rules_of(rig).decide(LOCAL_CALLER, Retention(rules=(rule,)))
    assert rules_of(rig).apply() == 1 and rules_of(rig).apply() == 0
    assert [(item.kind, item.version) for item in bin_of(rig).page(LOCAL_CALLER)[0]] == [("datasets", 2)]
    assert rig.platform.access.quotas.recount() == 0


# -- rules


def preview(rig: DispatcherRig, *rules: RetentionRule) -> Any:
    return rules_of(rig).preview(LOCAL_CALLER, Retention(rules=rules))


def test_a_dry_run_says_what_the_pass_then_does_and_a_second_pass_does_nothing(rig: DispatcherRig) -> None:
    nightly = [ended(rig, labels={"branch": "nightly"}) for _ in range(3)]
    kept, other = ended(rig, labels={"branch": "nightly", "keep": ""}), ended(rig)
    running = rig.submit()
    rule = RetentionRule(kind=BinnedKind.SIMULATIONS, labels={"branch": "nightly"}, keep_last=2)
    said = preview(rig, rule)
    assert [verdict.thing.id for verdict in said.first] == [nightly[1], nightly[0]]
    assert said.spared == {} and binned(rig) == []
    said = preview(rig, ALL)
    assert {v.thing.id for v in said.first} == {*nightly, other} and said.spared[Protection.KEPT] == 1
    assert said.spared[Protection.UNENDED] == 1 and {v.thing.id for v in said.first_spared} == {kept, running}
    count, size = said.taken[BinnedKind.SIMULATIONS]
    assert count == 4 and size == sum(v.thing.bytes for v in said.first) > 0
    rules_of(rig).decide(LOCAL_CALLER, Retention(rules=(ALL,)))
    before = stored(rig)
    assert rules_of(rig).apply() == 4 and rules_of(rig).apply() == 0
    assert sorted(binned(rig)) == sorted([*nightly, other]) and stored(rig) == before
    [item, *_] = bin_of(rig).page(LOCAL_CALLER)[0]
    assert item.rule == "simulations: older than 0d" and item.binned_by == ""
    with rig.platform.database.read() as c:
        noted = c.execute(text("SELECT subject FROM audit WHERE act='apply_retention'")).scalars().all()
    assert sorted(noted) == sorted(f"simulations/{id}" for id in [*nightly, other])


def test_a_pass_that_is_killed_is_gone_on_with_by_the_next(rig: DispatcherRig, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [ended(rig) for _ in range(3)]
    rules_of(rig).decide(LOCAL_CALLER, Retention(rules=(ALL,)))
    monkeypatch.setattr(retention_service, "BATCH", 1)
    database, writes = rig.platform.database, 0
    whole = database.write

    class Killed(BaseException):
        pass

    def dying(work: Any, **options: Any) -> Any:
        nonlocal writes
        writes += 1

        def half(c: Connection) -> Any:
            result = work(c)
            if writes == 2:
                raise Killed  # before the commit
            return result

        return whole(half, **options)

    with monkeypatch.context() as patched:
        patched.setattr(database, "write", dying)
        with pytest.raises(Killed):
            rules_of(rig).apply()
    assert len(binned(rig)) == 1
    assert rules_of(rig).apply() == 2 and sorted(binned(rig)) == sorted(ids)
    assert rig.platform.access.quotas.recount() == 0


def test_what_changes_between_the_look_and_the_act_is_spared(
    rig: DispatcherRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [ended(rig), ended(rig)]
    rules_of(rig).decide(LOCAL_CALLER, Retention(rules=(ALL,)))
    database, whole = rig.platform.database, rig.platform.database.write
    shares = rig.platform.access.shares

    def late(work: Any, **options: Any) -> Any:
        monkeypatch.setattr(database, "write", whole)
        rig.platform.access.accounts.create_project(LOCAL_CALLER, "reader")
        shares.share(LOCAL_CALLER, SharedKind.SIMULATIONS, ids[0], "reader")
        return whole(work, **options)

    monkeypatch.setattr(database, "write", late)
    assert rules_of(rig).apply() == 1 and binned(rig) == [ids[1]]


def test_what_cannot_be_read_stays_and_keeps_no_rule_from_the_rest(rig: DispatcherRig) -> None:
    broken, other = ended(rig), ended(rig)
    rig.platform.database.write(
        lambda c: c.execute(text("UPDATE simulations SET labels='[' WHERE id=:i"), {"i": broken}).rowcount
    )
    rules_of(rig).decide(LOCAL_CALLER, Retention(rules=(ALL,)))
    rig.platform.database.write(
        lambda c: c.execute(text("INSERT INTO retention (project, document) VALUES ('another', '{')")).rowcount
    )
    assert preview(rig, ALL).spared == {Protection.UNREADABLE: 1}
    assert rules_of(rig).apply() == 1 and binned(rig) == [other]


def test_a_model_is_taken_when_it_is_unused_untagged_and_not_needed(rig: DispatcherRig) -> None:
    models = rig.platform.files.models
    for number in range(4):
        models.add(LOCAL_CALLER, (MODEL + b"#" * number,), filename="model.py", name="trained")
    rule = RetentionRule(kind=BinnedKind.MODELS, older_than=0, keep_last=2)
    assert [verdict.thing.name for verdict in preview(rig, rule).first] == ["trained"] * 2
    everything = RetentionRule(kind=BinnedKind.MODELS, older_than=0)
    assert preview(rig, everything).spared == {Protection.TAGGED: 1}
    id = ended(rig, model="trained@2")
    unused = RetentionRule(kind=BinnedKind.MODELS, unused_for=1000)
    old = text("UPDATE models SET created_at=1.0")
    rig.platform.database.write(lambda c: c.execute(old).rowcount)
    digest = models.get(LOCAL_CALLER, "trained@2").digest
    assert len(preview(rig, unused).first) == 3
    rules_of(rig).decide(LOCAL_CALLER, Retention())
    rig.platform.submissions.simulations.delete(LOCAL_CALLER, id)
    rig.platform.jobs.deletion.remove(id)
    assert len(preview(rig, unused).first) == 3, "the use is known though its simulation is gone"
    rig.submit(model="trained@3")
    assert preview(rig, everything).spared == {Protection.TAGGED: 1, Protection.NEEDED: 1}
    rules_of(rig).decide(LOCAL_CALLER, Retention(rules=(unused,)))
    assert rules_of(rig).apply() == 2 and models.get(LOCAL_CALLER, "trained@2").digest == digest
