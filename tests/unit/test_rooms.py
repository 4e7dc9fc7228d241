"""Rooms: what import-linter reads is all that git has, and it sees imports that run back up."""

import ast
import configparser
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.product import ROOT, modules, rooms

#: Folder of the client, and the package in it.
CLIENT_FOLDER, CLIENT = "cli", "windtunnel"
#: The one module at the top: import-linter reads packages only, so it has nothing but names of the composition root.
DOOR = "app.py"
#: Folder of the package for programs with MPI, and the package in it, of the same name.
HALO = "halo"
#: Clients over HTTP, and the package of programs: contracts of their own say what they import, and layers are about the
#: rest.
CLIENTS = {CLIENT, "web", HALO}
#: Import that a layer must not have -> module that has it, and the contract that says so.
BREAKS = {
    "core.services.comparisons.comparisons": (
        "core/services/uploads/models.py",
        "Services from use cases down to what they are about",
    ),
    "datasets.model_origins.config": (
        "datasets/objectstore/filesystem.py",
        "Datasets from the node cache down to object storage",
    ),
    "core.store.tables": ("common/errors.py", "One way down"),
    "core.services.platform": ("api/context.py", "Composition roots have all services, the others a group"),
}


@pytest.fixture(scope="module")
def linter() -> configparser.ConfigParser:
    """The contracts."""
    parser = configparser.ConfigParser()
    parser.read_string((ROOT / ".importlinter").read_text())
    return parser


def entries(linter: configparser.ConfigParser, section: str, key: str) -> set[str]:
    """Return the packages of a list, `a | b` in a line or one a line."""
    return set(linter[f"importlinter:{section}" if section else "importlinter"][key].replace("|", " ").split())


def test_import_linter_reads_every_room_that_git_has(linter: configparser.ConfigParser) -> None:
    assert entries(linter, "", "root_packages") == rooms() - {DOOR, CLIENT_FOLDER} | {CLIENT}


def test_every_room_is_a_layer_or_a_client(linter: configparser.ConfigParser) -> None:
    layers = {layer.partition(".")[0] for layer in entries(linter, "contract:layers", "layers")}
    assert layers == entries(linter, "", "root_packages") - CLIENTS


def test_drivers_are_looked_for_in_every_room_of_the_server(linter: configparser.ConfigParser) -> None:
    assert entries(linter, "contract:drivers", "source_modules") == entries(linter, "", "root_packages") - CLIENTS


def test_the_door_at_the_top_has_names_of_the_composition_root_alone() -> None:
    statements = [line for line in (ROOT / DOOR).read_text().splitlines() if line and not line.startswith(("#", '"""'))]
    imports = [line for line in statements if "import" in line]
    assert len(imports) == 1 and imports[0].startswith("from server.composition import "), statements
    assert len(statements) == 2 and statements[1].startswith("__all__"), statements


def test_a_module_is_common_when_two_rooms_use_it() -> None:
    users: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        depth = 2 if path.parts[0] == "core" else 1  # its layers are rooms
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and path.parts[0] != "common":
                names = [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
                for name in {name for name in names if name.startswith("common.")}:
                    users[name].add("/".join(path.parts[:depth]))
    common = {f"common.{path.stem}" for path in modules() if path.parts[0] == "common" and path.stem != "__init__"}
    assert {name: rooms for name in common if len(rooms := users[name]) < 2} == {}


def test_layer_contracts_of_containers_list_every_child(linter: configparser.ConfigParser) -> None:
    sections = [linter[name] for name in linter.sections() if "containers" in linter[name]]
    assert len(sections) >= 6
    assert [section["name"] for section in sections if section.get("exhaustive") != "True"] == []


def test_imports_that_run_back_up_fail_the_lint(tmp_path: Path) -> None:
    for module in modules():
        (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / module, tmp_path / module)
    shutil.copyfile(ROOT / ".importlinter", tmp_path / ".importlinter")
    for imported, (module, _) in BREAKS.items():
        path = tmp_path / module
        path.write_text(f"{path.read_text()}\n\nimport {imported}\n")
    folders = (tmp_path / HALO, tmp_path, tmp_path / CLIENT_FOLDER)
    lint = Path(sys.executable).with_name("lint-imports")
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders)), "COLUMNS": "200"}
    result = subprocess.run([lint, "--no-cache"], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert result.returncode != 0 and f"{len(BREAKS)} broken" in result.stdout, result.stdout[-3000:]
    for _, name in BREAKS.values():
        assert f"{name} BROKEN" in result.stdout
