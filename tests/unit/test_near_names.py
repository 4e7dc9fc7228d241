"""Near names: suggested only where they are near."""

import ast
from pathlib import Path

import pytest

from common.errors import UnknownDataset, UnknownFormat, UnknownRuntime
from common.near_names import near_names, suggestion
from runtimes import catalogue
from tests.product import ROOT, modules

RUNTIMES = ("onnx", "python", "tensorflow")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("pyhton", ["python"]),
        ("tensorflwo", ["tensorflow"]),
        ("onx", ["onnx"]),
        ("ONNX", ["onnx"]),
        ("Python3", ["python"]),
        ("pytorch", []),
        ("matlab", []),
        ("torch", []),
        ("x", []),
        ("", []),
    ],
)
def test_a_name_is_suggested_only_if_it_is_near(name: str, near: list[str]) -> None:
    assert near_names(name, RUNTIMES) == near


def test_names_that_differ_in_case_only_are_all_suggested() -> None:
    assert near_names("idm", ["IDM", "Idm", "zero"]) == ["IDM", "Idm"]


def test_the_error_asks_for_near_names_or_says_something_else() -> None:
    assert suggestion(["a", "b"], "There are: c.") == "Did you mean a or b?"
    assert suggestion([], "There are: c.") == "There are: c."


def test_an_unknown_runtime_that_resembles_no_other_has_no_near_names() -> None:
    with pytest.raises(UnknownRuntime, match="There are: ") as error:
        catalogue.runtime("matlab")
    assert error.value.members["nearest"] == []


def test_an_unknown_dataset_and_format_suggest_near_names_only() -> None:
    from core.services.datasets.catalogue import find_dataset
    from core.services.uploads.models import format_of

    with pytest.raises(UnknownDataset, match="Did you mean cartpole") as dataset:
        find_dataset("cartpol")
    assert dataset.value.members["nearest"] == ["cartpole"]
    with pytest.raises(UnknownFormat, match="Did you mean onnx") as near:
        format_of(Path("x"), None, "onxx", None, largest_unpacked=0)
    assert near.value.members["nearest"] == ["onnx"]
    with pytest.raises(UnknownFormat, match="There are: ") as far:
        format_of(Path("x"), None, "matlab", None, largest_unpacked=0)
    assert far.value.members["nearest"] == []


def test_names_are_compared_in_one_place() -> None:
    users = {
        str(path)
        for path in modules()
        if any(
            "difflib" in [alias.name for alias in node.names]
            for node in ast.walk(ast.parse((ROOT / path).read_text()))
            if isinstance(node, ast.Import)
        )
    }
    assert users == {"common/near_names.py"}
