"""Lazy import of the `kubernetes` package, which costs some tenths of a second and 22 MB in each process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.contracts.kubernetes_server import ScriptedServer, response

ROOT = Path(__file__).parents[2]
PRINT_IMPORTED = "\nimport sys; print('kubernetes' in sys.modules)"
#: The platform as API and jobs open it, with executors in a cluster and cache nodes discovered there.
PLATFORM = """
import os
from server.composition import create_flask, open_platform
from core.settings import Settings
from core.store.database import Database
from core.store.migrate import migrate
settings = Settings.from_env(os.environ)
settings.home.mkdir(exist_ok=True)
migrate(Database(settings.database))
platform = open_platform(settings, {})
"""
#: The executors as the dispatch role opens them.
EXECUTORS = """
from pathlib import Path
from workers.executors.registry import LocalPaths, load_executor_configs, open_executors
paths = LocalPaths(home=Path("."), run_dir=Path("."), environments=Path("."), runner_api_url="")
executors = open_executors(load_executor_configs("executors.json", 1), paths)
"""
AUTHENTICATOR = """
from pathlib import Path
from datasets.scs.authenticators import open_authenticator
open_authenticator({"Kind": "static"})
"""
REVIEW = 'open_authenticator({"Kind": "kubernetes", "Audience": "scs", "CAFile": "kubeconfig", "base": Path.cwd()})'


def imports(code: str, folder: Path, **environ: str) -> bool:
    """Run code in a new process; return whether it imported the package."""
    completed = subprocess.run(
        [sys.executable, "-c", code + PRINT_IMPORTED],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stderr
    return {"True": True, "False": False}[completed.stdout.split()[-1]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "x", "context": {"cluster": "c"}}
    document = {"current-context": "x", "contexts": [context], "clusters": [cluster]}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
    options = {"kubeconfig": str(tmp_path / "kubeconfig")}
    executor = {"name": "west", "kind": "kubernetes", "workers": 1, "options": options}
    (tmp_path / "executors.json").write_text(json.dumps({"executors": [executor]}))
    return tmp_path


@pytest.mark.parametrize(
    "modules",
    [
        "app, api.application, api.runner_api",
        "workers.dispatcher, workers.background_jobs, workers.node_agent",
        "workers.standalone_runner, workers.gang_runner, runtimes.harness.runner.runner",
        "datasets.scs_client.client, datasets.scs_client.membership",
        "datasets.scs.__main__, datasets.scs.authenticators",
        "workers.executors.kubernetes, kube.client, kube.access",
        "datasets.scs_client.endpoint_slices",
    ],
)
def test_importing_a_module_does_not_import_the_package(modules: str, folder: Path) -> None:
    assert not imports(f"import {modules}", folder)


def test_api_and_jobs_do_not_import_it_with_executors_and_cache_nodes_in_a_cluster(folder: Path) -> None:
    environ = {
        "WINDTUNNEL_HOME": str(folder / "home"),
        "WINDTUNNEL_EXECUTORS": str(folder / "executors.json"),
        "WINDTUNNEL_SCS_NODES": "kubernetes://windtunnel/scs",
        "WINDTUNNEL_REDIS_URL": "redis://127.0.0.1:9/0",
    }
    assert not imports(PLATFORM + "create_flask(platform, settings)", folder, **environ)


def test_a_runner_with_static_cache_nodes_does_not_import_it(folder: Path) -> None:
    code = "from workers.standalone_runner import Path, cache_client; assert cache_client(Path('no-token'))"
    assert not imports(code, folder, WINDTUNNEL_SCS_NODES="http://10.0.0.1:5080")


def test_dispatch_imports_it_for_a_kubernetes_executor(folder: Path) -> None:
    assert imports(EXECUTORS, folder)
    local = {"executors": [{"name": "here", "kind": "local", "workers": 1}]}
    (folder / "executors.json").write_text(json.dumps(local))
    assert not imports(EXECUTORS, folder)


def test_the_cache_imports_it_for_token_reviews(folder: Path) -> None:
    assert not imports(AUTHENTICATOR, folder)
    assert imports(AUTHENTICATOR + REVIEW, folder)


def test_node_discovery_imports_it_at_its_first_request(folder: Path) -> None:
    server = ScriptedServer()
    server.answers = [response(200, {"items": [], "metadata": {}})]
    kubeconfig = (folder / "kubeconfig").read_text().replace("http://127.0.0.1:9", server.url)
    (folder / "kubeconfig").write_text(kubeconfig)
    code = """
from datasets.scs_client.endpoint_slices import EndpointSlices
from kube.access import access_of
slices = EndpointSlices("windtunnel", "scs", access=access_of("kubeconfig"))
"""
    try:
        assert not imports(code, folder)
        assert imports(code + "assert slices.nodes() == ()", folder)
        assert server.requests[0][1].startswith("/apis/discovery.k8s.io/v1/namespaces/windtunnel/endpointslices")
    finally:
        server.close()
