"""Shared imports of Python models: which modules a zygote imports before it forks, from which distribution."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Prints what is shared for a model's source, with a folder of packages on the path.
PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from runtimes.harness.models.shared_imports import import_shared
files = Path(sys.argv[4]) if len(sys.argv) > 4 and sys.argv[4] else None
packages = Path(sys.argv[5]) if len(sys.argv) > 5 else None
print(import_shared(sys.argv[3].encode(), files, packages))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages with a scikit-learn that has one module, and a package of another distribution."""
    for folder in ("sklearn", "scipy", "scikit_learn-1.0.dist-info"):
        (tmp_path / "site" / folder).mkdir(parents=True)
    (tmp_path / "site" / "sklearn" / "__init__.py").write_text("")
    (tmp_path / "site" / "sklearn" / "svm.py").write_text("")
    (tmp_path / "site" / "sklearn" / "broken.py").write_text("raise SystemExit('broken')")
    (tmp_path / "site" / "scipy" / "__init__.py").write_text("raise RuntimeError('this is not scipy')")
    return tmp_path / "site"


def shared(site: Path, source: str, files: Path | None = None, packages: Path | None = None) -> str:
    further = [str(files or ""), *([str(packages)] if packages else [])]
    command = [sys.executable, "-S", "-c", PROGRAM, str(ROOT), str(site), source, *further]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout.strip()


@pytest.mark.parametrize(
    ("source", "modules"),
    [
        ("import sklearn", ["sklearn"]),
        ("from sklearn.svm import SVC", ["sklearn.svm"]),
        ("class Model:\n    def __init__(self):\n        import sklearn.svm", ["sklearn.svm"]),
        ("from sklearn import missing", ["sklearn"]),
        ("import sklearn.missing", []),
        ("import sklearn.broken", []),
        ("import os, json", []),
        ("import scipy", []),
        ("import numpy\nsklearn = 1", []),
        ("import (", []),
    ],
)
def test_the_modules_of_shared_libraries_that_a_model_imports_are_imported(
    site: Path, source: str, modules: list[str]
) -> None:
    assert shared(site, source) == str(modules)


def test_imports_in_other_files_of_a_model_count(site: Path, tmp_path: Path) -> None:
    (tmp_path / "files" / "parts").mkdir(parents=True)
    (tmp_path / "files" / "parts" / "policy.py").write_text("from sklearn import svm")
    assert shared(site, "import parts.policy", tmp_path / "files") == "['sklearn']"


def test_a_module_of_the_model_that_has_the_name_of_a_library_is_not_imported(site: Path, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "sklearn.py").write_text("raise SystemExit('code of the model ran in the zygote')")
    assert shared(site, "import sklearn", tmp_path / "files") == "[]"


@pytest.mark.parametrize(
    ("module", "modules"),
    [
        (None, ["sklearn"]),
        ("other/__init__.py", ["sklearn"]),
        ("wanted/__init__.py", []),
        ("wanted.py", []),
        ("wanted/in_a_namespace.py", []),
    ],
)
def test_a_library_that_looks_for_a_package_of_the_model_is_not_shared(
    site: Path, tmp_path: Path, module: str | None, modules: list[str]
) -> None:
    """It would go without that package, which is not on the path of a zygote; none of its code is run."""
    (site / "sklearn" / "__init__.py").write_text("try:\n    import wanted\nexcept ImportError:\n    wanted = None\n")
    packages = tmp_path / "packages"
    packages.mkdir()
    if module is not None:
        (packages / module).parent.mkdir(exist_ok=True)
        (packages / module).write_text("raise SystemExit('code of the model ran in the zygote')")
    assert shared(site, "import sklearn", packages=packages) == str(modules)
