"""Fixtures of sandbox tests: a runner stub to attack, shared files, and a Python that every user may run."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacks import HARNESS, HERE, USERS, AttackRunner, SandboxFiles, python_for_all


@pytest.fixture(scope="session")
def sandbox_files() -> Iterator[SandboxFiles]:
    """Files for all tests of this process, not below pytest's folders, which other users cannot read."""
    folder = Path(tempfile.mkdtemp(prefix="windtunnel-sandbox-"))
    folder.chmod(0o755)
    old = os.umask(0o022)
    try:
        shutil.copytree(HERE / "inside", folder / "inside", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(HARNESS / "sandbox", folder / "sandbox", ignore=shutil.ignore_patterns("__pycache__"))
        yield SandboxFiles(folder, python_for_all(folder / "python"))
    finally:
        os.umask(old)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def best_levels(sandbox_files: SandboxFiles) -> dict[str, int]:
    """The highest sandbox level of each user on this machine."""
    return {user: int(sandbox_files.run(user, "print(level().number)").stdout) for user in USERS}


@pytest.fixture
def attack_runner(request: pytest.FixtureRequest, sandbox_files: SandboxFiles) -> Iterator[AttackRunner]:
    """Attack runner with a runner stub, a shared environment and a stored model of the user in the test's parameter."""
    user: str = request.param
    folder = Path(tempfile.mkdtemp(prefix="windtunnel-attacks-"))
    try:
        for name in ("runner", "environment", "models", "tmp"):
            (folder / name).mkdir()
        (folder / "environment" / "module.py").write_text("answer = 42\n")
        (folder / "models" / "model.bin").write_bytes(b"weights")
        folder.chmod(0o755)
        if os.geteuid() == 0:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, USERS[user], USERS[user])
        with sandbox_files.start(
            user,
            "runner_stub.py",
            str(folder / "runner"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"TOKEN": "wt-secret"},
        ) as runner:
            assert runner.stdout is not None and runner.stdin is not None
            targets = json.loads(runner.stdout.readline()) | {
                "environment": str(folder / "environment"),
                "module": str(folder / "environment" / "module.py"),
                "model": str(folder / "models" / "model.bin"),
            }
            yield AttackRunner(sandbox_files, folder, user, targets)
            runner.stdin.close()
    finally:
        shutil.rmtree(folder)
