"""Groups of services: small, each with its users, and the platform has nothing else but what composition roots need."""

import ast
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest

from core.services import service_groups
from core.services.platform import Platform
from tests.product import ROOT

GROUPS = [
    member
    for member in vars(service_groups).values()
    if is_dataclass(member) and isinstance(member, type) and member.__module__ == service_groups.__name__
]
#: Fields of the platform that are not groups: composition roots open and close these, and check that they answer.
OF_ROOTS = {"database", "store", "notifier", "standstill"}


def test_no_group_has_more_than_eight_services() -> None:
    assert {group.__name__: len(fields(group)) for group in GROUPS if len(fields(group)) > 8} == {}


def test_the_platform_is_its_groups() -> None:
    kinds = get_type_hints(Platform)
    assert kinds.keys() >= OF_ROOTS
    assert sorted(kind.__name__ for name, kind in kinds.items() if name not in OF_ROOTS) == sorted(
        group.__name__ for group in GROUPS
    )


@pytest.mark.parametrize("path", sorted((ROOT / "api" / "v1").glob("*.py")), ids=lambda path: path.stem)
def test_a_module_of_the_api_reads_one_group(path: Path) -> None:
    groups = {
        name.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "api.context"
        for name in node.names
        if name.name.endswith("_services")
    }
    assert len(groups) <= 1, groups
