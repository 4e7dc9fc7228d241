"""Start of models: POST to first result with packages of the model's own, and what each format costs to start and run.

Environments of formats are prepared before; those of the models' own packages are made by a platform that has nothing.
"""

import io
import json
import tempfile
import time
import zipfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.figures import tail
from benchmarks.latency import first_result
from benchmarks.platform_client import JSON, PlatformClient
from benchmarks.platform_process import ENVIRONMENTS, running_platform
from benchmarks.results import milliseconds, number, table
from runtimes import catalogue, environments
from runtimes.formats import formats
from tests.system.format_models import MODELS

#: What a Python model imports and declares, by the name of the row.
PACKAGES: Mapping[str, tuple[str, str]] = {
    "numpy, which is there without asking": ("numpy", ""),
    "scikit-learn": ("sklearn.linear_model", "scikit-learn"),
    "torch": ("torch", "torch"),
}
SOURCE = (
    "import {module}\n\nclass Model:\n    def act(self, observation):\n        return [float(sum(observation) > 0)]\n"
)
#: Warm submissions of a row, the pause before each in seconds, and the scenarios of one.
REPEATS, PAUSE, SCENARIOS = 10, 2.5, 40

HEAD = f"""One worker, {SCENARIOS} scenarios per request, on a platform that keeps warm runners, with a pause of
{PAUSE} s before each warm request. *First*: POST to first result of a model that this platform has never seen. *Warm*:
of the same model again, p50 and maximum. *Scenario*: from the first result to the last, per scenario, p50.

A Python model on `cartpole`, in a new installation with an empty cache of downloads; *first* depends on the network.
*Resolved, installed*: parts of it, bytecode included. *Same lock*: first result of another model with the same lock."""
PACKAGE_COLUMNS = ("packages", "first", "resolved, installed", "same lock", "warm p50, max", "scenario")
FORMATS_HEAD = """A model of each format, made by its library, with state that has to end with the scenario.
*Isolation*: what has a process of its own. *Load*, *act* and *memory* as `POST /v1/models/{model}/check` returns them.
The packages of a format are there before, except PyTorch's, which the first model that needs them installs: see *first*
of `stable_baselines3`, `torch_export` and `torchscript`. A format that is not in the table is not measured yet."""
FORMAT_COLUMNS = ("format", "isolation", "dataset", "first", "warm p50, max", "scenario", "load", "act", "memory")


def archive(module: str, package: str) -> bytes:
    """Return a Python model that imports a module, as a zip that declares its package."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        packed.writestr("model.py", SOURCE.format(module=module))
        if package:
            packed.writestr("requirements.txt", f"{package}\n")
    return buffer.getvalue()


def put(client: PlatformClient, name: str, content: bytes, filename: str) -> None:
    """Store a model under a name."""
    binary = {"Content-Type": "application/octet-stream"}
    client.open("PUT", f"/v1/models/{name}?filename={filename}", content, binary).read()


def staging(client: PlatformClient) -> tuple[float, float]:
    """Return the seconds in which the newest simulation's packages were resolved, and installed; 0 if it has none."""
    id = client.get("/v1/simulations?limit=1")["items"][0]["id"]
    response = client.open("GET", f"/v1/simulations/{id}/events", headers={"Accept": "text/event-stream"})
    data = [line.removeprefix(b"data: ") for line in response.read().split(b"\n") if line.startswith(b"data: ")]
    times: dict[str, float] = {}
    for event in map(json.loads, data):
        words = str(event.get("message", "")).split(" ")[0] if event.get("what") == "environment" else ""
        times.setdefault(words, datetime.fromisoformat(event["at"]).timestamp())
    if "resolving" not in times:
        return 0.0, 0.0
    return times["installing"] - times["resolving"], times["ready"] - times["installing"]


def warm(client: PlatformClient, submission: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Submit repeatedly with pauses; return the times of first results, and the milliseconds of a scenario."""
    firsts, scenarios = [], []
    for _ in range(repeats):
        time.sleep(PAUSE)
        first, last = first_result(client, submission)
        firsts.append(first)
        scenarios.append((last - first) / (SCENARIOS - 1))
    return {"warm": tail(firsts), "scenario": tail(scenarios)}


def measure_packages(repeats: int) -> dict[str, Any]:
    """Measure each declaration on a platform that has no packages and no cache of downloads."""
    figures: dict[str, Any] = {}
    for name, (module, package) in PACKAGES.items():
        with running_platform(workers="1") as platform:
            client = platform.connect()
            put(client, "first", archive(module, package), "model.zip")
            submission = {"model": "first", "dataset": "cartpole", "scenarios": {"range": [0, SCENARIOS]}}
            first, _ = first_result(client, submission)
            resolved, installed = staging(client)
            rows = {"first": first, "resolved": resolved, "installed": installed}
            rows |= warm(client, submission, repeats)
            put(client, "other", archive(f"{module}, math", package), "model.zip")
            rows["same_lock"], _ = first_result(client, submission | {"model": "other"})
            figures[name] = rows
        print(f"{name}: {rows}", flush=True)
    return figures


def prepare(format: str) -> None:
    """Prepare the environment of a format."""
    runtime = next(runtime for runtime in catalogue.runtimes().values() if format in runtime.formats)
    environments.prepare(runtime.formats[format].environment, ENVIRONMENTS, lambda message, fraction: None)


def measure_formats(repeats: int) -> dict[str, Any]:
    """Measure a model of each format, made by its library, on one platform."""
    figures: dict[str, Any] = {}
    with running_platform(workers="1") as platform, tempfile.TemporaryDirectory() as folder:
        for case, made in MODELS.items():  # a format, and what of it is special
            format = case.split(" ")[0]
            prepare(format)
            workspace = Path(folder) / case
            workspace.mkdir()
            name = case.replace("_", "-").replace(" ", "-")
            content = made.make(workspace)
            client = platform.connect()  # a model may take minutes to make, in which an idle connection is closed
            put(client, name, content, made.filename)
            submission: dict[str, Any] = {"model": name, "dataset": made.dataset}
            submission["scenarios"] = {"range": [0, SCENARIOS]}
            first, _ = first_result(client, submission)
            body = json.dumps({"datasets": [made.dataset]}).encode()
            checked = json.loads(client.open("POST", f"/v1/models/{submission['model']}/check", body, JSON).read())
            (check,) = checked["items"]
            rows = {"isolation": formats()[format].isolation, "dataset": made.dataset, "first": first}
            rows |= {name: check[name] for name in ("load_seconds", "act_seconds", "memory")}
            rows |= warm(client, submission, repeats)
            figures[case] = rows
            print(f"{case}: {rows}", flush=True)
    return figures


def measure(repeats: int = REPEATS) -> dict[str, Any]:
    """Measure packages and formats."""
    return {"packages": measure_packages(repeats), "formats": measure_formats(repeats)}


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    packages = [
        [
            name,
            f"{values['first']:.1f} s",
            f"{values['resolved']:.1f} s, {values['installed']:.1f} s",
            f"{values['same_lock']:.2f} s",
            f"{milliseconds(values['warm']['p50'])}, {milliseconds(values['warm']['max'])}",
            milliseconds(values["scenario"]["p50"]),
        ]
        for name, values in figures["packages"].items()
    ]
    rows = [
        [
            f"`{name}`",
            str(values["isolation"]),
            f"{values['dataset']}",
            f"{values['first']:.2f} s",
            f"{milliseconds(values['warm']['p50'])}, {milliseconds(values['warm']['max'])}",
            milliseconds(values["scenario"]["p50"]),
            f"{values['load_seconds']:.2f} s",
            f"{number(values['act_seconds'] * 1e6)} us",
            f"{values['memory'] / 2**20:.0f} MiB",
        ]
        for name, values in sorted(figures["formats"].items())
    ]
    return "\n\n".join((HEAD, table(PACKAGE_COLUMNS, packages), FORMATS_HEAD, table(FORMAT_COLUMNS, rows)))
