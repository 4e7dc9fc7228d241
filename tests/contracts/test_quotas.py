"""Quotas on both databases: what is counted follows what there is, no race gives more, and workers are waited for."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from common.errors import PlatformError, QuotaExceeded
from core.domain.access.quotas import Quota
from core.domain.access.scopes import LOCAL_CALLER, Scope
from core.domain.scheduling.states import State
from core.services.access.quotas import GivenLimits, Quotas
from core.store import quotas as store
from core.store.database import Database
from tests.api.answers import MODEL
from tests.archives import tar
from tests.contracts.test_dispatcher import DispatcherRig, dispatcher_rig

ADA, BOB = replace(LOCAL_CALLER, user="ada"), replace(LOCAL_CALLER, user="bob")


@pytest.fixture
def rig(tmp_path: Path, database: Database) -> Iterator[DispatcherRig]:
    with dispatcher_rig(tmp_path, database) as rig:
        rig.platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
        yield rig


@pytest.fixture
def quotas(rig: DispatcherRig) -> Quotas:
    return rig.platform.access.quotas


def use(quotas: Quotas, user: str = "") -> Mapping[str, int | None]:
    uses = quotas.of_project(LOCAL_CALLER)
    if user:
        with quotas._database.read() as c:
            return {quota.value: used for quota, used in store.use(c, "default", user).items()}
    return {each.quota.value: each.used for each in uses}


def limit(quotas: Quotas, user: str = "", **limits: int) -> None:
    amounts = {Quota(name): amount for name, amount in limits.items()}
    if user:
        quotas._database.write(lambda c: store.set_limits(c, "default", user, amounts))
    else:
        quotas.limit_project(LOCAL_CALLER, GivenLimits(amounts, {}))


def submit_as(rig: DispatcherRig, caller: Any, **fields: Any) -> str:
    from core.domain.submissions.submission import Submission

    defaults = {"dataset": "noop", "runtime": "python", "model": "mine", "scenarios": {"range": [0, 40]}, "workers": 2}
    return rig.platform.submissions.simulations.submit(caller, Submission(**defaults | fields))[0].id


# -- what is counted


def test_what_waits_and_what_has_not_ended_is_counted_until_it_runs_and_ends(
    rig: DispatcherRig, quotas: Quotas
) -> None:
    size = use(quotas)["stored_bytes"]
    assert size == len(MODEL)
    id = rig.submit()
    assert use(quotas) == {"queued_simulations": 1, "tasks": 40, "stored_bytes": size, "running_workers": 0}
    _, launch = rig.launch(id)
    assert use(quotas)["queued_simulations"] == 1 and use(quotas)["running_workers"] == 2
    rig.play(launch)
    assert use(quotas)["queued_simulations"] == 0 and use(quotas)["tasks"] == 40
    rig.end(id)
    after = use(quotas)
    assert after["tasks"] == 0
    results = b"".join(rig.platform.analysis.results.lines(LOCAL_CALLER, id))
    assert after["stored_bytes"] == size + len(results)
    rig.platform.submissions.simulations.delete(LOCAL_CALLER, id)
    with pytest.raises(PlatformError):
        rig.platform.submissions.simulations.delete(LOCAL_CALLER, id)
    assert use(quotas)["stored_bytes"] == size


def test_a_simulation_that_is_queued_again_counts_again(rig: DispatcherRig, quotas: Quotas) -> None:
    limit(quotas, queued_simulations=1)
    id = rig.submit()
    executor, launch = rig.launch(id)
    rig.play(launch, 10)
    assert use(quotas)["queued_simulations"] == 0
    other = rig.submit()
    executor.end(launch.id)
    rig.until(lambda: rig.state(id) is not State.RUNNING)
    assert use(quotas)["queued_simulations"] == 2  # what has run is not refused
    with pytest.raises(QuotaExceeded):
        rig.submit()
    for each in (id, other):
        rig.platform.submissions.simulations.cancel(LOCAL_CALLER, each)
        rig.platform.jobs.finalization.collect(each)
    assert use(quotas)["queued_simulations"] == 0


def test_content_is_charged_once_to_a_project_and_to_each_user_who_has_it(rig: DispatcherRig, quotas: Quotas) -> None:
    models = rig.platform.files.models
    other = MODEL + b"# other\n"
    before = use(quotas)["stored_bytes"] or 0
    for caller, name in ((ADA, "one"), (ADA, "two"), (BOB, "three")):
        models.add(caller, (other,), filename="model.py", name=name)
    assert use(quotas)["stored_bytes"] == before + len(other)
    assert [use(quotas, user)["stored_bytes"] for user in ("ada", "bob")] == [len(other), len(other)]
    models.delete(LOCAL_CALLER, "one")
    assert use(quotas, "ada")["stored_bytes"] == len(other)
    models.delete(LOCAL_CALLER, "two")
    assert use(quotas, "ada")["stored_bytes"] == 0 and use(quotas)["stored_bytes"] == before + len(other)
    models.delete(LOCAL_CALLER, "three")
    assert use(quotas)["stored_bytes"] == before
    assert quotas.recount() == 0


def test_what_another_project_stores_changes_nothing(rig: DispatcherRig, quotas: Quotas) -> None:
    before = use(quotas)
    rig.platform.files.models.add(replace(LOCAL_CALLER, scope=Scope("blue")), (MODEL,), filename="model.py")
    assert use(quotas) == before
    with quotas._database.read() as c:
        assert store.use(c, "blue")[Quota.STORED_BYTES] == len(MODEL)


def test_parts_of_uploads_count_once_until_the_last_upload_that_has_them_is_deleted(
    rig: DispatcherRig, quotas: Quotas
) -> None:
    uploads = rig.platform.files.uploads
    before = use(quotas)["stored_bytes"] or 0
    parts = []
    for content in (b"first", b"second"):
        part = uploads.create(ADA, len(content), partial=True)
        uploads.append(ADA, part.id, 0, iter([content]))
        parts.append(part.id)
    assert use(quotas)["stored_bytes"] == use(quotas, "ada")["stored_bytes"] + before == before + 11  # type: ignore[operator]
    whole = uploads.concatenate(ADA, parts, "", "")
    for part_id in parts:
        uploads.delete(ADA, part_id)
    assert use(quotas)["stored_bytes"] == before + 11
    assert quotas.recount() == 0
    uploads.delete(ADA, whole.id)
    assert use(quotas)["stored_bytes"] == before
    assert quotas.recount() == 0


def test_a_dataset_is_charged_when_it_is_ready_and_fails_where_there_is_no_room(
    rig: DispatcherRig, quotas: Quotas
) -> None:
    platform = rig.platform

    def register(name: str, content: bytes) -> str:
        archive = tar({"a.txt": content})
        upload = platform.files.uploads.create(ADA, len(archive))
        platform.files.uploads.append(ADA, upload.id, 0, iter([archive]))
        id: str = platform.catalogue.datasets.register(ADA, name, {"upload": upload.id})["id"]
        platform.jobs.dataset_registration.register(id)
        platform.files.uploads.delete(ADA, upload.id)
        return id

    before = use(quotas)["stored_bytes"] or 0
    register("drives", b"alpha")
    assert use(quotas)["stored_bytes"] == before + 5 and use(quotas, "ada")["stored_bytes"] == 5
    register("second", b"alpha")
    assert use(quotas)["stored_bytes"] == before + 5
    limit(quotas, stored_bytes=before + 30_000)
    failed = platform.catalogue.datasets.get(ADA, register("large", bytes(40_000)))
    assert failed["state"] == "failed" and "stored_bytes" in str(failed["reason"])
    assert use(quotas)["stored_bytes"] == before + 5
    platform.catalogue.datasets.delete(LOCAL_CALLER, "second")
    platform.catalogue.datasets.delete(LOCAL_CALLER, "drives")
    assert use(quotas)["stored_bytes"] == before
    assert quotas.recount() == 0


def test_a_recount_finds_what_was_counted_and_mends_what_drifted(rig: DispatcherRig, quotas: Quotas) -> None:
    ended, running, queued = rig.submit(), rig.submit(), rig.submit()
    rig.play(rig.launch(ended)[1])
    rig.end(ended)
    rig.play(rig.launch(running)[1], 10)
    retried = rig.platform.submissions.simulations.retry(LOCAL_CALLER, ended, only_failed=False)[0].id
    rig.platform.submissions.simulations.cancel(LOCAL_CALLER, queued)
    rig.platform.files.models.add(ADA, (MODEL + b"#",), filename="model.py", name="more")
    assert rig.state(retried) is State.QUEUED
    before = use(quotas), use(quotas, "ada")
    assert quotas.recount() == 0 and quotas.last_drift() == 0
    quotas._database.write(lambda c: c.execute(text("UPDATE quota_use SET tasks=tasks+7 WHERE \"user\"=''")))
    assert quotas.recount() == 7 and quotas.last_drift() == 7
    assert (use(quotas), use(quotas, "ada")) == before
    quotas._database.write(lambda c: c.execute(text("UPDATE quota_use SET tasks=0, drift=-1 WHERE \"user\"=''")))
    assert quotas.recount() == 0, "what an earlier version has left is no drift"
    assert use(quotas) == before[0]


def test_a_recount_has_the_bytes_of_what_an_earlier_version_has_ended_and_registered(
    rig: DispatcherRig, quotas: Quotas
) -> None:
    ended = rig.submit()
    rig.play(rig.launch(ended)[1])
    rig.end(ended)
    archive = tar({"a.txt": b"alpha"})
    upload = rig.platform.files.uploads.create(LOCAL_CALLER, len(archive))
    rig.platform.files.uploads.append(LOCAL_CALLER, upload.id, 0, iter([archive]))
    version = rig.platform.catalogue.datasets.register(LOCAL_CALLER, "letters", {"upload": upload.id})["id"]
    rig.platform.jobs.dataset_registration.register(version)
    before = use(quotas)
    for table in ("simulations", "dataset_versions"):  # 0.2.0 knows neither column
        quotas._database.write(lambda c, table=table: c.execute(text(f"UPDATE {table} SET stored_bytes=0")))
    assert quotas.recount() == 0 and use(quotas) == before
    rig.platform.submissions.simulations.delete(LOCAL_CALLER, ended)
    rig.platform.catalogue.datasets.delete(LOCAL_CALLER, "letters@1")
    assert quotas.recount() == 0, "what was deleted is charged no longer"


def test_a_recount_leaves_files_free_that_stay_in_a_bucket(rig: DispatcherRig, quotas: Quotas) -> None:
    archive = tar({"a.txt": b"alpha"})
    upload = rig.platform.files.uploads.create(LOCAL_CALLER, len(archive))
    rig.platform.files.uploads.append(LOCAL_CALLER, upload.id, 0, iter([archive]))
    version = rig.platform.catalogue.datasets.register(LOCAL_CALLER, "letters", {"upload": upload.id})["id"]
    rig.platform.jobs.dataset_registration.register(version)
    counted = use(quotas)["stored_bytes"]

    def relocate(c: Any) -> None:
        c.execute(text("UPDATE dataset_versions SET stored_bytes=0, source=:s"), {"s": '{"s3": {"bucket": "mine"}}'})

    quotas._database.write(relocate)
    quotas.recount()
    assert use(quotas)["stored_bytes"] == (counted or 0) - len(b"alpha") and quotas.recount() == 0


def test_counts_are_mended_soon_after_an_upgrade_and_then_once_a_day(
    quotas: Quotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr("core.services.orphan_search.time.monotonic", lambda: now)

    def mended() -> bool:
        quotas._database.write(lambda c: c.execute(text("UPDATE quota_use SET tasks=3 WHERE \"user\"=''")))
        return quotas.sweep() == 3

    quotas.recount()  # what is found first is no drift
    assert mended() and not mended()
    now += 1_800.0  # processes of the earlier version have ended by now
    assert mended() and not mended()
    now += 80_000.0
    assert not mended()
    now += 6_400.0
    assert mended()


# -- refusals


def test_fifty_submissions_at_once_get_no_more_places_than_there_are(rig: DispatcherRig, quotas: Quotas) -> None:
    limit(quotas, queued_simulations=5)
    together = threading.Barrier(50)
    outcomes: list[str] = []

    def submit() -> None:
        together.wait()
        try:
            outcomes.append(rig.submit())
        except QuotaExceeded as error:
            outcomes.append("")
            assert error.members == {"quota": "queued_simulations", "limit": 5, "used": 5}

    threads = [threading.Thread(target=submit) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 50 and len([id for id in outcomes if id]) == 5
    assert use(quotas)["queued_simulations"] == 5 and quotas.recount() == 0


def test_a_refusal_counts_nothing_and_names_the_quota_and_who_can_raise_it(rig: DispatcherRig, quotas: Quotas) -> None:
    limit(quotas, tasks=100)
    rig.submit()
    rig.submit()
    with pytest.raises(QuotaExceeded, match=r"80 of at most 100 tasks.*40 more.*an operator") as refusal:
        rig.submit()
    assert refusal.value.members == {"quota": "tasks", "limit": 100, "used": 80}
    assert use(quotas)["queued_simulations"] == 2
    rig.submit(scenarios={"range": [0, 20]})


def test_a_user_has_a_limit_of_his_own_beside_that_of_the_project(rig: DispatcherRig, quotas: Quotas) -> None:
    limit(quotas, queued_simulations=3)
    limit(quotas, "ada", queued_simulations=1)
    submit_as(rig, ADA)
    with pytest.raises(QuotaExceeded, match=r"^ada in project default .*a maintainer"):
        submit_as(rig, ADA)
    submit_as(rig, BOB)
    submit_as(rig, BOB)
    with pytest.raises(QuotaExceeded, match=r"^Project default"):
        submit_as(rig, BOB)


def test_the_limits_of_every_project_hold_where_there_is_none_of_its_own(rig: DispatcherRig, quotas: Quotas) -> None:
    quotas.limit_every_project(GivenLimits({Quota.QUEUED_SIMULATIONS: 1, Quota.TASKS: 40}, {}))
    rig.submit()
    with pytest.raises(QuotaExceeded, match="queued_simulations"):
        rig.submit()
    limit(quotas, queued_simulations=2)
    with pytest.raises(QuotaExceeded, match="tasks"):
        rig.submit()


def test_bytes_beyond_a_limit_are_refused_and_leave_no_objects(rig: DispatcherRig, quotas: Quotas) -> None:
    files = rig.platform.files
    limit(quotas, stored_bytes=(use(quotas)["stored_bytes"] or 0) + 10)
    objects = set(rig.platform.store.list(""))
    with pytest.raises(QuotaExceeded):
        files.models.add(ADA, (MODEL + b"# and more",), filename="model.py", name="other")
    with pytest.raises(QuotaExceeded):
        files.uploads.create(ADA, 11)
    unknown = files.uploads.create(ADA, None)
    with pytest.raises(QuotaExceeded):
        files.uploads.append(ADA, unknown.id, 0, iter([b"eleven byte"]))
    assert set(rig.platform.store.list("")) == objects
    files.models.add(ADA, (MODEL,), filename="model.py", name="same")  # it is there already


def test_results_are_kept_beyond_the_limit_and_the_next_submission_is_refused(
    rig: DispatcherRig, quotas: Quotas
) -> None:
    limit(quotas, stored_bytes=(use(quotas)["stored_bytes"] or 0) + 1)
    id = rig.submit()
    rig.play(rig.launch(id)[1])
    rig.end(id)
    assert len(rig.results(id)) == 40
    with pytest.raises(QuotaExceeded, match="stored_bytes"):
        rig.submit()


# -- workers


def test_workers_beyond_a_limit_are_waited_for_with_that_reason(rig: DispatcherRig, quotas: Quotas) -> None:
    limit(quotas, running_workers=2)
    first, second = rig.submit(), rig.submit()
    _, launch = rig.launch(first)
    for _ in range(5):
        rig.dispatcher.step()
    waiting = rig.platform.submissions.simulations.get(LOCAL_CALLER, second)
    assert waiting.state is State.QUEUED and "running_workers" in (waiting.reason or "") and "2 of 2" in waiting.reason
    rig.play(launch)
    rig.end(first)
    rig.play(rig.launch(second)[1])
    rig.end(second)


def test_a_simulation_gets_the_workers_that_the_limit_leaves_and_more_once_it_is_raised(
    rig: DispatcherRig, quotas: Quotas
) -> None:
    limit(quotas, running_workers=1)
    executor, launch = rig.launch(rig.submit())
    assert launch.workers == 1
    rig.play(launch, 10)
    limit(quotas, running_workers=2)
    rig.until(lambda: executor.launches[launch.id].workers == 2)


def limit_resources(quotas: Quotas, **resources: int) -> None:
    quotas.limit_project(LOCAL_CALLER, GivenLimits({}, resources))


def test_resources_beyond_a_limit_are_waited_for_and_the_reason_says_who_raises_it(
    rig: DispatcherRig, quotas: Quotas
) -> None:
    limit_resources(quotas, cpu=3, memory=100_000_000_000)
    placement = {"cpu": 1.5, "memory": 1 << 30}
    first, second = (submit_as(rig, LOCAL_CALLER, placement=placement) for _ in range(2))
    _, launch = rig.launch(first)
    assert launch.workers == 2
    uses = {use.resource: (use.limit, use.used) for use in quotas.resources_of("default")}
    assert uses == {"cpu": (3, 3.0), "memory": (100_000_000_000, 2 << 30)}
    for _ in range(5):
        rig.dispatcher.step()
    waiting = rig.platform.submissions.simulations.get(LOCAL_CALLER, second)
    assert waiting.state is State.QUEUED and waiting.reason == (
        "waits for its quota `resources.cpu`: project default has 3 cores of 3 cores, it needs 1.5 cores;"
        " an operator of the platform can raise it"
    )
    rig.play(launch)
    rig.end(first)
    rig.play(rig.launch(second)[1])
    rig.end(second)


def test_fewer_workers_fit_into_a_limit_of_cores_and_more_once_it_is_raised(rig: DispatcherRig, quotas: Quotas) -> None:
    limit_resources(quotas, cpu=1)
    executor, launch = rig.launch(rig.submit())
    assert launch.workers == 1
    rig.play(launch, 10)
    limit_resources(quotas, cpu=2)
    rig.until(lambda: executor.launches[launch.id].workers == 2)


def test_a_simulation_whose_row_cannot_be_read_is_listed_beside_those_that_a_limit_holds(
    rig: DispatcherRig, quotas: Quotas
) -> None:
    limit(quotas, running_workers=0)
    unreadable, held = rig.submit(), rig.submit()
    quotas._database.write(lambda c: c.execute(text("UPDATE simulations SET spec='{' WHERE id=:i"), {"i": unreadable}))
    reasons = {each.id: each.reason or "" for each in rig.platform.submissions.simulations.list(LOCAL_CALLER)[0]}
    assert "running_workers" in reasons[held] and "running_workers" not in reasons[unreadable]


def test_a_project_at_its_limit_holds_no_other_back(rig: DispatcherRig, quotas: Quotas) -> None:
    blue = replace(LOCAL_CALLER, scope=Scope("blue"))
    rig.platform.files.models.add(blue, (MODEL,), filename="model.py", name="mine")
    limit(quotas, running_workers=2)
    rig.launch(rig.submit())
    rig.submit()
    rig.launch(submit_as(rig, blue))
