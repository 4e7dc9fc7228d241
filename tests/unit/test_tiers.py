"""Table of tests that only `make verify` runs: matching of its entries, each of which names an existing test."""

from pathlib import Path

import pytest

from tests.tiers import is_verify, unknown_entries

TESTS = Path(__file__).parents[1]
TABLE = {"a.py": {"*": ""}, "b.py": {"test_one": "", "[slurm]": "", "test_two[a-b]": ""}}


def test_every_entry_names_an_existing_test() -> None:
    sources = {f"tests/{path.relative_to(TESTS)}": path.read_text() for path in TESTS.rglob("test_*.py")}
    assert list(unknown_entries(sources)) == []


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ("a.py::test_any[x-1]", True),
        ("b.py::test_one", True),
        ("b.py::test_one[x]", True),
        ("b.py::test_one_more", False),
        ("b.py::test_any[slurm]", True),
        ("b.py::test_any[7-slurm-8]", True),
        ("b.py::test_any[slurmctld]", False),
        ("b.py::test_any", False),
        ("b.py::test_two[a-b]", True),
        ("b.py::test_three[a-b]", False),
        ("c.py::test_any", False),
    ],
)
def test_an_entry_matches_a_file_a_function_a_parameter_or_both(node: str, expected: bool) -> None:
    assert is_verify(node, TABLE) is expected
