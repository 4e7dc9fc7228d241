"""The recipe of a value of the chart, followed in a copy of the tree, and rendered by helm."""

import os
from pathlib import Path

from tests.cached import tool
from tests.recipes import ROOT, Tree, recipes


def test_the_value_of_the_recipe_is_rendered(tmp_path: Path) -> None:
    tool("helm")  # built before, not by the copy
    (recipe,) = [recipe for recipe in recipes() if recipe.name == "chart-value"]
    tree = Tree(tmp_path / "tree")
    tree.follow(recipe)
    tree.run(os.fspath(ROOT / ".venv/bin/python"), "-m", "pytest", "-n", "0", *recipe.tests())
