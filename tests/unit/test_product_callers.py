"""Callers of product code: a function that only tests or benchmarks use must be moved there or deleted.

Names are counted, not resolved: two definitions of the same name hide an unused one, but a reported name is unused.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.product import ROOT, modules

#: The demo and the generators of pages are callers too.
SCRIPTS = tuple(sorted(path.relative_to(ROOT) for path in (ROOT / "scripts").rglob("*.py")))
#: Modules that are run or imported by path: migrations by alembic, models by model servers.
RUN_BY_PATH = ("core/store/migrations/",)
BASELINES = "/baselines/"
#: Names that Python itself calls: `__getattr__` of a module, for a missing attribute, and `__dir__`, for their list.
HOOKS = {"__dir__", "__getattr__"}


def parsed(paths: Iterable[Path]) -> Iterator[tuple[str, ast.Module]]:
    """Yield modules with their paths."""
    for path in paths:
        yield str(path), ast.parse((ROOT / path).read_text())


def references(module: ast.Module) -> Iterator[str]:
    """Yield every name that a module reads, imports, or has as a string."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.rpartition(":")[2]


def test_every_function_and_class_of_the_product_has_a_caller_in_the_product() -> None:
    used = Counter(name for _, module in parsed((*modules(), *SCRIPTS)) for name in references(module))
    unused = [
        f"{file}:{node.lineno} {node.name}"
        for file, module in parsed(modules())
        if not file.startswith(RUN_BY_PATH) and BASELINES not in file
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.decorator_list  # a decorator may register it, such as a view
        and not used[node.name]
        and node.name not in HOOKS
    ]
    assert not unused, "no caller in the product: move it to tests/ or benchmarks/, or delete it"


def test_a_function_without_a_caller_is_detected() -> None:
    module = ast.parse("import a.b\ndef called(): ...\ndef alone(): ...\nx = [called, a.c]\ny = 'app:by_path'")
    assert {"b", "called", "c", "by_path"} <= set(references(module))
    assert "alone" not in set(references(module))
