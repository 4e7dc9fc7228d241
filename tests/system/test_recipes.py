"""Recipes of CONTRIBUTING.md, followed in a copy of the tree: which files change, and that what is made works."""

import json
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from tests.recipes import FOLDER, GENERATORS, ROOT, Recipe, Tree, recipes
from tests.system.platform_process import share_environments

#: The recipes without a test of their own.
RECIPES = [recipe for recipe in recipes() if not recipe.test]
#: Tests that render the chart with helm run in `make cluster`: tests/chart/test_recipe.py.
CHART = "tests/chart/"


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tree, dict[str, set[str]]]:
    """A copy in which one recipe after the other was followed, and what each has changed."""
    tree = Tree(tmp_path_factory.mktemp("recipes") / "tree")
    changed = {}
    for recipe in RECIPES:
        changed[recipe.name] = tree.follow(recipe)
        tree.commit()
    return tree, changed


@pytest.fixture(scope="module")
def generated(followed: tuple[Tree, dict[str, set[str]]]) -> tuple[Tree, set[str]]:
    """The copy after the generators have run, and what they have written."""
    tree, _ = followed
    for command in GENERATORS:
        tree.generate(command)
    return tree, tree.changed()


def test_every_recipe_is_in_the_table_of_contributing() -> None:
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / FOLDER).glob("*.md")}
    listed = {recipe.page: recipe for recipe in recipes()}
    assert pages <= listed.keys() and len(listed) >= 12
    for recipe in listed.values():
        own = not recipe.test or recipe.page in (ROOT / recipe.test).read_text()
        assert own, f"{recipe.test} does not name {recipe.page}"


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_touches_as_many_files_as_the_table_says(
    recipe: Recipe, followed: tuple[Tree, dict[str, set[str]]]
) -> None:
    changed = followed[1][recipe.name]
    assert len(changed) == recipe.count, sorted(changed)
    assert bool(recipe.generators()) == bool(recipe.generated), "its generators, and the files that they write"


def test_the_generators_write_the_files_of_the_table_and_no_others(generated: tuple[Tree, set[str]]) -> None:
    assert generated[1] == frozenset().union(*(recipe.generated for recipe in RECIPES))


def test_what_the_recipes_write_is_well_formed(generated: tuple[Tree, set[str]]) -> None:
    tree, _ = generated
    ruff = str(ROOT / ".venv/bin/ruff")
    tree.run(ruff, "check", "--no-cache", ".")
    tree.run(ruff, "format", "--no-cache", "--check", ".")
    tree.run(str(ROOT / ".venv/bin/python"), "-m", "scripts.ratchets")


def test_the_tests_of_the_recipes_pass(generated: tuple[Tree, set[str]], tmp_path: Path) -> None:
    tree, _ = generated
    tests = sorted({test for recipe in RECIPES for test in recipe.tests() if not test.startswith(CHART)})
    assert len(tests) >= len(RECIPES) - 1
    python, temporary = str(ROOT / ".venv/bin/python"), str(tmp_path / "tests")
    tests.append(
        "tests/api/test_problems.py::test_every_problem_type_has_a_section_with_its_status_in_the_documentation"
    )
    tree.run(python, "-m", "pytest", "-n", "0", "-m", "not verify", "--basetemp", temporary, *tests)


def test_the_metric_of_the_recipe_is_in_results(
    generated: tuple[Tree, set[str]], prepared_environments: None, tmp_path: Path
) -> None:
    share_environments(tmp_path)
    tree, _ = generated
    play = f"WINDTUNNEL_HOME={tmp_path} {ROOT / '.venv/bin/python'} -m local_play play zero noop@2 --scenarios 0-1"
    lines = [json.loads(line) for line in tree.run("sh", "-c", play).stdout.splitlines() if line.startswith("{")]
    metrics = [line["result"]["metrics"] for line in lines if "result" in line]
    assert [each["largest"] for each in metrics] == [0.0, 0.0] and {"value", "echo"} < metrics[0].keys()


def test_the_schema_of_the_chart_has_the_value_of_the_recipe(generated: tuple[Tree, set[str]]) -> None:
    helm = generated[0].folder / "helm"
    values = yaml.safe_load((helm / "values.yaml").read_text())
    schema = jsonschema_rs.validator_for(json.loads((helm / "values.schema.json").read_text()))
    assert values["priorityClassName"] == "" and schema.is_valid(values | {"priorityClassName": "platform"})
    assert not schema.is_valid(values | {"priorityClassName": "Very High"})


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_alone_generates_the_files_that_the_table_names(recipe: Recipe, tmp_path: Path) -> None:
    tree = Tree(tmp_path / "tree")
    tree.follow(recipe)
    tree.commit()
    for command in recipe.generators():
        tree.generate(command)
    assert tree.changed() == recipe.generated
    for command in GENERATORS:
        tree.generate(command)
    assert tree.changed() == recipe.generated, "a generator is missing"
