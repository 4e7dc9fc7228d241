"""A real MLflow tracking server for tests, with SQLite and artifacts that it serves, and a client process that logs."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cached import tool
from tests.ports import free_ports
from tests.system.platform_process import die_with
from tests.waiting import until

#: Seconds until a started server must answer on a busy machine.
START_TIMEOUT = 120.0
#: Logs three models with MLflow's client, an artifact and folders like those of other flavours; prints their ids.
LOGGING = """
import json, pathlib, sys, tempfile
import mlflow, mlflow.onnx, mlflow.pyfunc, mlflow.sklearn, numpy as np
from onnx import TensorProto, helper
from sklearn.linear_model import LinearRegression

weights = helper.make_tensor("W", TensorProto.FLOAT, [4, 1], [0, 0, 1, 1])
value = helper.make_tensor_value_info
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "W"], ["y"])],
    "g",
    [value("x", TensorProto.FLOAT, ["N", 4])],
    [value("y", TensorProto.FLOAT, ["N", 1])],
    [weights],
)
policy = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
policy.ir_version = 8

wide = np.tile(np.eye(4, dtype=np.float32), 128)
matrices = {"A": wide / 128, "B": wide.T}
parts = [helper.make_tensor(n, TensorProto.FLOAT, m.shape, m.tobytes(), raw=True) for n, m in matrices.items()]
nodes = [helper.make_node("MatMul", ["x", "A"], ["h"]), helper.make_node("MatMul", ["h", "B"], ["y"])]
values = [[value(n, TensorProto.FLOAT, ["N", 4])] for n in ("x", "y")]
large = helper.make_model(helper.make_graph(nodes, "g", *values, parts), opset_imports=[helper.make_opsetid("", 17)])
large.ir_version = 8

class Echo(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return model_input

with mlflow.start_run() as run, tempfile.TemporaryDirectory() as scratch:
    logged = mlflow.onnx.log_model(policy, name="policy", registered_model_name="pole")
    mlflow.onnx.log_model(large, name="large", save_as_external_data=True)
    mlflow.sklearn.log_model(
        LinearRegression().fit(np.zeros((5, 4)), np.arange(5)), name="estimator", registered_model_name="estimator"
    )
    mlflow.pyfunc.log_model(name="echo", python_model=Echo(), registered_model_name="echo")
    for path, text in json.loads(sys.argv[1]).items():
        file = pathlib.Path(scratch, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    mlflow.log_artifacts(scratch)
mlflow.MlflowClient().set_registered_model_alias("pole", "champion", 1)
print(json.dumps({"run": run.info.run_id, "model": logged.model_id}))
"""


class MlflowTestServer:
    """A tracking server in a folder, on a port that stays the same over restarts."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.python = tool("mlflow")
        self.port = free_ports(1)[0]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._environ = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "MlflowTestServer":
        """Start or restart the server and wait until it answers."""
        parent = os.getpid()
        command = [self.python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db", "--workers", "1"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        with open(self.folder / "server.log", "ab") as output:
            self._process = subprocess.Popen(
                command,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),
            )
        until(self.answers, START_TIMEOUT, lambda: (self.folder / "server.log").read_text()[-3000:])
        return self

    def answers(self) -> bool:
        """Return whether the server answers."""
        try:
            return httpx.get(f"{self.uri}/health", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def log(self, files: dict[str, str]) -> dict[str, str]:
        """Log models and these artifacts to a new run; return the ids of the run and the ONNX model."""
        logged = subprocess.run(
            [self.python, "-c", LOGGING, json.dumps(files)],
            env={**self._environ, "MLFLOW_TRACKING_URI": self.uri},
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert logged.returncode == 0, logged.stderr[-3000:]
        ids: dict[str, str] = json.loads(logged.stdout.strip().splitlines()[-1])
        return ids

    def run(self, id: str) -> dict[str, Any]:
        """Return the data of a run as the server's pages show it: metrics and tags by name."""
        answer = httpx.get(f"{self.uri}/api/2.0/mlflow/runs/get", params={"run_id": id})
        data = answer.raise_for_status().json()["run"]["data"]
        return {kind: {item["key"]: item["value"] for item in data.get(kind, [])} for kind in ("metrics", "tags")}

    def history(self, run: str, metric: str) -> list[dict[str, Any]]:
        """Return all values that were logged of a metric."""
        params = {"run_id": run, "metric_key": metric}
        answer = httpx.get(f"{self.uri}/api/2.0/mlflow/metrics/get-history", params=params)
        values: list[dict[str, Any]] = answer.raise_for_status().json().get("metrics", [])
        return values

    def kill(self) -> None:
        """End the server with all of its processes."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowTestServer]:
    """A tracking server for the tests of a file."""
    server = MlflowTestServer(tmp_path_factory.mktemp("mlflow")).start()
    try:
        yield server
    finally:
        server.kill()
