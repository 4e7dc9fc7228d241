"""Ages: what follows from a beginning in the past and in the future; no other module subtracts times of wall clocks."""

import ast
from collections.abc import Iterator, Mapping

import pytest

from common.ages import TOLERANCE, is_old_enough, is_overdue, seconds_since
from tests.product import ROOT, modules

#: Rooms that import nothing else of ours, so not the module of ages either.
CLIENTS = {"cli", "web"}
#: Differences of wall clocks outside the module of ages, each with its reason.
ALLOWED: Mapping[str, tuple[int, str]] = {
    "common/ages.py": (3, "the module itself"),
    "core/authenticators/openid_connect.py": (1, "a token from the future is refused before"),
    "core/notifications/job_queue.py": (1, "`judge` decides about a negative age"),
    "core/services/access/audit.py": (1, "a retention of many days: the future is kept"),
    "core/services/access/provider_sign_ins.py": (1, "the database's clock, whose steps are taken out"),
    "core/services/datasets/dataset_garbage.py": (2, "a grace before a removal: the future is kept"),
    "core/services/retention/bin.py": (1, "a term of days: the future is kept"),
    "core/services/simulations/deletion.py": (
        1,
        "a grace before a removal: the future is kept",
    ),
    "core/services/simulations/run_logging.py": (
        1,
        "an end is a record; a step changes days of patience",
    ),
    "core/services/webhooks/webhook_delivery.py": (1, "a retention of days: the future is kept"),
    "core/store/leases.py": (1, "the database's clock, whose steps are taken out"),
    "datasets/objectstore/s3.py": (1, "a removal by the server's times: the future is kept"),
    "server/probes.py": (1, "the supervisor's monotonic clock"),
    "workers/dispatcher.py": (1, "the database's clock, whose steps are taken out"),
    "workers/executors/kubernetes/status_mapping.py": (
        3,
        "the cluster's times; its machines keep theirs in step",
    ),
}


def test_a_sign_of_life_is_overdue_after_its_term_and_from_the_future() -> None:
    assert not is_overdue(100.0, 60.0, now=160.0) and is_overdue(100.0, 60.0, now=161.0)
    assert not is_overdue(100.0 + TOLERANCE, 60.0, now=100.0) and is_overdue(200.0, 60.0, now=100.0)


def test_what_is_from_the_future_is_not_removed() -> None:
    assert is_old_enough(100.0, 60.0, now=160.0) and not is_old_enough(3700.0, 60.0, now=100.0)


@pytest.mark.parametrize(("began", "expected"), [(90.0, 10.0), (3700.0, 0.0)])
def test_an_age_for_people_is_never_negative(began: float, expected: float) -> None:
    assert seconds_since(began, now=100.0) == expected


def differences(source: str) -> Iterator[int]:
    """Yield the lines in which a time is subtracted from a reading of a wall clock.

    A function that reads the monotonic clock, or whose class does, has its `now` from there.
    """
    tree = ast.parse(source)
    monotonic = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and "monotonic" in ast.unparse(node)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            named = isinstance(node.left, ast.Name) and node.left.id == "now" and _is_time(node.right)
            if _is_call(node.left) or (named and node not in monotonic):
                yield node.lineno


def _is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("time.time", "now"))


def _is_time(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.endswith(("_at", "_mtime", "began", "since"))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("time.time() - path.stat().st_mtime", 1),
        ("now - row.created_at", 1),
        ("(now() - seen).total_seconds()", 1),
        ("self._database.now(c) - grace", 1),
        ("time.monotonic() - began", 0),
        ("now - 2 * ttl", 0),
    ],
)
def test_differences_of_wall_clocks_are_found(source: str, found: int) -> None:
    assert len(list(differences(source))) == found


def test_every_difference_of_wall_clocks_is_decided() -> None:
    counts: dict[str, int] = {}
    for path in modules():
        if path.parts[0] not in CLIENTS and (number := len(list(differences((ROOT / path).read_text())))):
            counts[str(path)] = number
    undecided = {file: number for file, number in counts.items() if number != ALLOWED.get(file, (0, ""))[0]}
    assert not undecided, "use common/ages.py or time.monotonic(), or decide them here"
    assert {file for file, (number, _) in ALLOWED.items() if number} <= counts.keys()
