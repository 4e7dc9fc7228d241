"""Contract of lists of simulations, on each engine: pages and counts are those of a plain filter over all rows."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert, text

from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.states import State
from core.domain.submissions.listing import CUT, LONGEST, NO_COMPARISON, Listing, search_text, words_of
from core.store import listing, simulations
from core.store.database import Connection, Database
from core.store.migrate import migrate
from core.store.tables import LISTED_ROWS, comparison_simulations, events, scheduling_changes, stages
from core.store.tables import simulations as table
from tests.databases import postgres_url

DIGESTS = [f"sha256:{number:064x}" for number in range(3)]
NAMES = ("street", "Street-2", "noop")
VALUES = ("main", "Main", "a%b_c", 'q"uote', "back\\slash", "[*?]^", "ähre", "", "main ")
WORDS = ("STREET", "main", "team=", "a%b", "01k", "01k" + "0" * 22, "0", "ÄHRE", "nothing", '"', "[*", "?", "*")
ROW = {"project": "default", "spec": "{}", "provenance": "{}", "created_at": 0.0}


@dataclass(frozen=True)
class Listed:
    """A row, its labels, and the comparison whose batch it is."""

    row: Mapping[str, Any]
    labels: Mapping[str, str]
    comparison: str | None = None

    def meets(self, filters: Listing) -> bool:
        """Return whether the row is in a listing, by comparison of its members."""
        row = self.row
        columns = {"model_digest": "digest"}
        equal = all(
            wanted is None or row[columns.get(name, name)] == wanted
            for name in ("dataset", "dataset_version", "dataset_digest", "runtime", "model", "model_digest")
            for wanted in (getattr(filters, name),)
        )
        names = [row[name] for name in ("model", "dataset", "runtime")]
        lines = [line.casefold() for line in (*names, *(f"{name}={value}" for name, value in self.labels.items()))]
        return (
            equal
            and filters.submitted_by in (None, row["submitted_by"])
            and filters.comparison in (None, self.comparison or NO_COMPARISON)
            and (not filters.states or row["state"] in filters.states)
            and all(self.labels.get(name) == value for name, value in filters.labels)
            and all(row["id"].startswith(word) or any(word in line for line in lines) for word in filters.words)
            and row["deleted_at"] is None
            and row["dry_run"] == 0
        )


@st.composite
def listed_simulations(draw: st.DrawFn, number: int) -> Listed:
    labels = draw(st.dictionaries(st.sampled_from(("branch", "Team", "env")), st.sampled_from(VALUES), max_size=3))
    row = {
        **ROW,
        "id": f"01k{number:023d}",
        "state": draw(st.sampled_from(list(State))).value,
        "dataset": draw(st.sampled_from(NAMES)),
        "dataset_version": draw(st.sampled_from(("1", "2"))),
        "dataset_digest": draw(st.sampled_from(DIGESTS)),
        "runtime": draw(st.sampled_from(("python", "onnx", ""))),
        "model": draw(st.sampled_from(("mine", "Yours"))),
        "digest": draw(st.sampled_from(DIGESTS)),
        "labels": json.dumps(labels, sort_keys=True, separators=(",", ":"), ensure_ascii=False),
        "submitted_by": draw(st.sampled_from(("", "10.0.0.1", "2001:db8::/64"))),
        "deleted_at": draw(st.sampled_from((None, None, None, 1.0))),
        "dry_run": draw(st.sampled_from((0, 0, 0, 1))),
        "summary": "{}",
    }
    return Listed(row, labels, draw(maybe(("k1", "k2"))))


def maybe(values: Sequence[str]) -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from(values)


LISTINGS = st.builds(
    Listing,
    states=st.lists(st.sampled_from(list(State)), max_size=3, unique=True).map(tuple),
    dataset=maybe(NAMES),
    dataset_version=maybe(("1", "3")),
    dataset_digest=maybe(DIGESTS),
    runtime=maybe(("python", "onnx")),
    model=maybe(("mine", "yours")),
    model_digest=maybe(DIGESTS),
    submitted_by=maybe(("10.0.0.1", "10.0.0.2")),
    comparison=maybe(("k1", "k2", NO_COMPARISON)),
    labels=st.lists(st.tuples(st.sampled_from(("branch", "team")), st.sampled_from(VALUES)), max_size=1).map(tuple),
    words=st.lists(
        st.sampled_from(
            ("STREET", "main", "team=", "a%b", "01k", "01k" + "0" * 22, "0", "ÄHRE", "nothing", '"', "[*", "?", "*")
        ),
        max_size=2,
    ).map(lambda words: words_of(" ".join(words))),
)
#: Listings with few conditions are as frequent as those with many.
SPARSE = st.tuples(LISTINGS, st.sets(st.sampled_from([*Listing.__dataclass_fields__]))).map(
    lambda drawn: replace(drawn[0], **{name: getattr(Listing(), name) for name in drawn[1]})
)


def store(database: Database, rows: Sequence[Listed]) -> None:
    """Replace all simulations."""

    def write(c: Connection) -> None:
        for old in (table, stages, events, scheduling_changes, comparison_simulations):
            c.execute(delete(old))
        for number, listed in enumerate(rows):
            id = listed.row["id"]
            stage = {"id": f"{id}.0", "simulation_id": id, "ordinal": 0, "total": 1, "state": "open"}
            simulations.add(c, listed.row, stage)
            if listed.comparison is not None:
                batch = {"comparison_id": listed.comparison, "ordinal": 0, "batch": number, "simulation_id": id}
                c.execute(insert(comparison_simulations), batch)

    database.write(write)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(drawn=st.data())
def test_pages_and_counts_are_those_of_a_plain_filter(database: Database, drawn: st.DataObject) -> None:
    rows = [drawn.draw(listed_simulations(number)) for number in range(drawn.draw(st.integers(0, 12)))]
    store(database, rows)
    for _ in range(8):
        filters = drawn.draw(SPARSE)
        limit = drawn.draw(st.integers(1, 4))
        expected = [listed.row["id"] for listed in reversed(rows) if listed.meets(filters)]
        ids: list[str] = []
        with database.read() as c:
            while page := listing.page(c, LOCAL_CALLER.scope, filters, after=ids[-1] if ids else None, limit=limit):
                assert len(page) <= limit
                ids += [row.id for row in page]
            counts = listing.counts(c, LOCAL_CALLER.scope, filters)
        assert ids == expected
        in_any_state = replace(filters, states=())
        assert counts == Counter(State(listed.row["state"]) for listed in rows if listed.meets(in_any_state))


def test_a_label_beyond_the_longest_search_text_is_still_compared_exactly(database: Database) -> None:
    labels = {f"name-{number:02d}": "x" * 200 for number in range(31)} | {"zone": "Here"}
    row = {**ROW, "id": "01k", "state": "queued", "dataset": "noop", "runtime": "python", "model": "mine"}
    row |= {"digest": "d", "labels": json.dumps(labels, separators=(",", ":"))}
    store(database, [Listed(row, labels)])
    with database.read() as c:
        for value, number in (("Here", 1), ("here", 0), ("Her", 0)):
            assert (
                len(listing.page_ids(c, LOCAL_CALLER.scope, Listing(labels=(("zone", value),)), after=None, limit=9))
                == number
            )
        search = c.execute(text("SELECT search FROM simulations")).scalar_one()
    assert search.startswith(CUT) and len(search.encode()) <= LONGEST


@given(st.text(max_size=2000), st.dictionaries(st.text(max_size=64), st.text(max_size=300), max_size=32))
def test_a_search_text_fits_an_entry_of_an_index(model: str, labels: dict[str, str]) -> None:
    assert len(search_text(model, "d", "r", labels).encode()) <= LONGEST


@pytest.fixture
def many(database: Database) -> Database:
    """A database with simulations of which the oldest alone is rare."""
    rows = []
    for number in range(2000):
        row = {**ROW, "id": f"01k{number:023d}", "state": "succeeded", "dataset": "noop", "runtime": "python"}
        row |= {"model": "mine" if number else "rare", "digest": DIGESTS[0], "dataset_digest": DIGESTS[1]}
        row |= {"spec": "x" * 500, "provenance": "y" * 1000, "summary": "z" * 9000, "dataset_version": "1"}
        rows.append(Listed({**row, "submitted_by": "10.0.0.1", "labels": '{"branch":"main"}'}, {"branch": "main"}))
    store(database, rows)
    return database


#: Filters that match nearly nothing, and the index that each reads.
SELECTIVE: Sequence[tuple[Listing, str]] = (
    (Listing(model="rare"), "simulations_model"),
    (Listing(model="rare", states=(State.SUCCEEDED, State.FAILED)), "simulations_model"),
    (Listing(dataset="nothing"), "simulations_dataset"),
    (Listing(dataset_digest=DIGESTS[2]), "simulations_dataset_digest"),
    (Listing(model_digest=DIGESTS[2]), "simulations_digest"),
    (Listing(runtime="nothing"), "simulations_runtime"),
    (Listing(submitted_by="nobody"), "simulations_submitted_by"),
    (Listing(words=("nothing",)), "simulations_listed"),
    (Listing(labels=(("branch", "nothing"),)), "simulations_listed"),
    (Listing(dataset="noop", dataset_version="2"), "simulations_listed"),
    (Listing(comparison="k1"), "simulations_listed"),
    (Listing(comparison=NO_COMPARISON, model="rare"), "simulations_model"),
    (Listing(states=(State.SUCCEEDED,), model="mine", model_digest=DIGESTS[2]), "simulations_listed"),
)


def test_filters_that_match_nearly_nothing_read_an_index_and_no_row(
    many: Database, plan_of: Callable[[Database, Callable[[Connection], Any]], str]
) -> None:
    others = {}
    for filters, index in SELECTIVE:

        def read(c: Connection, filters: Listing = filters) -> None:
            assert len(listing.page_ids(c, LOCAL_CALLER.scope, filters, after=None, limit=51)) == (
                filters.model == "rare"
            )
            listing.counts(c, LOCAL_CALLER.scope, filters)

        plan = plan_of(many, read)
        # PostgreSQL may have another plan for as few rows as these.
        if many.embedded or index != "simulations_listed":
            if index not in plan or "SCAN simulations\n" in plan:
                others[filters] = plan
    assert others == {}


@pytest.fixture
def plan_of() -> Iterator[Callable[[Database, Callable[[Connection], Any]], str]]:
    """Function that returns the plans of the queries which a function runs, as text."""
    from sqlalchemy import event

    def plans(database: Database, read: Callable[[Connection], Any]) -> str:
        queries: list[tuple[str, Any]] = []

        def record(_: Any, __: Any, query: str, values: Any, *___: Any) -> None:
            queries.append((query, values))

        if not database.embedded:
            database.write(lambda c: c.execute(text("ANALYZE simulations")) and None)
        with database.read() as c:
            event.listen(c, "before_cursor_execute", record)
            read(c)
            event.remove(c, "before_cursor_execute", record)
            explain = "EXPLAIN QUERY PLAN " if c.dialect.name == "sqlite" else "EXPLAIN "
            return "\n".join(
                str(row[-1]) for query, values in queries for row in c.exec_driver_sql(explain + query, values)
            )

    yield plans


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_simulations_of_an_earlier_version_are_listed_and_found_after_the_migration(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'windtunnel.db'}"
    if engine == "postgresql":
        url = postgres_url(request.getfixturevalue("postgres"), request.node.nodeid, migrated=False)
    database = Database(url)
    migrate(database, "0011")
    dataset = {"name": "noop", "version": "7", "digest": DIGESTS[1]}
    insert = text(
        "INSERT INTO simulations(id, project, state, spec, provenance, dataset, runtime, model, digest, labels,"
        " created_at) VALUES(:id, 'default', 'queued', '{}', :provenance, 'noop', 'python', 'Mine', 'd', :labels, 0)"
    )
    values = [
        {"id": f"01k{number:023d}", "provenance": json.dumps({"dataset": dataset}), "labels": f'{{"n":"v{number}"}}'}
        for number in range(2500)
    ]
    with database.engine.begin() as c:
        c.execute(insert, values)
    migrate(database)
    with database.read() as c:
        for filters in (
            Listing(words=words_of("N=V2345")),
            Listing(dataset_version="7", labels=(("n", "v2345"),)),
            Listing(dataset_digest=DIGESTS[1], model="Mine", words=("v2345",)),
        ):
            assert listing.page_ids(c, LOCAL_CALLER.scope, filters, after=None, limit=9) == [values[2345]["id"]]
        assert listing.counts(c, LOCAL_CALLER.scope, Listing(words=("mine",))) == {State.QUEUED: 2500}
        assert c.execute(text(f"SELECT count(*) FROM simulations WHERE {LISTED_ROWS}")).scalar_one() == 2500
    database.close()
