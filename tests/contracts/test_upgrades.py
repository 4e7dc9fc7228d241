"""Upgrade of a database of every earlier schema with work in progress: everything goes on, and nothing is lost.

The rows are written by the current version, then inserted into a database of the earlier schema under the names that
columns had there, without tables and columns that came later.
"""

import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData, select, text

from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.states import State
from core.store import migrate as migration
from core.store.database import Database
from core.store.tables import metadata, scheduling_changes
from tests.api.answers import MODEL
from tests.archives import tar
from tests.contracts.test_dispatcher import DispatcherRig, dispatcher_rig
from tests.databases import postgres_url, sqlite_database

VERSIONS = Path(migration.__file__).parent / "migrations" / "versions"
FILES = {path.name.partition("_")[0]: path for path in sorted(VERSIONS.glob("0*.py"))}
#: Schema of the release that system/test_release_upgrades.py upgrades.
RELEASED = "0017"
FILE = {"a.txt": b"alpha"}


def renamed() -> Mapping[tuple[str, str], str]:
    """Return the names of columns before the revision 0005, by table and present name."""
    spec = importlib.util.spec_from_file_location("plain_words", FILES["0005"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {(table, new): old for table, old, new in module.RENAMED}


def work_in_progress(rig: DispatcherRig) -> dict[str, str]:
    """Leave work in each state; return the ids by kind."""
    platform = rig.platform
    ids: dict[str, str] = {}
    ids["ended"] = rig.submit()
    rig.play(rig.launch(ids["ended"])[1])
    rig.end(ids["ended"])
    ids["cancelled"] = rig.submit()
    rig.play(rig.launch(ids["cancelled"])[1], 10)
    platform.submissions.simulations.cancel(LOCAL_CALLER, ids["cancelled"])
    platform.jobs.finalization.collect(ids["cancelled"])
    platform.files.models.tag(LOCAL_CALLER, "mine", "gold", "1")
    ids["done"] = rig.submit()
    rig.play(rig.launch(ids["done"])[1])  # all results are there, and the job that collects them has not run
    ids["running"] = rig.submit()
    rig.play(rig.launch(ids["running"])[1], 10)
    ids["staging"], ids["queued"] = rig.submit(), rig.submit()
    upload = platform.files.uploads.create(LOCAL_CALLER, 8)
    platform.files.uploads.append(LOCAL_CALLER, upload.id, 0, iter([b"half"]))
    ids["upload"] = upload.id
    for name, state in (("registered", "ready"), ("registering", "registering")):
        archive = tar(FILE)
        whole = platform.files.uploads.create(LOCAL_CALLER, len(archive))
        platform.files.uploads.append(LOCAL_CALLER, whole.id, 0, iter([archive]))
        ids[name] = platform.catalogue.datasets.register(LOCAL_CALLER, name, {"upload": whole.id})["id"]
        if state == "ready":
            platform.jobs.dataset_registration.register(ids[name])

    def interrupt(c: Any) -> None:
        """Write what killed jobs leave: their claims."""
        c.execute(
            text("UPDATE simulations SET claim='dead', claim_until=0, state='staging' WHERE id=:i"),
            {"i": ids["staging"]},
        )
        c.execute(
            text("UPDATE dataset_versions SET claim='dead', claim_until=0, attempts=1 WHERE id=:i"),
            {"i": ids["registering"]},
        )

    platform.database.write(interrupt)
    return ids


def copy_rows(source: Database, target: Database) -> None:
    """Insert the rows of the current schema into an earlier schema; what the earlier one cannot hold is left out."""
    former = renamed()
    earlier = MetaData()
    with target.engine.begin() as writer, source.read() as reader:
        earlier.reflect(writer)
        for table in metadata.sorted_tables:
            if table.name not in earlier.tables or table is scheduling_changes:
                continue  # PostgreSQL's sequence would give the numbers of the copied entries again
            into = earlier.tables[table.name]
            names = {
                column.name: name
                for column in table.c
                for name in (column.name, former.get((table.name, column.name), ""))
                if name in into.c
            }
            rows = [{names[name]: row[name] for name in names} for row in reader.execute(select(table)).mappings()]
            if rows:
                writer.execute(into.delete())  # the migration to it may have written the same
                writer.execute(into.insert(), rows)
        # Earlier versions wrote the end of a cancelled simulation before its summary.
        writer.execute(text("UPDATE simulations SET summary=NULL WHERE state='cancelled'"))


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
@pytest.mark.parametrize("revision", [revision for revision in FILES if revision != RELEASED])
def test_work_of_an_earlier_schema_goes_on_after_the_upgrade(
    revision: str, engine: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.dispatcher.GRACE", 0.2)  # the launches of before have vanished
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    with dispatcher_rig(before, sqlite_database(before / "platform.db")) as rig:
        rig.platform.files.models.add(LOCAL_CALLER, (MODEL,), filename="model.py", name="mine")
        ids = work_in_progress(rig)
        expected = {
            id: rig.platform.submissions.simulations.get(LOCAL_CALLER, id).state
            for id in (ids["ended"], ids["cancelled"])
        }
        url = f"sqlite:///{before / 'earlier.db'}"
        if engine == "postgresql":
            server = request.getfixturevalue("postgres")
            url = postgres_url(server, request.node.nodeid, migrated=False)
        earlier = Database(url)
        migration.migrate(earlier, revision)
        copy_rows(rig.platform.database, earlier)
        shutil.copytree(before / "objects", after / "objects")
    migration.migrate(earlier)
    with dispatcher_rig(after, earlier) as upgraded:
        platform = upgraded.platform
        upgraded.end(ids["done"])
        for kind in ("running", "staging", "queued"):
            _, launch = upgraded.launch(ids[kind])
            upgraded.play(launch)
            upgraded.end(ids[kind])
        for kind in ("ended", "done", "running", "staging", "queued"):
            assert sorted(line["task"] for line in upgraded.results(ids[kind])) == list(range(40)), kind
        for id, state in expected.items():
            platform.jobs.finalization.collect(id)
            assert platform.submissions.simulations.get(LOCAL_CALLER, id).state is state
            assert platform.submissions.simulations.summary(LOCAL_CALLER, id)["tasks"]["total"] == 40
        assert upgraded.state(ids["cancelled"]) is State.CANCELLED
        assert platform.files.models.get(LOCAL_CALLER, "mine").size == len(MODEL)
        assert platform.files.models.tag(LOCAL_CALLER, "mine", "stable", "1").tags == (
            ["gold", "stable"] if revision >= "0014" else ["stable"]
        )
        if revision >= "0002":
            platform.files.uploads.append(LOCAL_CALLER, ids["upload"], 4, iter([b"done"]))
            assert platform.files.uploads.read(LOCAL_CALLER, ids["upload"], 0, 8) == b"halfdone"
        if revision >= "0003":
            platform.jobs.dataset_registration.register(ids["registering"])
            for name in ("registered", "registering"):
                assert b"".join(platform.catalogue.datasets.file(LOCAL_CALLER, name, "a.txt").read(0, 5)) == b"alpha"
