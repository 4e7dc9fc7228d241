"""Processes of scenarios: what a model does in one scenario can neither be read in the next one nor disturb it."""

import ast
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from attacks import HARNESS, HERE, USERS, SandboxFiles

DOCUMENT = Path(__file__).parents[2] / "docs" / "sandbox.md"


def entries(model: str, table: str) -> dict[str, str]:
    """Return the entries of a model's table by name, in its order, with their docstrings."""
    tree = ast.parse((HERE / "inside" / model).read_text()).body
    described = {
        node.name: ast.get_docstring(node) or "" for node in tree if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    (names,) = (node.value for node in tree if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == table)
    assert isinstance(names, ast.Tuple)
    return {ast.unparse(name): described[ast.unparse(name)] for name in names.elts}


CHANNELS = entries("remembering_model.py", "CHANNELS")
DISTURBANCES = entries("disturbing_model.py", "DISTURBANCES")


@dataclass(frozen=True)
class ModelServerRig:
    """Starts model servers with real sandboxes, as each user."""

    sandbox_files: SandboxFiles
    levels: dict[str, int]

    def program(self, name: str, model: str = "") -> Path:
        """Make the folder of a program that is a script of ``inside/``, with the model that it imports beside it."""
        files = self.sandbox_files
        folder = Path(tempfile.mkdtemp(dir=files.folder / "scenarios"))
        folder.chmod(0o755)
        source = (files.folder / "inside" / name).read_text()
        (folder / "program").write_text(f"#!{files.python} -ESB\n{source}")
        (folder / "program").chmod(0o755)
        if model:
            shutil.copy2(files.folder / "inside" / model, folder / "model.py")
        return folder

    def play(
        self,
        user: str,
        level: int,
        model: str | Path,
        pairs: Sequence[Any],
        *,
        format: str = "python",
        deadline: float = 20.0,
    ) -> list[tuple[str, Any]]:
        """Play pairs of scenarios; return each second scenario's outcome, and how many model servers were replaced."""
        folder = self.sandbox_files.folder
        plan = {
            "path": [str(folder / "scenarios"), str(folder / "scenarios" / "site")],
            "spec": {
                "python": str(self.sandbox_files.python),
                "harness": str(folder / "scenarios" / "harness"),
                "model_server_site": str(folder / "scenarios" / "site"),
                "dataset": "",
                "format": format,
                "isolation": "scenario",
                "sandbox": level,
                **({"model_folder": str(model)} if isinstance(model, Path) else {}),
            },
            "model": str(folder / "inside" / model),
            "pairs": pairs,
            "deadline": deadline,
        }
        with self.sandbox_files.start(
            user, "scenarios.py", json.dumps(plan), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as driver:
            out, err = driver.communicate(timeout=120)
        assert driver.returncode == 0, err.decode()
        *outcomes, (output, end) = (json.loads(line) for line in out.splitlines())
        print(output[-5000:], end)
        assert end == "it exited with code 0"
        return [(text, replaced) for text, replaced in outcomes]


@pytest.fixture(scope="session")
def model_servers(sandbox_files: SandboxFiles, best_levels: dict[str, int]) -> Iterator[ModelServerRig]:
    """Model servers whose installation lies under /tmp, where every user may read it."""
    folder = sandbox_files.folder / "scenarios"
    ignored = shutil.ignore_patterns("__pycache__", "tests")
    shutil.copytree(HARNESS, folder / "harness", ignore=ignored)
    for package in (np, msgspec):
        source = Path(package.__file__).parent
        for part in (source, source.with_name(f"{source.name}.libs")):
            if part.exists():
                shutil.copytree(part, folder / "site" / part.name, ignore=ignored)
    yield ModelServerRig(sandbox_files, best_levels)


CASES = [(user, level) for user in USERS for level in (3, 2)]


@pytest.fixture(params=CASES, ids=[f"{user}-{level}" for user, level in CASES])
def case(request: pytest.FixtureRequest, best_levels: dict[str, int]) -> tuple[str, int]:
    """A user and a level, or the highest level below it that the machine has."""
    user, level = request.param
    assert best_levels[user] > 1, "This machine cannot confine at all; see docs/sandbox.md for what it needs."
    return user, min(level, best_levels[user])


def test_no_channel_carries_a_note_to_the_next_scenario(model_servers: ModelServerRig, case: tuple[str, int]) -> None:
    pairs = [([index, 1, 0, 0], [index, 2, 0, 0]) for index in range(len(CHANNELS))]
    outcomes = model_servers.play(*case, "remembering_model.py", pairs)
    read = {name: text for name, (text, _) in zip(CHANNELS, outcomes, strict=True)}
    assert {name: text for name, text in read.items() if not text.startswith("RuntimeError: READ []")} == {}
    assert outcomes[-1][1] == 0  # no model server had to be replaced


def test_no_disturbance_by_a_model_reaches_its_next_scenario(
    model_servers: ModelServerRig, case: tuple[str, int]
) -> None:
    pairs = [([index, 1, 0, 0], [index, 2, 0, 0]) for index in range(len(DISTURBANCES))]
    outcomes = model_servers.play(*case, "disturbing_model.py", pairs, deadline=5.0)
    ends = {name: text for name, (text, _) in zip(DISTURBANCES, outcomes, strict=True)}
    assert {name: text for name, text in ends.items() if not text.startswith("RuntimeError: undisturbed")} == {}


def test_no_channel_carries_a_note_to_the_program_of_the_next_scenario(
    model_servers: ModelServerRig, case: tuple[str, int]
) -> None:
    pairs = [([index, 1, 0, 0], [index, 2, 0, 0]) for index in range(len(CHANNELS))]
    program = model_servers.program("model_program.py", "remembering_model.py")
    outcomes = model_servers.play(*case, program, pairs, format="program")
    read = {name: text for name, (text, _) in zip(CHANNELS, outcomes, strict=True)}
    nothing = "ProgramFailed: RuntimeError: READ []"
    assert {name: text for name, text in read.items() if not text.startswith(nothing)} == {}
    assert outcomes[-1][1] == 0


def test_a_program_starts_nothing_reaches_nobody_and_ends_with_its_scenario(
    model_servers: ModelServerRig, case: tuple[str, int]
) -> None:
    pairs = [([0, 1, 0, 0], [0, 2, 0, 0])] * 10
    program = model_servers.program("hostile_program.py")
    for text, replaced in model_servers.play(*case, program, pairs, format="program", deadline=5.0):
        files, outcomes = json.loads(text.removeprefix("ProgramFailed: "))
        assert files == [], "a program wrote after the end of its scenario"
        allowed = {"PermissionError", "FileNotFoundError", "OSError"}
        assert {name: how for name, how in outcomes.items() if how not in allowed} == {}
        assert replaced == 0


def test_the_documented_tables_list_each_channel_and_each_disturbance() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| [^|]+ \|$", DOCUMENT.read_text(), re.MULTILINE)
    assert dict(rows) == CHANNELS | DISTURBANCES
