"""A folder of packages as the root of a confined process, for root and for an ordinary user."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacks import USERS, SandboxFiles

from tests.package_trees import PROGRAMS, make_tree


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    """A tree that every user may read."""
    folder = Path(tempfile.mkdtemp(prefix="windtunnel-tree-"))
    make_tree(folder / "root")
    yield folder / "root"
    shutil.rmtree(folder)


def run_shell(files: SandboxFiles, user: str, tree: Path, script: str, level: int = 3) -> tuple[int, list[str], str]:
    """Run a shell's script in the tree as a user; return exit status, printed lines and errors."""
    confinement = {"root": str(tree), "hosts": ["ranks"], "libraries": 1 << 40, "level": level}
    program = f"PATH=/usr/bin; {script}"
    code = f"confine(Confinement(**{confinement!r})); os.execv('/bin/sh', ['sh', '-c', {program!r}])"
    ended = files.run(user, code)
    return ended.returncode, ended.stdout.decode().split(), ended.stderr.decode()


@pytest.mark.parametrize("user", USERS)
def test_the_root_is_the_tree_and_read_only(
    sandbox_files: SandboxFiles, best_levels: dict[str, int], tree: Path, user: str
) -> None:
    if best_levels[user] < 3:
        pytest.skip("this user has no namespaces here")
    script = "cat /etc/of-the-tree; echo; ls /usr/bin; touch /tmp/x && echo written; touch /usr/x || echo refused"
    code, lines, errors = run_shell(sandbox_files, user, tree, script)
    assert (code, lines) == (0, ["tree", *sorted(PROGRAMS), "written", "refused"]), errors
    _, lines, _ = run_shell(sandbox_files, user, tree, "cat /etc/passwd; ls /")
    assert lines[0].startswith("ranks:x:")
    seen = {"bin", "dev", "etc", "lib", "lib64", "proc", "sys", "tmp", "usr", "windtunnel"}
    assert set(lines[1:]) <= seen
    assert os.listdir(tree / "etc") and (tree / "etc/passwd").read_bytes() == b""


@pytest.mark.parametrize("user", USERS)
def test_without_namespaces_a_root_is_refused(sandbox_files: SandboxFiles, tree: Path, user: str) -> None:
    code, _, errors = run_shell(sandbox_files, user, tree, "true", level=2)
    assert code != 0
    assert "a root of packages needs level 3, and this is level 2" in errors
