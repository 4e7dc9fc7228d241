"""Images built without a daemon, unpacked and run as in a cluster: unprivileged, with a read-only root file system."""

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtimes.catalogue import simulators
from runtimes.images import build, image_names
from tests.cached import image
from tests.image_archives import unpack

ROOT = Path(__file__).parents[2]
#: Modules that each image must be able to import: its main libraries, and the platform's modules that it runs.
IMPORTS = {
    **{name: f"runtimes.harness.evaluator.evaluator, runtimes.harness.simulators.{name}" for name in simulators()},
    "server": "app, core.store.migrate, datasets.scs.requests, workers.dispatcher, kube.connection, psycopg",
    "jobs": "app, workers.background_jobs",
    "fmu": "fmpy.fmi3, runtimes.harness.model_server.model_server, runtimes.harness.models.fmu",
    "gymnasium": "gymnasium, highway_env, runtimes.harness.evaluator.evaluator, runtimes.harness.simulators.gymnasium",
    "jax": "jax.export, flatbuffers, runtimes.harness.model_server.model_server, runtimes.harness.models.jax",
    "litert": "ai_edge_litert.interpreter, runtimes.harness.model_server.model_server, runtimes.harness.models.tflite",
    "lightgbm": "lightgbm, runtimes.harness.model_server.model_server, runtimes.harness.models.lightgbm",
    "mujoco": "gymnasium, mujoco, runtimes.harness.evaluator.evaluator, runtimes.harness.simulators.mujoco",
    "noop": "numpy.testing, runtimes.harness.evaluator.evaluator, runtimes.harness.simulators.noop",
    "onnx": "onnxruntime, runtimes.harness.model_server.model_server, runtimes.harness.models.onnx",
    "openenv": "runtimes.harness.evaluator.evaluator, runtimes.harness.simulators.openenv.simulator",
    "pettingzoo": "pettingzoo.sisl, mpe2, runtimes.harness.evaluator.evaluator, runtimes.harness.simulators.pettingzoo",
    "plant": "fmpy.fmi3, runtimes.harness.evaluator.evaluator, runtimes.harness.simulators.plant.simulator",
    "python": "numpy, runtimes.harness.model_server.model_server, runtimes.harness.models.python",
    "scikit-learn": "sklearn.svm, runtimes.harness.model_server.model_server, runtimes.harness.models.scikit_learn",
    "sumo": "libsumo, sumolib, runtimes.harness.evaluator.evaluator, runtimes.harness.simulators.sumo.simulator",
    "tensorflow": "tensorflow, runtimes.harness.model_server.model_server, runtimes.harness.models.keras",
    "wasm": "wasmtime, runtimes.harness.model_server.model_server, runtimes.harness.models.wasm",
    "xgboost": "xgboost, runtimes.harness.model_server.model_server, runtimes.harness.models.xgboost",
}
pytestmark = pytest.mark.timeout(1200)  # the first time, hundreds of megabytes are downloaded

#: Sets up the root file system as in a pod: read-only, with writable mounts.
SETUP_SCRIPT = """
root=$1; shift; inside=$PATH; PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount --bind "$root" "$root"; mount -o remount,bind,ro "$root"
mount -t tmpfs tmpfs "$root/tmp"; mount -t tmpfs -o mode=1777 tmpfs "$root/var/lib/windtunnel"
mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"
chroot=$(command -v chroot); PATH=$inside; exec "$chroot" "$@"
"""


class Container:
    """An unpacked image in which commands are run."""

    def __init__(self, root: Path, config: dict[str, Any]) -> None:
        self.root = root
        self.environ = dict(pair.split("=", 1) for pair in config["Env"])
        self.user = str(config["User"])
        self.entrypoint: list[str] = config["Entrypoint"]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as the image's user, or without root as the user of a user namespace."""
        user = [f"--userspec={self.user}"] if AS_ROOT else []
        unshare = ["/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child"]
        unshare += [] if AS_ROOT else ["--map-root-user"]
        setup = ["/bin/sh", "-euc", SETUP_SCRIPT, "setup", str(self.root), *user, str(self.root), *command]
        return subprocess.run([*unshare, *setup], env=self.environ, capture_output=True, text=True, timeout=240)

    def python(self, code: str) -> str:
        """Run Python code and return its output."""
        process = self.run(build.PYTHON, "-c", code)
        assert process.returncode == 0, process.stderr
        return process.stdout


AS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def unpacked() -> Iterator[Callable[[str], Container]]:
    """Build and unpack images, each once; delete them afterwards, as some are large."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)

        @functools.cache
        def container(name: str) -> Container:
            root = Path(folder, name)
            root.mkdir(mode=0o755)
            return Container(root, unpack(image(name).archive, root))

        yield container


def test_the_same_inputs_give_the_same_image_bit_for_bit(tmp_path: Path) -> None:
    first, second = (build.build(image_names.images()["noop"], tmp_path / name) for name in ("one", "two"))
    assert first.fresh and second.fresh
    assert first.digest == second.digest
    assert first.archive.read_bytes() == second.archive.read_bytes()
    assert not build.build(image_names.images()["noop"], tmp_path / "one").fresh


def test_every_image_has_a_test() -> None:
    assert set(IMPORTS) == set(image_names.images())


@pytest.mark.parametrize("name", sorted(IMPORTS))
def test_an_image_contains_compiled_modules_and_is_read_only(name: str, unpacked: Callable[[str], Container]) -> None:
    report = json.loads(unpacked(name).python(f"import {IMPORTS[name]}\n{REPORT_SCRIPT}"))
    assert report["uncompiled"] == []
    assert report["writable"] == []
    assert report["user"] == (10001 if AS_ROOT else 0)
    assert report["prefix"] == "/opt/windtunnel/python"
    assert {"cpython", "numpy"} <= {component["name"] for component in report["bill"]["components"]}


REPORT_SCRIPT = """
import json, os, sys
modules = [module for module in list(sys.modules.values()) if getattr(module, "__cached__", None)]
def is_writable(path):
    try:
        open(path + "/x", "w").close()
        return True
    except OSError:
        return False
print(json.dumps({
    "uncompiled": [module.__name__ for module in modules if not os.path.exists(module.__cached__)],
    "writable": [path for path in ("/", "/etc", "/opt/windtunnel", "/opt/windtunnel/src") if is_writable(path)],
    "user": os.getuid(),
    "prefix": sys.prefix,
    "bill": json.load(open("/opt/windtunnel/sbom.json")),
}))
"""


def test_the_image_of_the_server_lists_its_roles_and_runs_migrate(unpacked: Callable[[str], Container]) -> None:
    server = unpacked("server")
    process = server.run(*server.entrypoint)
    assert process.returncode == 2
    assert "dispatch" in process.stderr
    process = server.run(*server.entrypoint, "migrate")
    assert process.returncode == 0, process.stderr


def test_a_server_computes_the_names_of_its_other_images(unpacked: Callable[[str], Container]) -> None:
    code = "from runtimes.images import image_names as n; print(*(n.image_of(name) for name in list(n.images())[2:]))"
    output = unpacked("server").python(code).split()
    assert output == [image_names.image_of(name) for name in list(image_names.images())[2:]]


def test_the_image_of_jobs_contains_prepared_simulators(unpacked: Callable[[str], Container]) -> None:
    code = """
from pathlib import Path
from runtimes import environments
from runtimes.images import image_names
print(*(environments.ready(spec, Path("/var/lib/windtunnel")) for spec in image_names.images()["jobs"].brings))
"""
    output = unpacked("jobs").python(code).split()
    assert len(output) == len(image_names.images()["jobs"].brings)
    assert all(path.startswith("/opt/windtunnel/environments/") for path in output)


def test_sumo_runs_in_its_image(unpacked: Callable[[str], Container]) -> None:
    code = """
import libsumo
libsumo.start(["sumo", "-n", "/opt/windtunnel/src/datasets/catalogue/car_street/nets/arterial.net.xml"])
libsumo.simulationStep()
print(libsumo.simulation.getTime())
"""
    assert float(unpacked("sumo").python(code).split()[-1]) > 0
