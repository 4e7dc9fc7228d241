"""Executor kinds: discovered by name, imported on use, unknown kinds refused with the list of kinds."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.domain.scheduling.allowed_options import OPTIONS
from core.domain.scheduling.executor_config import GangSupport
from core.domain.scheduling.launches import Gang
from workers import executors
from workers.executors import registry
from workers.executors.base import ExecutorKind

KNOWN_KINDS = "known: kubernetes, local, slurm"


def config_file(folder: Path, *entries: dict[str, Any]) -> str:
    """Write an executor configuration file with these entries and return its path."""
    file = folder / "executors.json"
    executor_entries = [{"name": f"e{number}", "workers": 1} | entry for number, entry in enumerate(entries)]
    file.write_text(json.dumps({"executors": executor_entries}))
    return str(file)


@pytest.fixture
def kinds_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A second folder of the package, for modules of a test."""
    folder = tmp_path / "executors"
    folder.mkdir()
    monkeypatch.setattr(executors, "__path__", [*executors.__path__, str(folder)])
    yield folder
    registry.kind.cache_clear()
    for name in [name for name, module in sys.modules.items() if str(folder) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]


def test_every_kind_of_the_package_is_known_and_typed() -> None:
    assert registry.kinds() == ("kubernetes", "local", "slurm")
    for name in registry.kinds():
        assert isinstance(registry.kind(name), ExecutorKind)


@pytest.mark.parametrize(
    "name", ["nomad", "base", "registry", "../local", "local.LocalExecutor", "", "kubernetes.client"]
)
def test_an_unknown_kind_is_refused_with_the_list_of_kinds(name: str, tmp_path: Path) -> None:
    file = config_file(tmp_path, {"kind": "local"}, {"kind": name})
    with pytest.raises(ValueError) as error:
        registry.load_executor_configs(file, 1)
    assert str(error.value) == f'{file}: executors[1] (e1): no executor kind "{name}"; {KNOWN_KINDS}'


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("local", {"cores": 2}, "no option cores; known: none"),
        ("slurm", {"partitoin": "x"}, "no option partitoin; known: conf, folder"),
        ("slurm", {"minutes": "ten"}, "Expected `int`, got `str` - at `$.minutes`"),
        ("kubernetes", {"seats": 2}, "seats is called workers_per_pod now"),
    ],
)
def test_options_are_checked_when_the_settings_are_read(
    kind: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError) as error:
        registry.load_executor_configs(config_file(tmp_path, {"kind": kind, "options": options}), 1)
    assert "executors[0] (e0): " in str(error.value) and message in str(error.value)


def test_an_executor_has_the_capabilities_of_its_kind(tmp_path: Path) -> None:
    kinds = ("kubernetes", "local", "slurm")
    configs = registry.load_executor_configs(config_file(tmp_path, *({"kind": kind} for kind in kinds)), 1)
    assert registry.with_own_environments(configs) == {"e0"}
    cluster, local, slurm = (config.gangs for config in configs)
    assert (cluster, local) == (GangSupport(unattended=True), GangSupport(packaged=True, crowds=True))
    assert slurm is not None and slurm.packaged and not slurm.several
    assert registry.with_node_agent(configs) == {"e1"}


def test_a_gang_is_refused_with_the_reason_of_the_executor(tmp_path: Path) -> None:
    open_network = {"kind": "slurm", "options": {"gang_network": True}}
    configs = registry.load_executor_configs(
        config_file(tmp_path, {"kind": "kubernetes"}, {"kind": "local"}, {"kind": "slurm"}, open_network), 1
    )
    refusals = {
        (Gang(size=2),): ["", "", "one node there; the executor's option `gang_network`", ""],
        (Gang(size=1), Gang(size=1, slots=4, communication="mpi")): ["", "", "", ""],
        (Gang(size=2, communication="packaged"),): ["a packaged simulator runs", "", "", ""],
        (Gang(size=1, slices=2),): ["", "", "no slices", "no slices"],
        (Gang(size=1, start="launch"), Gang(size=1, build=("make",))): ["", "", "", ""],
        (Gang(size=1, image="x"), Gang(size=1, operator="trainer")): ["", *["needs Kubernetes"] * 3],
    }
    for gangs, expected in refusals.items():
        for gang in gangs:
            for config, part in zip(configs, expected, strict=True):
                reason = config.refusal(gang)
                assert (part in reason) and bool(part) == bool(reason), (gang, config.kind, reason)


def test_an_executor_knows_which_options_its_kind_ignores(tmp_path: Path) -> None:
    kinds = ("kubernetes", "local", "slurm")
    cluster, local, slurm = registry.load_executor_configs(
        config_file(tmp_path, *({"kind": kind} for kind in kinds)), 1
    )
    assert (cluster.ignored, local.ignored) == (frozenset(), frozenset(OPTIONS))
    assert set(OPTIONS) - slurm.ignored == {"resources", "queue", "priority"}
    assert cluster.equivalents["k8s.v1.cni.cncf.io/networks"] == "networks"
    (default,) = registry.load_executor_configs("", 1)
    assert default.ignored == frozenset(OPTIONS)


def test_a_new_kind_ignores_nothing_so_that_every_name_has_to_be_allowed() -> None:
    def open_nothing(name: str, options: Any, paths: Any) -> Any:
        return None

    assert ExecutorKind(options=dict, open=open_nothing).ignored == frozenset()


def test_an_allow_list_for_an_option_that_the_kind_ignores_is_refused(tmp_path: Path) -> None:
    file = config_file(tmp_path, {"kind": "slurm", "allowed": {"annotations": ["**"]}})
    with pytest.raises(ValueError, match=r"\(e0\): `allowed.annotations`: a slurm executor ignores the option annot"):
        registry.load_executor_configs(file, 1)


def test_reading_the_configuration_imports_no_client_of_any_kind(tmp_path: Path) -> None:
    """The API's process reads capabilities and checks options; it never needs the modules that `open` imports."""
    file = config_file(tmp_path, *({"kind": kind} for kind in registry.kinds()))
    program = (
        "import sys; from workers.executors import registry;"
        f"configs = registry.load_executor_configs({file!r}, 1);"
        "registry.with_own_environments(configs), registry.with_node_agent(configs);"
        "print(*(name for name in sys.modules if name.startswith('workers.executors.')))"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert {name.removeprefix("workers.executors.") for name in output.split()} == {
        *("base", "registry", "local", "kubernetes", "kubernetes.options", "slurm", "slurm.jobs", "slurm.status_tables")
    }


def test_a_module_that_is_put_into_the_package_is_a_kind(kinds_folder: Path, tmp_path: Path) -> None:
    (kinds_folder / "nowhere.py").write_text(
        "from dataclasses import dataclass\n"
        "from workers.executors.base import ExecutorKind\n"
        "@dataclass(frozen=True)\n"
        "class NowhereOptions:\n"
        "    region: str\n"
        "KIND = ExecutorKind(options=NowhereOptions, open=lambda name, options, paths: (name, options.region))\n"
    )
    assert registry.kinds() == ("kubernetes", "local", "nowhere", "slurm")
    file = config_file(tmp_path, {"kind": "nowhere", "options": {"region": "west"}})
    (config,) = registry.load_executor_configs(file, 1)
    paths: Any = None
    executors: Any = registry.open_executors([config], paths)
    assert executors == {"e0": ("e0", "west")}
    with pytest.raises(ValueError, match="missing required field `region`"):
        registry.load_executor_configs(config_file(tmp_path, {"kind": "nowhere"}), 1)


def test_a_module_without_a_kind_is_an_error_with_its_name(kinds_folder: Path, tmp_path: Path) -> None:
    (kinds_folder / "empty.py").write_text("")
    with pytest.raises(ValueError, match=r"workers\.executors\.empty is not an executor kind: it has no KIND"):
        registry.load_executor_configs(config_file(tmp_path, {"kind": "empty"}), 1)


def test_the_supervisor_refuses_to_start_with_an_unknown_kind(tmp_path: Path) -> None:
    environ = {"WINDTUNNEL_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"}
    environ["WINDTUNNEL_EXECUTORS"] = config_file(tmp_path, {"kind": "nomad"})
    process = subprocess.run([sys.executable, "-m", "server", "run"], env=environ, capture_output=True, text=True)
    assert process.returncode == 2
    assert f'no executor kind "nomad"; {KNOWN_KINDS}' in process.stdout + process.stderr
