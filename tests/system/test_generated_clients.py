"""Clients by openapi-generator, openapi-typescript and oapi-codegen drive a model file from submission to results.

docs/clients.md describes the commands. The programs are in tests/system/clients, one for each client.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cached import TOOLS, tool
from tests.system.platform_process import ROOT, PlatformProcess

CLIENTS = ROOT / "tests" / "system" / "clients"
DOCUMENT = ROOT / "openapi.yaml"
MODEL = "class Model:\n    def act(self, observation):\n        return [0.5] * 4\n"
#: Seconds of one command; a Go client of all operations compiles for a minute.
TIMEOUT = 280


def run(command: Sequence[object], folder: Path, **variables: str) -> str:
    """Return the output of a command that must succeed."""
    process = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, "NO_PROXY": "127.0.0.1", **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
    return process.stdout


def generate(generator: str, target: Path, *options: str) -> None:
    """Write a client with openapi-generator."""
    program = Path(tool("openapi-generator")).with_name("openapi-generator-cli")
    run([program, "generate", "-i", DOCUMENT, "-g", generator, "-o", target, *options], target.parent)


def python(folder: Path) -> list[object]:
    generate("python", folder / "generated", "--package-name", "windtunnel_client")
    (folder / "generated" / "windtunnel_client").rename(folder / "windtunnel_client")
    shutil.copy(CLIENTS / "python" / "program.py", folder)
    return [tool("openapi-generator"), "program.py"]


def typescript(folder: Path) -> list[object]:
    for file in (CLIENTS / "typescript").iterdir():
        shutil.copy(file, folder)
    generate("typescript-fetch", folder / "windtunnel")
    (folder / "node_modules").symlink_to(Path(tool("typescript")) / "node_modules")
    run([TOOLS / "npm", "node", "node_modules/typescript/bin/tsc", "-p", "."], folder)
    return [TOOLS / "npm", "node", "out/program.js"]


def openapi_typescript(folder: Path) -> list[object]:
    packages = Path(tool("typescript")) / "node_modules"
    shutil.copytree(CLIENTS / "openapi-typescript", folder, dirs_exist_ok=True)
    (folder / "node_modules").symlink_to(packages)
    node = TOOLS / "npm", "node"
    run([*node, packages / "openapi-typescript" / "bin" / "cli.js", DOCUMENT, "-o", "windtunnel.d.ts"], folder)
    run([*node, packages / "typescript" / "bin" / "tsc", "-p", "."], folder)
    return [*node, "out/program.js"]


def java(folder: Path) -> list[object]:
    packages = "invokerPackage=windtunnel,apiPackage=windtunnel.api,modelPackage=windtunnel.model"
    # by default a list that is not set would be sent empty: `tasks` beside `range`
    options = f"--additional-properties={packages},useSingleRequestParameter=true,containerDefaultToNull=true"
    generate("java", folder / "generated", "--library", "native", options)
    path = f"classes:{tool('java-libraries')}/*"
    sources = [*(folder / "generated" / "src" / "main" / "java").rglob("*.java"), CLIENTS / "java" / "Program.java"]
    (folder / "classes").mkdir()
    run([TOOLS / "java", "javac", "-encoding", "UTF-8", "-d", "classes", "-cp", path, *sources], folder)
    return [TOOLS / "java", "java", "-cp", path, "Program"]


def go(folder: Path) -> list[object]:
    shutil.copytree(CLIENTS / "go", folder, dirs_exist_ok=True)
    package = folder / "openapi-generator" / "windtunnel"
    generate("go", package, "--additional-properties=packageName=windtunnel,withGoMod=false")
    shutil.rmtree(package / "test")  # examples that need a further package
    run([TOOLS / "go", "build", "-o", "program", "./openapi-generator"], folder)
    return [folder / "program"]


def oapi_codegen(folder: Path) -> list[object]:
    shutil.copytree(CLIENTS / "go", folder, dirs_exist_ok=True)
    package = folder / "oapi-codegen" / "windtunnel"
    package.mkdir()
    run([tool("oapi-codegen"), "-config", "oapi-codegen.yaml", "-o", package / "client.go", DOCUMENT], folder)
    run([TOOLS / "go", "build", "-o", "program", "./oapi-codegen"], folder)
    return [folder / "program"]


@pytest.mark.parametrize("client", [python, typescript, openapi_typescript, go, oapi_codegen, java])
def test_a_client_drives_a_model_file_from_submission_to_results(
    client: Any, platform: PlatformProcess, tmp_path: Path
) -> None:
    model = tmp_path / "half.py"
    model.write_text(MODEL)
    folder = tmp_path / "client"
    folder.mkdir()
    answers = json.loads(run([*client(folder), platform.url, model], folder))
    print(f"{client.__name__}: {answers['seconds']:.2f} s from submission to results")  # `pytest -rP` shows it
    assert answers["fits"] == [True, True], "the check of the form, and that of the JSON"
    assert answers["state"] == "succeeded" and answers["statuses"] == ["ok"] * 4
    assert answers["csv_lines"] == 5 and answers["archive"] == "PK" and answers["events"] >= 3
    assert answers["summary"]["done"] == 4 and answers["summary"]["failed"] == 0
    again, state, done = answers["again"]
    assert (state, done) == ("succeeded", 3) and again != answers["id"]
    assert answers["problem"] == [422, "/problems/unknown-dataset"]
    assert platform.get(answers["id"])["model"]["name"] == "half"
