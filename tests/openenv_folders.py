"""Folders of datasets with an environment, as an evaluator sees them, and wheels of the packages that these need."""

import functools
import importlib.metadata
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.services.datasets.environment_files import ENVIRONMENT, PACKAGES
from datasets.catalogue import datasets
from datasets.versions import openenv_environment
from tests.contracts.package_index import wheel

HERE = Path(__file__).parent
#: An environment that needs uvicorn alone, and one that needs the package `openenv`.
PLAIN, CORRIDOR = HERE / "openenv_plain", HERE / "openenv_corridor"
#: What uvicorn needs, and the library of its WebSockets.
NEEDED = ("click", "h11", "uvicorn", "websockets")

#: What a registration makes of the plain environment.
KEPT: Mapping[str, Any] = {
    "app": "server.app:app",
    "package": "plain",
    "target": "",
    "transport": "websocket",
    "reproducible": True,
    "observation": [
        {"path": "position", "low": -10.0, "high": 10.0, "unit": "m"},
        {"path": "door.position"},
        {"path": "door.open", "low": 0.0, "high": 1.0},
        {"path": "walls", "shape": [2]},
        {"path": "episodes"},
        {"path": "left"},
    ],
    "action": [
        {"path": "move", "kind": "choice", "values": ["stay", "left", "right"]},
        {"path": "stride", "kind": "number", "low": 0.0, "high": 2.0},
    ],
    "steps": 30,
    "dt": 1.0,
    "timeout": 20.0,
    "environ": {},
    "metrics": [
        {"name": name, "path": path, "aggregation": "max", "title": "", "unit": "", "better": None}
        for name, path in (("farthest", "position"), ("episodes", "episodes"), ("left", "left"))
    ],
    "score": "return",
    "better": "higher",
    "worst": None,
    "outcome": "door.open",
    "outcomes": {"true": "found", "steps": "lost"},
    "failures": ["lost"],
}


def definition_of(**changes: Any) -> dict[str, Any]:
    """Return the definition of a dataset with the plain environment."""
    return dict(datasets()["openenv"].definition) | openenv_environment.definition({**KEPT, **changes})


def folder_of(environment: Path, package: str, target: Path) -> Path:
    """Make a dataset's folder of an environment whose packages are those that the tests themselves run with."""
    shutil.copytree(environment, target / ENVIRONMENT / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(datasets()["openenv"].folder / "dataset.json", target / "dataset.json")
    site = Path(str(importlib.metadata.distribution("uvicorn").locate_file("")))
    for name in NEEDED:
        shutil.copytree(site / name, target / PACKAGES / name, ignore=shutil.ignore_patterns("__pycache__"))
    for above, _, names in os.walk(target):
        os.chmod(above, 0o755)
        for name in names:
            os.chmod(os.path.join(above, name), 0o444)
    return target


@functools.cache
def needed_wheels() -> tuple[tuple[str, bytes], ...]:
    """Return wheels of what the plain environment needs, of the files that the tests themselves run with."""
    requires = {"uvicorn": ("click", "h11")}
    wheels = []
    for name in NEEDED:
        distribution = importlib.metadata.distribution(name)
        files = {
            str(path): Path(str(path.locate())).read_bytes()
            for path in distribution.files or ()
            if path.suffix in {".py", ".typed"} and path.parts[0] == name
        }
        wheels.append(wheel(name, distribution.version, files, requires=requires.get(name, ())))
    return tuple(wheels)
