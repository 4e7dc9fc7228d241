"""The package `windtunnel` alone in an environment: it imports nothing of the server, and programs find its types."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.platform_process import ROOT

#: A program of a user; mypy has to find the types of all that it uses.
PROGRAM = """
import asyncio

from windtunnel import AsyncClient, Client, Refused, Simulation


def best(url: str) -> tuple[str, float | None]:
    with Client(url, patience=5.0) as client:
        simulation: Simulation = client.run("policy.onnx", "car_street", scenarios="0-9", params={"latency_steps": 2})
        outcomes = [str(result.metrics["outcome"]) for result in client.simulations.results(simulation.id)]
        return max(outcomes), simulation.score.mean if simulation.score else None


async def names(url: str) -> list[str]:
    async with AsyncClient(url) as client:
        try:
            return [item.id async for item in client.simulations.list(state="failed", limit=3)]
        except Refused as refusal:
            return [refusal.type]


print(asyncio.run(names("http://localhost:5000")))
"""
#: The same with a mistake in each line, which mypy has to find.
MISTAKEN = """
from windtunnel import Client

with Client() as client:
    client.run("policy.onnx").stat
    client.simulations.get(5)
    for event in client.simulations.events("x"):
        event.numbre
    client.run("idm", "car_street", scenario=[0])
"""
#: Modules that are run, or need an extra of the package.
_GYM = ("gym", "gym_spaces", "gym_vector", "local_sessions", "scenario_order", "step_exchange", "step_memory")
LEFT_OUT = ("__main__", "mcp_server", "pettingzoo", *_GYM)
#: Packages of the server: none of them may come with the client.
SERVER = "flask sqlalchemy redis rq granian kubernetes minio pyarrow numpy server api core".split()


def run(*command: object, cwd: Path) -> str:
    """Run a command that must succeed and return its output."""
    process = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=280)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel in `wheels` and an environment in `venv` into which plain pip has installed it."""
    folder = tmp_path_factory.mktemp("package")
    run(
        Path(sys.executable).with_name("uv"),
        "build",
        "--quiet",
        "--out-dir",
        folder / "wheels",
        ROOT / "cli",
        cwd=folder,
    )
    run(sys.executable, "-m", "venv", "venv", cwd=folder)
    [wheel] = (folder / "wheels").glob("*.whl")
    run("venv/bin/python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return folder


def test_the_installed_command_starts_without_any_package_of_the_server(folder: Path) -> None:
    assert run("venv/bin/windtunnel", "--version", cwd=folder).startswith("windtunnel 0.")
    program = (
        "import sys, pkgutil, importlib, windtunnel\n"
        "for module in pkgutil.walk_packages(windtunnel.__path__, 'windtunnel.'):\n"
        f"    if module.name.rpartition('.')[2] not in {LEFT_OUT}: importlib.import_module(module.name)\n"
        "[getattr(windtunnel, name) for name in windtunnel.__all__]\n"
        f"print(sorted(set({SERVER!r}) & set(sys.modules)))\n"
    )
    assert run("venv/bin/python", "-W", "error", "-c", program, cwd=folder) == "[]\n"


def test_programs_of_users_are_checked_by_its_types(folder: Path) -> None:
    (folder / "program.py").write_text(PROGRAM)
    (folder / "mistaken.py").write_text(MISTAKEN)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--python-executable", "venv/bin/python"]
    run(*mypy, "program.py", cwd=folder)
    process = subprocess.run([*mypy, "mistaken.py"], cwd=folder, capture_output=True, text=True, timeout=280)
    found = [line.split(":")[1] for line in process.stdout.splitlines() if "error:" in line]
    assert set(found) == {"5", "6", "8", "9"}, process.stdout
