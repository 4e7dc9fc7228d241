"""Packages that a model has declared: their code runs in the process of a scenario alone, and so remembers nothing."""

import shutil
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from runtimes.harness import sandbox
from tests.contracts.harness_processes import evaluator_pair, play_of, worker_spec

SITE = Path(sysconfig.get_paths()["purelib"])
#: Memory that a process shares with those that are forked from it, made wherever this is imported.
SHARED_PAGE = "import mmap\nNOTE = mmap.mmap(-1, 4096)\n"
#: The same in a file without a name, which nothing can remove from /tmp.
UNNAMED_FILE = """
import mmap, os, tempfile
try:
    file = tempfile.NamedTemporaryFile()
    file.truncate(4096)
    NOTE = mmap.mmap(file.fileno(), 4096)
    file.close()
except OSError:
    NOTE = bytearray(1)
"""
#: A file that no code of its own needs to import: numpy, or scikit-learn, does so when it is imported itself.
NOTEBOOKS = {
    "a page shared with numpy's zygote": ("numpy._distributor_init_local", SHARED_PAGE),
    "a file without a name": ("numpy._distributor_init_local", UNNAMED_FILE),
    "a page shared with a library's zygote": ("sklearn", SHARED_PAGE),
}
#: Becomes another program, unless that is refused.
EXECUTES = """
import os
try:
    os.execv("/bin/true", ["true"])
except OSError as error:
    HOW = type(error).__name__
"""
#: Says what it has read, and writes the next number.
MODEL = """
import importlib
import sklearn
notebook = importlib.import_module("{module}")
class Model:
    def act(self, observation):
        read = notebook.NOTE[0]
        notebook.NOTE[0] = read + 1
        raise RuntimeError(f"read {{read}}")
"""


#: Whose numpy and msgspec an environment has.
OURS, THEIRS = "the platform's numpy", "a numpy of its own"


@pytest.fixture(params=[OURS, THEIRS])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An environment of a model's packages, whose numpy is the platform's own, or another one."""
    shared = "shared" if request.param == OURS else "site"
    for name in ("numpy", "numpy.libs", "msgspec"):
        if (source := SITE / name).is_dir():
            ignored = shutil.ignore_patterns("tests", "__pycache__")
            shutil.copytree(source, tmp_path / "environment" / shared / name, ignore=ignored)
    (tmp_path / "environment" / "site" / "sklearn").mkdir(parents=True)
    (tmp_path / "environment" / "site" / "sklearn" / "__init__.py").touch()
    (tmp_path / "environment" / "site" / "scikit_learn-1.0.dist-info").mkdir()
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    return tmp_path / "environment"


def errors(environment: Path, source: str, **changes: Any) -> list[str]:
    values = {"model_server_site": "", "model_environment": str(environment), "isolation": "scenario"}
    spec = worker_spec(**(values | {"sandbox": sandbox.level().number} | changes))
    with evaluator_pair(spec, source, play_of(isolation=spec.isolation)) as pair:
        return [result["error"] for result in pair.run(0, 3)]


@pytest.mark.parametrize(
    ("environment", "notebook"),
    [(THEIRS, notebook) for notebook in NOTEBOOKS] + [(OURS, "a page shared with a library's zygote")],
    indirect=["environment"],
)
def test_a_package_remembers_nothing_over_scenarios(environment: Path, notebook: str) -> None:
    module, code = NOTEBOOKS[notebook]
    package, _, name = module.partition(".")
    folder = environment / "site" / package
    (folder / f"{name or '__init__'}.py").write_text(code)
    read = errors(environment, MODEL.format(module=module))
    assert [error.partition(" (")[0] for error in read] == ["RuntimeError: read 0"] * 3


def test_the_platforms_own_numpy_comes_before_files_of_others_in_its_name(environment: Path) -> None:
    own = (environment / "site" / "numpy").exists()
    (environment / "site" / "numpy").mkdir(exist_ok=True)
    (environment / "site" / "numpy" / "_distributor_init_local.py").write_text("import numpy\nnumpy.MINE = True\n")
    source = "import numpy\nclass Model:\n def act(self, o): raise RuntimeError(hasattr(numpy, 'MINE'))"
    assert [f"RuntimeError: {own}" in error for error in errors(environment, source)] == [True] * 3


@pytest.mark.parametrize(
    ("environment", "isolation"),
    [(OURS, "scenario"), (THEIRS, "scenario"), (THEIRS, "launch")],
    indirect=["environment"],
)
def test_a_model_with_packages_of_its_own_plays(environment: Path, isolation: str) -> None:
    (environment / "site" / "extra.py").write_text("ZERO = 0.0")
    source = "import numpy, extra\nclass Model:\n def act(self, o): return numpy.full(4, extra.ZERO, 'float32')"
    assert errors(environment, source, isolation=isolation) == [None] * 3


@pytest.mark.parametrize("environment", [THEIRS], indirect=True)
def test_packages_of_a_model_are_not_imported_before_the_seal(environment: Path) -> None:
    """A library of the launch's only process could otherwise execute another program, or filter what it may call."""
    for isolation in ("scenario", "launch"):
        (environment / "site" / "early.py").write_text(EXECUTES)
        source = "import early\nclass Model:\n def act(self, o): raise RuntimeError(early.HOW)"
        assert all("PermissionError" in error for error in errors(environment, source, isolation=isolation))
