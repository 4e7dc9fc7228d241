"""Results: in task order or in order of arrival, as lines, tables or events; resumable, complete at the end."""

import csv
import io
import json
import operator
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any
from unittest import mock

import pandas
import pyarrow.parquet as pq
import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from api import parquet
from api.parquet import LineParser, as_parquet, stream_parquet
from api.streams import frame
from api.tabular import as_csv, columns, escape_formula, flat
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.results import result_selection
from core.domain.results.result_conditions import Condition, ResultFilter
from core.domain.results.result_selection import Selection, page_of
from core.services.platform import Platform
from tests.api.answers import line, problem
from tests.api.conftest import LeasingWorker, Submit
from tests.api.test_comparisons import Play, scored
from tests.api.test_comparisons import play as play
from tests.waiting import until


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(text) for text in data.splitlines() if text]


def test_results_are_in_task_order(client: FlaskClient, finished: str) -> None:
    response = client.get(f"/v1/simulations/{finished}/results")
    assert response.content_type == "application/x-ndjson"
    assert [result["task"] for result in lines_of(response.data)] == list(range(20))
    rest = client.get(f"/v1/simulations/{finished}/results?from=17&format=ndjson")
    assert [result["task"] for result in lines_of(rest.data)] == [17, 18, 19]


def test_lines_of_chosen_tasks_are_read(platform: Platform, submit: Submit, worker: LeasingWorker) -> None:
    id = submit(tasks=40).json["id"]
    worker.run_to_end(id)
    tasks = [0, 1, 9, 25, 26, 39, 40]
    chosen = b"".join(platform.analysis.results.lines_of(LOCAL_CALLER, id, tasks))
    assert [result["task"] for result in lines_of(chosen)] == tasks[:-1]  # there is no task 40


def test_present_results_are_served_before_the_end(client: FlaskClient, submit: Submit, worker: LeasingWorker) -> None:
    id = submit().json["id"]
    launch = worker.launch(id)
    lease = worker.lease(launch)
    worker.report(launch, lease, 0, 3)
    assert len(lines_of(client.get(f"/v1/simulations/{id}/results").data)) == 3
    assert client.get(f"/v1/simulations/{id}/results?format=csv").data.count(b"\r\n") == 4


def test_a_followed_stream_ends_with_the_simulation(client: FlaskClient, submit: Submit, worker: LeasingWorker) -> None:
    id = submit().json["id"]
    thread = threading.Thread(target=worker.run_to_end, args=(id,))
    thread.start()
    response = client.get(f"/v1/simulations/{id}/results?follow=true")
    thread.join()
    assert sorted(result["task"] for result in lines_of(response.data)) == list(range(20))
    assert response.headers["X-Accel-Buffering"] == "no"


def test_a_followed_stream_resumes_after_the_received_results(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/results?follow=true"
    stream = client.get(path).data
    received = stream.splitlines(keepends=True)[:7]
    assert b"".join(received) + client.get(f"{path}&skip=7").data == stream


def test_an_incomplete_stream_ends_with_the_reason(client: FlaskClient, submit: Submit) -> None:
    id = submit().json["id"]
    client.post(f"/v1/simulations/{id}/cancel")
    assert lines_of(client.get(f"/v1/simulations/{id}/results?follow=true").data) == [
        {"incomplete": "cancelled by its owner"}
    ]


def test_a_followed_stream_may_be_server_sent_events(client: FlaskClient, finished: str) -> None:
    response = client.get(
        f"/v1/simulations/{finished}/results?follow=true&skip=18", headers={"Accept": "text/event-stream"}
    )
    assert response.content_type == "text/event-stream"
    blocks = response.data.decode().strip().split("\n\n")
    assert blocks[0] == "retry: 2000"
    assert [block.split("\n")[:2] for block in blocks[1:]] == [["id: 19", "event: result"], ["id: 20", "event: result"]]


@pytest.mark.parametrize("query", ["follow=true", "follow=true&skip=3"])
def test_a_reconnecting_browser_continues_after_its_last_result(client: FlaskClient, finished: str, query: str) -> None:
    path = f"/v1/simulations/{finished}/results?{query}"

    def reconnect(last: str) -> Any:
        return client.get(path, headers={"Accept": "text/event-stream", "Last-Event-ID": last})

    blocks = reconnect("18").data.decode().strip().split("\n\n")
    assert [block.split("\n")[:2] for block in blocks[1:]] == [["id: 19", "event: result"], ["id: 20", "event: result"]]
    assert json.loads(blocks[1].partition("data: ")[2])["task"] == 18
    for received in ("20", "21"):  # all results: a browser does not reconnect after a 204
        over = reconnect(received)
        assert over.status_code == 204 and over.data == b""
    problem(reconnect("x"), 422, "invalid")


def test_a_browser_with_all_present_results_gets_a_stream(
    client: FlaskClient, submit: Submit, worker: LeasingWorker, platform: Platform
) -> None:
    id = submit().json["id"]
    launch = worker.launch(id)
    lease = worker.lease(launch)
    worker.report(launch, lease, 0, 3)
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "3"}
    response = client.get(f"/v1/simulations/{id}/results?follow=true", headers=headers, buffered=False)
    assert response.status_code == 200
    pieces = iter(response.response)
    assert next(pieces) == b"retry: 2000\n\n"
    worker.report(launch, lease, 3, 4)
    assert next(pieces).startswith(b'id: 4\nevent: result\ndata: {"task":3,')
    response.close()


def test_a_stream_of_lines_is_resumed_by_its_query(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/results?follow=true"
    assert len(lines_of(client.get(path, headers={"Last-Event-ID": "18"}).data)) == 20


@pytest.mark.parametrize(
    "query", ["skip=1", "follow=true&from=3", "follow=true&format=csv", "follow=yes", "follow=2", "from=-1", "from=x",
              "format=xml", "folow=true", "status=good", "limit=0",
              "limit=10001", "count=true", "where=street", "where=metrics.return<x", "where=metrics.retrun<3",
              "where=nothing=1", "follow=true&where=failed=true",
              "sort=score", "sort=metrics.scroe", "sort=metrics", "after=x", "limit=2&after=%",
              "limit=2&after=x",
              "sort=-task&limit=2&after=NQ", "follow=true&sort=task", "follow=true&status=ok", "follow=true&limit=3"],
)  # fmt: skip
def test_an_invalid_query_is_refused(client: FlaskClient, finished: str, query: str) -> None:
    problem(client.get(f"/v1/simulations/{finished}/results?{query}"), 422, "invalid")


def test_the_format_is_negotiated(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/results"

    def format_of(accept: str) -> str:
        return client.get(path, headers={"Accept": accept}).content_type

    assert format_of("text/csv") == "text/csv; charset=utf-8"
    assert format_of("application/vnd.apache.parquet") == "application/vnd.apache.parquet"
    assert format_of("text/csv;q=0.1, application/x-ndjson") == "application/x-ndjson"
    assert format_of("*/*") == "application/x-ndjson"
    problem(client.get(path, headers={"Accept": "image/png"}), 406, "not-acceptable")


def test_a_csv_has_a_row_for_each_task(client: FlaskClient, finished: str) -> None:
    response = client.get(f"/v1/simulations/{finished}/results?format=csv")
    assert finished in response.headers["Content-Disposition"]
    frame = pandas.read_csv(io.BytesIO(response.data))
    assert list(frame["task"]) == list(range(20))
    assert list(frame.columns[:3]) == ["task", "status", "error"]
    assert {"scenario.name", "metrics.return", "timing.seconds"} <= set(frame.columns)
    assert (frame["status"] == "failed").sum() == 2


def test_a_parquet_file_has_a_row_for_each_task_and_real_types(client: FlaskClient, finished: str) -> None:
    response = client.get(f"/v1/simulations/{finished}/results?format=parquet")
    frame = pandas.read_parquet(io.BytesIO(response.data))
    assert len(frame) == 20 and frame["metrics.return"].sum() == sum(range(20)) / 2
    assert frame["task"].dtype == "int64" and frame["metrics.return"].dtype == "float64"
    part = client.get(f"/v1/simulations/{finished}/results?format=parquet", headers={"Range": "bytes=-4"})
    assert part.status_code == 206 and part.data == b"PAR1"
    assert part.headers["ETag"] == response.headers["ETag"]
    head = client.head(f"/v1/simulations/{finished}/results?format=parquet")
    assert head.headers["Content-Length"] == str(len(response.data))


# -- tables


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1-1", "@SUM(A1)"])
def test_formulas_in_cells_are_escaped(cell: str) -> None:
    assert escape_formula(cell) == "'" + cell
    assert escape_formula("a" + cell) == "a" + cell


def test_numbers_are_not_escaped() -> None:
    assert [escape_formula(value) for value in (-1, -1.5, None, True)] == [-1, -1.5, None, "true"]


def test_the_kind_of_a_column_fits_all_its_rows() -> None:
    rows = [
        flat({"task": 0, "metrics": {"a": 1, "b": None, "c": True, "d": 1}}),
        flat({"task": 1, "metrics": {"a": 1.5, "b": "x", "c": False, "d": "y", "e": {"f": [1, 2]}}}),
    ]
    kinds = columns(rows)
    assert kinds == {
        "task": "int", "status": "str", "error": "str", "metrics.a": "float", "metrics.b": "str", "metrics.c": "bool",
        "metrics.d": "str", "metrics.e.f": "str",
    }  # fmt: skip
    assert rows[1]["metrics.e.f"] == "[1,2]"


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.sampled_from([2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**23, -(10**400)])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES), max_size=8))
def test_any_results_become_tables_with_a_row_each(metrics: list[dict[str, Any]]) -> None:
    def lines() -> Iterator[bytes]:
        yield b"".join(line(task, **text) for task, text in enumerate(metrics))

    read = list(csv.reader(io.StringIO(b"".join(as_csv(lines)).decode(), newline="")))
    assert len(read) == len(metrics) + 1 and len({len(row) for row in read}) == 1
    blob = as_parquet(lines, None)
    data = b"".join(blob.read(0, blob.size))
    assert len(data) == blob.size
    assert len(pandas.read_parquet(io.BytesIO(data))) == len(metrics)


def parquet_of(*results: bytes) -> pandas.DataFrame:
    blob = as_parquet(lambda: results, None)
    return pandas.read_parquet(io.BytesIO(b"".join(blob.read(0, blob.size))))


def test_integers_of_any_size_fit_into_a_table() -> None:
    huge = 10**23
    frame = parquet_of(line(0, a=huge, b=1, c=-huge, d="x", e=2**63 - 1), line(1, a=7, b=huge, c=0.5, d=huge, e=1))
    assert list(frame["metrics.a"]) == [1e23, 7.0] and list(frame["metrics.b"]) == [1.0, 1e23]
    assert list(frame["metrics.c"]) == [-1e23, 0.5] and list(frame["metrics.d"]) == ["x", str(huge)]
    assert frame["metrics.e"].dtype == "int64" and frame["metrics.e"][0] == 2**63 - 1


def test_an_integer_beyond_every_float_is_text() -> None:
    huge = 10**400
    results = line(0, a=huge, b=1), line(1, a=0.5, b=huge)
    frame = parquet_of(*results)
    assert list(frame["metrics.a"]) == [str(huge), "0.5"] and list(frame["metrics.b"]) == ["1", str(huge)]
    assert str(huge).encode() in b"".join(as_csv(lambda: results))


def test_tables_have_the_worlds_and_the_kernel_of_timing_where_results_have_them() -> None:
    together = {"seconds": 0.5, "worlds": 16, "kernel": "rows"}
    result = json.loads(line(1)) | {"timing": together}
    results = line(0), json.dumps(result).encode() + b"\n"
    frame = parquet_of(*results)
    timing = frame[["timing.worlds", "timing.kernel"]]
    assert timing.isna().all(axis=1).tolist() == [True, False] and timing.loc[1].tolist() == [16, "rows"]
    header, alone, other = csv.reader(io.StringIO(b"".join(as_csv(lambda: results)).decode(), newline=""))
    assert header[-3:] == ["timing.seconds", "timing.worlds", "timing.kernel"]
    assert (alone[-3:], other[-3:]) == (["0.5", "", ""], ["0.5", "16", "rows"])


def test_results_that_arrive_between_the_passes_do_not_break_a_table() -> None:
    passes = iter([[line(0, a=1)], [line(0, a=1), line(1, a="later", z=3)]])
    assert b"".join(as_csv(lambda: next(passes))).count(b"\r\n") == 3


OBJECTS = st.recursive(
    st.dictionaries(st.sampled_from(["a", "b", "a.b", "c"]), VALUES | st.lists(st.integers(), max_size=2), max_size=4),
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", "d"]), VALUES | inner, max_size=4),
    max_leaves=4,
)


@given(st.lists(OBJECTS | st.fixed_dictionaries({"x": st.floats(allow_nan=False, allow_infinity=False)}), max_size=8))
def test_both_parsers_give_the_same_table(metrics: list[dict[str, Any]]) -> None:
    lines = [line(task, **members) for task, members in enumerate(metrics)]
    kinds = columns(flat(json.loads(text)) for text in lines)
    parser = LineParser(kinds)
    expected = parser.parse_slowly(b"".join(lines))
    if lines:
        assert parser.parse(b"".join(lines)).equals(expected)
    file = b"".join(stream_parquet(lines, kinds))
    assert pq.read_table(io.BytesIO(file)).equals(expected)
    blob = as_parquet(lambda: lines, None)
    assert b"".join(blob.read(0, blob.size)) == file


def test_ordinary_lines_take_the_fast_parser() -> None:
    lines = line(0, score=1.5, steps=3, word="x") + line(1, "crashed") + line(2, score=2, steps=4, word=None)
    inference = lines.replace(b'"seconds":0.5', b'"seconds":0.5,"inference":{"p50":0.1}', 1).replace(
        b'"seconds":0.5}', b'"seconds":0.5,"inference":null}', 1
    )
    for text in (lines, inference):
        parser = LineParser(columns(flat(json.loads(part)) for part in text.splitlines()))
        assert parser.parse_fast(text).equals(parser.parse_slowly(text))


def test_row_groups_do_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROWS", 7)
    monkeypatch.setattr(parquet, "PARSED", 500)
    lines = [line(task, word=f"w{task % 3}") for task in range(50)]
    kinds = columns(flat(json.loads(text)) for text in lines)
    files = {
        b"".join(stream_parquet([b"".join(lines[at : at + size]) for at in range(0, 50, size)], kinds))
        for size in (1, 3, 50)
    }
    assert len(files) == 1 and pq.ParquetFile(io.BytesIO(files.pop())).num_row_groups == 8


# -- selections


def tasks_of(response: Any) -> list[int]:
    assert response.status_code == 200, response.data
    return [result["task"] for result in lines_of(response.data)]


def pages(client: FlaskClient, path: str) -> Iterator[list[int]]:
    while True:
        response = client.get(path)
        yield tasks_of(response)
        if "Link" not in response.headers:
            return
        path = response.headers["Link"].partition("<")[2].partition(">")[0]


def test_results_are_selected_by_status(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/results"
    failed = [result["task"] for result in lines_of(client.get(path).data) if result["status"] != "ok"]
    statuses = "&".join(f"status={status}" for status in ("failed", "crashed", "timed_out", "invalid"))
    assert len(failed) == 2 and tasks_of(client.get(f"{path}?{statuses}")) == failed
    assert len(tasks_of(client.get(f"{path}?status=ok"))) == 18
    assert client.get(f"{path}?status=ok&format=csv").data.count(b"\r\n") == 19
    frame = pandas.read_parquet(io.BytesIO(client.get(f"{path}?{statuses}&format=parquet").data))
    assert list(frame["task"]) == failed


def test_results_are_sorted_and_read_by_pages(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/results"
    assert tasks_of(client.get(f"{path}?sort=-metrics.return&limit=3")) == [19, 18, 17]
    found = list(pages(client, f"{path}?sort=-metrics.return&limit=6"))
    assert [len(page) for page in found] == [6, 6, 6, 2] and [*chain(*found)] == list(range(19, -1, -1))
    assert list(pages(client, f"{path}?limit=8&from=3")) == [[*range(3, 11)], [*range(11, 19)], [19]]
    assert tasks_of(client.get(f"{path}?sort=scenario.name"))[:3] == [0, 1, 10]
    table = client.get(f"{path}?sort=-metrics.return&limit=2&format=parquet")
    assert list(pandas.read_parquet(io.BytesIO(table.data))["task"]) == [19, 18] and "Link" in table.headers
    assert client.get(f"{path}?sort=task&limit=2&format=csv").data.count(b"\r\n") == 3


def test_more_sorted_results_than_a_page_need_a_limit(
    client: FlaskClient, finished: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.services.analysis.result_selections.PAGE", 19)
    refused = problem(client.get(f"/v1/simulations/{finished}/results?sort=task"), 422, "invalid")
    assert "limit=19" in refused["detail"]


def test_a_conditional_request_knows_the_streamed_file(client: FlaskClient, finished: str) -> None:
    path = f"/v1/simulations/{finished}/results?format=parquet"
    whole = client.get(path)
    assert client.get(path, headers={"If-None-Match": whole.headers["ETag"]}).status_code == 304
    ranges = [{"Range": f"bytes={span}", "If-Range": whole.headers["ETag"]} for span in ("0-99", "100-")]
    parts = [client.get(path, headers=headers) for headers in ranges]
    assert b"".join(part.data for part in parts) == whole.data
    assert client.get(f"{path}&status=ok").headers["ETag"] != whole.headers["ETag"]


SORTED = st.lists(
    st.tuples(
        st.sampled_from(["ok", "failed"]), st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from(["a", "b", None])
    )
)


@given(SORTED, st.integers(1, 4), st.sampled_from(["metrics.x", "-metrics.x"]), st.sampled_from([1, 500, 1 << 20]))
def test_pages_of_any_results_are_one_sorted_list(
    tasks: list[tuple[str, Any]], limit: int, sort: str, page_bytes: int
) -> None:
    lines = [line(number, status, x=value) for number, (status, value) in enumerate(tasks)]
    selection = Selection(sort=sort, limit=limit, statuses=frozenset({"ok"}))
    found: list[int] = []
    while True:
        with mock.patch.object(result_selection, "PAGE_BYTES", page_bytes):
            page, cursor, _ = page_of(lines, selection)
        assert len(page) <= limit and sum(map(len, page[1:])) <= page_bytes
        found += [json.loads(text)["task"] for text in page]
        if cursor is None:
            break
        selection = replace(selection, after=cursor)
    chosen = [number for number, (status, _) in enumerate(tasks) if status == "ok"]
    numbers = [number for number in chosen if isinstance(tasks[number][1], int | float)]
    texts = [number for number in chosen if isinstance(tasks[number][1], str)]
    missing = [number for number in chosen if tasks[number][1] is None]
    for group in (numbers, texts):
        group.sort(key=lambda number: tasks[number][1], reverse=sort.startswith("-"))
    assert found == numbers + texts + missing


# -- conditions


@pytest.fixture
def drives(play: Play) -> str:
    """Id of a simulation of 30 scenarios in three streets in turn; each fifth crashed, task 3 and 13 collided."""

    def driven(task: int) -> dict[str, Any]:
        outcome = "collision" if task % 10 == 3 else "arrived"
        return scored(task, float(task), status="crashed" if task % 5 == 4 else "ok", outcome=outcome)

    return play(driven, 30)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["metrics.score<3"], [0, 1, 2]),
        (["metrics.score>=27"], [27, 28, 29]),
        (["metrics.score>3", "metrics.score<=6"], [4, 5, 6]),
        (["metrics.outcome=collision"], [3, 13, 23]),
        (["metrics.outcome=collision", "metrics.outcome=none"], [3, 13, 23]),
        (["metrics.outcome!=arrived"], [3, 13, 23]),
        (["failed=true", "task<10"], [3, 4, 9]),
        (["failed=false", "task<5"], [0, 1, 2]),
        (["status=crashed", "task>20"], [24, 29]),
        (["status!=ok", "metrics.outcome=collision"], []),
        (["scenario.street=crosswalk", "task<6"], [1, 4]),
    ],
)
def test_results_are_selected_by_conditions(client: FlaskClient, drives: str, where: list[str], expected: Any) -> None:
    path = f"/v1/simulations/{drives}/results"
    assert tasks_of(client.get(path, query_string={"where": where})) == expected
    frame = pandas.read_csv(io.BytesIO(client.get(path, query_string={"where": where, "format": "csv"}).data))
    assert list(frame["task"]) == expected


def test_results_are_selected_by_parameters_of_their_scenarios(client: FlaskClient, drives: str) -> None:
    specs = client.get("/v1/datasets/car_street/scenarios?limit=30").json["items"]
    first, most = specs[0], sorted(spec["vehicles"] for spec in specs)[20]
    where = [f"density={first['density']}", f"vehicles<={most}", "task>=1"]
    expected = [spec["index"] for spec in specs[1:] if spec["density"] == first["density"] and spec["vehicles"] <= most]
    found = tasks_of(client.get(f"/v1/simulations/{drives}/results", query_string={"where": where}))
    assert found == expected and 0 < len(found) < 29
    refused = client.get(f"/v1/simulations/{drives}/results", query_string={"where": "index<3"})
    assert "no parameter 'index'" in problem(refused, 422, "invalid")["detail"]
    unknown = client.get(f"/v1/simulations/{drives}/results", query_string={"where": f"street={first['street']}x"})
    assert problem(unknown, 422, "invalid")["nearest"] == [first["street"]]


def test_a_page_of_selected_results_says_how_many_there_are(client: FlaskClient, drives: str) -> None:
    path = f"/v1/simulations/{drives}/results"
    query = {"where": ["failed=true"], "limit": 4, "count": "true"}
    for sort in (None, "worst", "-metrics.score", "street"):
        found = [
            (tasks_of(page), page.headers["Total-Count"])
            for page in answers(client, path, query | ({"sort": sort} if sort else {}))
        ]
        assert sorted(chain(*(tasks for tasks, _ in found))) == [3, 4, 9, 13, 14, 19, 23, 24, 29]
        assert [len(tasks) for tasks, _ in found] == [4, 4, 1] and {total for _, total in found} == {"9"}
    assert "Total-Count" not in client.get(f"{path}?limit=4").headers


def answers(client: FlaskClient, path: str, query: dict[str, Any]) -> Iterator[Any]:
    response = client.get(path, query_string=query)
    yield response
    while link := response.headers.get("Link"):
        response = client.get(link.partition("<")[2].partition(">")[0])
        yield response


def test_the_worst_come_first(client: FlaskClient, drives: str) -> None:
    path = f"/v1/simulations/{drives}/results?sort=worst&limit=9"
    assert tasks_of(client.get(path)) == [4, 9, 14, 19, 24, 29, 0, 1, 2]
    worst = client.get(f"/v1/simulations/{drives}/worst?limit=9").json["items"]
    assert [item["task"] for item in worst] == [4, 9, 14, 19, 24, 29, 0, 1, 2]


def test_results_are_sorted_by_a_parameter(client: FlaskClient, drives: str) -> None:
    specs = client.get("/v1/datasets/car_street/scenarios?limit=30").json["items"]
    for name in ("street", "vehicles"):
        for sign in ("", "-"):
            path = f"/v1/simulations/{drives}/results?sort={sign}{name}&limit=10"
            ordered = sorted(specs, key=lambda spec: spec[name], reverse=bool(sign))
            assert [*chain(*pages(client, path))] == [spec["index"] for spec in ordered]
    refused = problem(client.get(f"/v1/simulations/{drives}/results?sort=stret"), 422, "invalid")
    assert "street" in refused["nearest"]


def test_conditions_hold_while_results_arrive(client: FlaskClient, submit: Submit, worker: LeasingWorker) -> None:
    id = submit(dataset="car_street", scenarios={"range": [0, 20]}, sweep={"latency_steps": [0, 2]}).json["id"]
    launch = worker.launch(id)
    lease = worker.lease(launch)
    worker.report(launch, lease, 0, lease.stop)
    path = f"/v1/simulations/{id}/results"
    assert tasks_of(client.get(path, query_string={"where": "metrics.steps<2"})) == [0, 1]
    worker.finish(launch)
    assert tasks_of(client.get(path, query_string={"where": "params.latency_steps=2"})) == [*range(20, 40)]
    assert tasks_of(client.get(path, query_string={"where": "params.latency_steps<1"})) == [*range(20)]


@given(
    st.lists(st.tuples(st.sampled_from(["ok", "crashed"]), VALUES), max_size=8),
    st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
    st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from([2**63, 10**400]),
)
def test_any_value_is_compared_as_python_compares_numbers(
    tasks: list[tuple[str, Any]], sign: str, number: float
) -> None:
    lines = [line(task, status, x=value) for task, (status, value) in enumerate(tasks)]
    condition = Condition.read(f"metrics.x{sign}{number}")
    chosen = ResultFilter([condition], parameters=dict, definition={"metrics": []}, columns=None).chosen(lines)
    limit = float(f"{number}")
    compare = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt}
    expected = [
        task
        for task, (_, value) in enumerate(tasks)
        if (isinstance(value, int | float) and not isinstance(value, bool))
        and compare.get(sign, operator.ge)(value, limit)
    ]
    numbers = [
        task
        for task, (_, value) in enumerate(tasks)
        if isinstance(value, int | float) and value is not True and value is not False
    ]
    assert [json.loads(text)["task"] for text in chosen if json.loads(text)["task"] in numbers] == expected


# -- streamed by the submission


def test_a_submission_streams_its_own_results(submit: Submit, worker: LeasingWorker, platform: Platform) -> None:
    def run() -> None:
        worker.run_to_end(until(lambda: platform.submissions.simulations.list(LOCAL_CALLER)[0])[0].id)

    thread = threading.Thread(target=run)
    thread.start()
    response = submit(headers={"Accept": "application/x-ndjson"})
    assert response.status_code == 201 and response.headers["Location"].startswith("/v1/simulations/")
    assert len(lines_of(response.data)) == 20
    thread.join()


def test_disconnecting_does_not_stop_the_simulation(
    client: FlaskClient, model: str, worker: LeasingWorker, platform: Platform
) -> None:
    document = {"dataset": "noop", "model": model, "scenarios": {"range": [0, 20]}}
    response = client.post("/v1/simulations", json=document, headers={"Accept": "text/event-stream"}, buffered=False)
    assert next(iter(response.response)) == b"retry: 2000\n\n"
    id = response.headers["Location"].rpartition("/")[2]
    response.close()
    assert platform.submissions.changes.waiting == 0
    worker.run_to_end(id)
    assert client.get(f"/v1/simulations/{id}").json["tasks"]["done"] == 20


def test_an_unacceptable_format_creates_no_simulation(client: FlaskClient, submit: Submit) -> None:
    problem(submit(headers={"Accept": "image/png"}), 406, "not-acceptable")
    assert client.get("/v1/simulations").json["items"] == []


def test_the_last_stream_is_given_to_one_of_two_requests_before_either_is_read(
    client: FlaskClient, submit: Submit, platform: Platform
) -> None:
    id = submit().json["id"]
    paths = [f"/v1/simulations/{id}/events", f"/v1/simulations/{id}/results?follow=true", "/v1/simulations/changes"]
    opened = [client.get(paths[number % 3], buffered=False) for number in range(4)]  # no byte of them is read
    assert [response.status_code for response in opened] == [200] * 4
    for path in (*paths, f"/v1/simulations/{id}/logs?follow=true"):
        problem(client.get(path), 503, "too-many-streams")
    assert client.head(paths[0]).status_code == 503
    opened.pop().close()
    assert client.head(paths[0]).status_code == 200  # and its slot is free again
    with client.get(paths[0], buffered=False) as last:
        assert next(iter(last.response)).startswith(b"retry:")
        problem(client.get(paths[0]), 503, "too-many-streams")
    problem(client.get("/v1/simulations/" + "0" * 26 + "/results?follow=true"), 404, "unknown-simulation")
    problem(client.get("/v1/simulations/" + "0" * 26 + "/results?follow=true"), 404, "unknown-simulation")
    for response in opened:
        response.close()


def test_too_many_streams_are_refused_before_a_simulation_is_created(
    client: FlaskClient, submit: Submit, platform: Platform
) -> None:
    id = submit().json["id"]
    from contextlib import ExitStack

    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(platform.submissions.changes.watching(id))
        for path in (f"/v1/simulations/{id}/events", f"/v1/simulations/{id}/results?follow=true"):
            refused = client.get(path)
            problem(refused, 503, "too-many-streams")
            assert refused.headers["Retry-After"] == "5"
        problem(submit(headers={"Accept": "application/x-ndjson"}), 503, "too-many-streams")
        assert len(client.get("/v1/simulations").json["items"]) == 1
        assert submit(headers={"Prefer": "wait=5"}).status_code == 201  # created, without waiting
    assert client.get(f"/v1/simulations/{id}/results").status_code == 200


def test_a_server_sent_event_has_id_type_and_data() -> None:
    assert frame(b"{}", event="state", id=3) == b"id: 3\nevent: state\ndata: {}\n\n"
    assert frame(b"{}") == b"data: {}\n\n"
