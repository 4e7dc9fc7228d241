"""Fields of forms and addresses with arbitrary text: a page or a refusal, never an error of the server."""

import json
from collections.abc import Mapping

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from web.form_fields import number_of
from web.submission_fields import FIELDS

#: Texts that other readers than the API's take for numbers, or that no reader should be given.
HARD = [
    *("9" * 400, "-" + "9" * 400, "9" * 5000, "1e400", "1e308", "NaN", "-Infinity", "1_000", "２", "007", "5e-324"),
    *("[" * 3000, '{"a":' * 2000, "[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900),
    *('"\\ud800"', "null", "a" * 70_000),
]  # fmt: skip
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["range", "tasks", "sample", "executor", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)
members = st.dictionaries(
    st.sampled_from(["model", "dataset", "scenarios", *(field.name for field in FIELDS)]), documents
)
texts = st.text() | st.sampled_from(HARD) | documents.map(json.dumps) | members.map(json.dumps)
SHOWN = (
    *("repeat", "seed", "workers", "worlds", "record", "timeout", "max_failures", "labels", "param.x", "more"),
    "executor",
)
SUBMISSION = ("dataset", "model", "runtime", "select", "scenarios", *SHOWN)
COMPARISON = (
    "dataset",
    "model",
    "reference",
    "metric",
    "design",
    "error_rate",
    "bound",
    "margin",
    "sample",
    "repeat",
    "seed",
)
ROUTES = [
    ("POST", "/submit", SUBMISSION),
    ("POST", "/submit/request", SUBMISSION),
    ("POST", "/submit/check", SUBMISSION),
    ("GET", "/submit", SUBMISSION),
    ("GET", "/submit/dataset", SUBMISSION),
    ("POST", "/comparisons/new", COMPARISON),
    ("POST", "/comparisons/new/request", COMPARISON),
    ("GET", "/comparisons/new", COMPARISON),
    ("GET", "/comparisons", ("dataset", "state", "after")),
    ("POST", "/simulations/ID/workers", ("workers",)),
    ("POST", "/simulations/ID/tasks/0/again", ("param.x",)),
    ("GET", "/simulations/ID/tasks/0", ("at",)),
    ("GET", "/simulations/ID/tasks", ("where", "sort", "columns", "after", "name", "operator", "value", "by", "order")),
    ("GET", "/simulations", ("q", "state", "label", "after", "limit", "dataset", "model")),
    ("GET", "/compare", ("simulation", "metric", "margin", "bound", "design")),
    ("GET", "/compare/replay", ("left", "right", "at")),
    ("GET", "/data/noop", ("from", "after_file")),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "names"), ROUTES, ids=[f"{method} {path}" for method, path, _ in ROUTES])
def test_no_text_in_a_field_is_an_error_of_the_server(
    client: FlaskClient, finished: str, method: str, path: str, names: tuple[str, ...]
) -> None:
    usual = {
        "dataset": "noop",
        "runtime": "python",
        "select": "tasks",
        "left": f"{finished}.0",
        "right": f"{finished}.0",
    }
    known = {name: value for name, value in usual.items() if name in names}
    if path == "/submit/check":  # which would wait for the dry run of what it can read
        known["dataset"] = "absent"

    def check(fields: Mapping[str, str]) -> None:
        sent = {**known, **fields}
        query, data = (sent, None) if method == "GET" else (None, sent)
        address, headers = path.replace("ID", finished), {"Origin": "http://localhost"}
        answer = client.open(address, method=method, query_string=query, data=data, headers=headers)
        assert answer.status_code < 500, (fields, answer.text[:500])

    for text in HARD:
        check(dict.fromkeys(names, text) | ({"more": ""} if "more" in names else {}))
        if "more" in names:
            check({"more": text})
    fields = st.dictionaries(st.sampled_from(names), texts, min_size=1, max_size=3)
    settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))(given(fields)(check))()


@pytest.mark.parametrize(
    "text", ["1_000", "２", "007", "+5", ".5", "5.", "NaN", "1e400", "9" * 5000, "true", "[1]", '"1"']
)
def test_a_text_that_is_not_a_number_of_json_is_left_for_the_api_to_refuse(text: str) -> None:
    assert number_of(text) == text
    assert number_of("") is None and number_of(" 5 ") == 5 and number_of("1e3") == 1000.0
