"""The table of tests that only `make verify` runs: what an entry matches, and that each names a test that exists."""

from pathlib import Path

import pytest

from tests.tiers import is_verify, unknown_entries

TESTS = Path(__file__).parents[1]
TABLE = {"a.py": {"*": ""}, "b.py": {"test_one": "", "[slurm]": "", "test_two[a-b]": ""}}


def test_every_entry_names_a_test_that_exists() -> None:
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
def test_an_entry_is_all_of_a_file_a_function_a_parameter_or_both(node: str, expected: bool) -> None:
    assert is_verify(node, TABLE) is expected
