"""Projects of models: what `windtunnel new` writes, for every kind and every dataset."""

import ast
import re
from pathlib import Path

import pytest

from datasets.catalogue import datasets
from windtunnel import WindtunnelError
from windtunnel.gym import DATASETS
from windtunnel.projects import KINDS, MEANINGS, Project

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dataset", DATASETS)
def test_every_file_is_complete_and_every_program_can_be_read(kind: str, dataset: str, tmp_path: Path) -> None:
    written = Project(kind, "my model", datasets()[dataset].definition).write(tmp_path / "my model")
    texts = {path.name: path.read_text() for path in written}
    assert {"README.md", "test_model.py", ".gitignore"} < set(texts)
    for name, text in texts.items():
        assert not re.search(r"\$[a-z_]", text), f"{name} has a name that stands for nothing"
        if name.endswith(".py"):
            ast.parse(text)
    assert f"windtunnel check {KINDS[kind]['file']} {dataset}" in texts["README.md"]
    for name in datasets()[dataset].definition["interface"]["action"]["names"]:
        assert f"| {name} |" in texts["README.md"]


@pytest.mark.parametrize("dataset", MEANINGS)
def test_entries_with_a_meaning_are_those_of_the_dataset(dataset: str) -> None:
    interface = datasets()[dataset].definition["interface"]
    assert MEANINGS[dataset].keys() <= {*interface["observation"]["names"], *interface["action"]["names"]}


@pytest.mark.parametrize("kind", KINDS)
def test_the_readme_says_what_to_install_before_the_test(kind: str, tmp_path: Path) -> None:
    Project(kind, "mine", datasets()["car_street"].definition).write(tmp_path / "mine")
    readme = (tmp_path / "mine" / "README.md").read_text()
    commands = [line.strip() for line in readme.splitlines() if line.startswith("    ")]
    assert commands[0] == KINDS[kind]["install"] and commands[1].startswith("pytest")
    requirements = tmp_path / "mine" / "requirements.txt"
    packages = requirements.read_text().split() if "requirements.txt" in commands[0] else commands[0].split()[2:]
    # no index has Windtunnel's own packages; the user who has begun the project has them
    assert "pytest" in packages and not [name for name in packages if name.startswith("windtunnel")]


def test_the_readme_says_which_way_a_number_goes(tmp_path: Path) -> None:
    Project("python", "mine", datasets()["car_street"].definition).write(tmp_path / "mine")
    readme = (tmp_path / "mine" / "README.md").read_text()
    assert re.search(r"^\| 1 \| lane \|.*to the right; 0\.5 or more: to the left \|$", readme, re.MULTILINE)


def test_the_header_is_that_of_the_native_runtime() -> None:
    template = ROOT / "cli" / "windtunnel" / "templates" / "c" / "windtunnel_model.h.in"
    assert template.read_text() == (ROOT / "runtimes" / "native" / "windtunnel_model.h").read_text()


def test_a_folder_that_has_files_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(WindtunnelError, match="not empty"):
        Project("python", "mine", datasets()["cartpole"].definition).write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_dataset_of_programs_has_no_project(tmp_path: Path) -> None:
    with pytest.raises(WindtunnelError, match="no action"):
        Project("c", "mine", datasets()["program"].definition).write(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
