"""Registration of OpenEnv environments: packages locked from an index, and a first episode in the sandbox."""

import contextlib
import json
import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from common.errors import BadRequirements, NotPlayable
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.submissions.submission import Submission
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.store.database import Database
from datasets.objectstore.filesystem import FilesystemStore
from runtimes import catalogue, environments
from runtimes.dependencies import installer as installer_module
from runtimes.dependencies.installer import InstallerOptions
from tests.archives import tar
from tests.cached import ENVIRONMENTS
from tests.contracts.package_index import PackageIndex
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL
from tests.openenv_folders import PLAIN, needed_wheels

FILES: Mapping[str, bytes] = {
    path.relative_to(PLAIN).as_posix(): path.read_bytes()
    for path in sorted(PLAIN.rglob("*"))
    if path.is_file() and "__pycache__" not in path.parts
}


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    """A platform whose package index has what the plain environment needs."""
    monkeypatch.setattr(installer_module, "HARNESS", ())  # the index has small packages only
    environments.prepare(catalogue.simulators()["openenv"], ENVIRONMENTS, lambda message, fraction: None)
    (tmp_path / "environments").symlink_to(ENVIRONMENTS)
    index = PackageIndex(*needed_wheels())
    database: Database = sqlite_database(tmp_path / "platform.db")
    installer = InstallerOptions(indexes=(index.url,), hosts=(), environ={})
    options = PlatformOptions(home=tmp_path, executor_configs=[LOCAL], sandbox={}, installer=installer)
    yield build(database, FilesystemStore(tmp_path / "objects"), LocalNotifier(), options)
    database.close()
    index.close()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """More open descriptors than `select` takes, as in an API that serves many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with contextlib.ExitStack() as stack, open(os.devnull) as first:
        for _ in range(1024):
            stack.callback(os.close, os.dup(first.fileno()))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def register(platform: Platform, files: Mapping[str, bytes] = FILES, **described: Any) -> dict[str, Any]:
    """Register an environment; return the version when the registration has ended."""
    description = {"extends": "openenv", "generate": {"count": 4}, "openenv": {"steps": 9}} | described
    body = tar({"dataset.json": json.dumps(description).encode(), **files}, "w")
    upload = platform.files.uploads.create(LOCAL_CALLER, len(body))
    platform.files.uploads.append(LOCAL_CALLER, upload.id, 0, iter([body]))
    id = str(platform.catalogue.datasets.register(LOCAL_CALLER, "corridor", {"upload": upload.id})["id"])
    platform.jobs.dataset_registration.register(id)
    assert not list(platform.jobs.dataset_registration._scratch.glob("environment-*")), "a registration left its folder"
    return platform.catalogue.datasets.get(LOCAL_CALLER, id)


def test_an_environment_becomes_a_version_with_its_lock_and_its_fields(platform: Platform, tmp_path: Path) -> None:
    version = register(platform)
    assert (version["state"], version["tasks"], version["simulator"]) == ("ready", 4, "openenv"), version
    kept = version["openenv"]
    assert (kept["package"], kept["app"], kept["transport"]) == ("plain", "server.app:app", "websocket")
    assert kept["reproducible"] and {text.partition(":")[0] for text in kept["left_out"]} == {"text", "steps"}
    names = ["position", "door_position", "door_open", "walls_0", "walls_1", "episodes", "left"]
    assert version["interface"]["observation"]["names"] == names
    assert version["interface"]["action"] == {
        "dtype": "float32",
        "shape": [2],
        "names": ["move", "stride"],
        "units": ["", ""],
        "low": [0.0, 0.0],
        "high": [2.0, 2.0],
        "gymnasium": {
            "type": "Dict",
            "spaces": [
                {"key": "move", "space": {"type": "Discrete", "n": 3, "start": 0}},
                {"key": "stride", "space": {"type": "Box", "shape": [], "dtype": "float32"}},
            ],
        },
    }
    files = {entry["path"] for entry in platform.catalogue.datasets.files(LOCAL_CALLER, "corridor")[0]}
    made = {f"converted/{name}" for name in ("environment.json", "requirements.lock", "scenarios.ndjson")}
    assert files == {"dataset.json", *FILES} | made
    again = register(platform)
    assert (again["version"], again["digest"]) == (version["version"], version["digest"])

    dataset = platform.catalogue.datasets.find(LOCAL_CALLER, "corridor")
    folder = platform.scheduling.staging.folder(LOCAL_CALLER, platform.catalogue.datasets.frozen(dataset), "simulation")
    assert (folder / "environment" / "plain" / "server" / "app.py").read_bytes() == FILES["server/app.py"]
    assert (folder / "packages" / "uvicorn" / "server.py").stat().st_nlink > 1, "packages are hard links"
    assert json.loads((folder / "dataset.json").read_bytes())["name"] == "openenv", "the platform's own description"
    assert (folder / "scenarios.ndjson").read_text().count("\n") == 4
    frozen = platform.catalogue.datasets.frozen(dataset)
    said = dict(frozen.said or {}) | {"openenv": kept | {"target": "cpython-399 z80"}}
    other = replace(frozen, said=said, digest="sha256:" + "0" * 64)
    with pytest.raises(BadRequirements, match="register it again"):
        platform.scheduling.staging._environment(other, folder, "simulation", lambda message, fraction: None)


def test_a_server_without_a_websocket_is_spoken_to_over_http(platform: Platform) -> None:
    version = register(platform, openenv={"environ": {"OLD": "yes"}})
    assert version["state"] == "ready" and version["openenv"]["transport"] == "http", version


@pytest.mark.usefixtures("many_descriptors")
def test_an_environment_is_tried_by_a_process_with_many_open_descriptors(platform: Platform) -> None:
    version = register(platform)
    assert version["state"] == "ready", version


@pytest.mark.parametrize(
    ("changes", "described", "reason"),
    [
        ({"pyproject.toml": b"[project]\ndependencies = ['nothing-of-this-name']\n"}, {}, "cannot be resolved"),
        ({"pyproject.toml": b"[project]\ndependencies = ['x @ git+https://host/x']\n"}, {}, "git+https"),
        ({"pyproject.toml": b"[project]\nname = 'x'\n"}, {}, "declares no packages"),
        ({"server/app.py": b"import missing_module\n"}, {}, "ModuleNotFoundError: No module named 'missing_module'"),
        ({"server/app.py": b"import os; os._exit(4)\n"}, {}, "it was not imported: its first process ended"),
        ({"openenv.yaml": b"a: ["}, {}, "openenv.yaml cannot be read: while parsing a flow node"),
        ({"openenv.yaml": b"a: &a {b: 1}\nc: {<<: *a}"}, {}, "aliases (`*name`) are not accepted; write the value"),
        ({"converted/x": b"x"}, {}, "remove it from the source"),
        ({}, {"openenv": {"observation": [{"path": "speed"}]}}, "`speed` is missing"),
        ({}, {"openenv": {"action": [{"path": "stride"}]}}, "it answers step with an error: 'move'"),
        ({}, {"openenv": {"transport": "websocket", "environ": {"OLD": "yes"}}}, "no WebSocket at /ws"),
    ],
)
def test_an_environment_that_cannot_be_played_is_refused_with_the_reason(
    platform: Platform, changes: dict[str, bytes], described: dict[str, Any], reason: str
) -> None:
    version = register(platform, {**FILES, **changes}, **described)
    assert version["state"] == "failed" and reason in version["reason"], version.get("reason")
    assert "Traceback" not in version["reason"]


def test_the_template_is_refused_with_the_next_step(platform: Platform) -> None:
    with pytest.raises(NotPlayable, match=r"register a dataset that extends it.*docs/datasets.md"):
        platform.submissions.simulations.submit(LOCAL_CALLER, Submission(dataset="openenv", runtime="python"))
