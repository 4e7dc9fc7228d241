"""Shared imports: libraries that a zygote imports for all scenarios of a Python model, because an import takes long.

Only libraries that keep nothing of a scenario and start no thread when they are imported, and only from the
distribution of their name: a module of the same name in another distribution, or in the model, is imported by each
scenario's process. Packages that a model has declared are not on the path of a zygote. A library that looks for one of
them when it is imported would go without it, and is not shared: a child of the zygote tries that before.
"""

import ast
import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

#: Packages that are shared, with the name of their distribution as its metadata folder has it.
SHARED: Mapping[str, str] = {
    "joblib": "joblib",
    "pandas": "pandas",
    "scipy": "scipy",
    "sklearn": "scikit_learn",
}
#: The most files of a model that are searched for imports, and the most bytes of each.
FILES, LARGEST = 50, 1 << 20


def import_shared(source: bytes, files: Path | None, packages: Path | None = None) -> list[str]:
    """Import the shared libraries' modules that a model's files import; return their names.

    ``packages``: the folder of those that are not the platform's own. A module that cannot be imported is left to the
    scenario's process, which reports the error.
    """
    names = [name for name in sorted(_imports(source, files)) if _is_shared(name, files)]
    if not names or (packages is not None and _look_for(names, packages)):
        return []
    return [name for name in names if _imported(name)]


def _imported(name: str) -> bool:
    with contextlib.suppress(BaseException):
        importlib.import_module(name)
        return True
    return False


def _look_for(names: Sequence[str], packages: Path) -> bool:
    """Whether these modules look for one of ``packages`` when they are imported: in a child, which ends with it."""
    if not any(packages.iterdir()):
        return False
    trying = os.fork()
    if trying == 0:
        code = 1
        with contextlib.suppress(BaseException):
            finder = _Finder(str(packages))
            sys.meta_path.append(finder)
            for name in names:
                _imported(name)
            code = int(finder.found)
        os._exit(code)
    return os.waitpid(trying, 0)[1] != 0


class _Finder:
    """Finds nothing, and notes whether a module that is in none of the folders before it is in this one."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.found = False

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Tell that there is no such module."""
        if path is None and PathFinder.find_spec(name, [self._folder]) is not None:
            self.found = True


def _imports(source: bytes, files: Path | None) -> set[str]:
    names = set(_names(source))
    for path in sorted(files.rglob("*.py"))[:FILES] if files is not None else ():
        with contextlib.suppress(OSError), open(path, "rb") as file:
            names |= set(_names(file.read(LARGEST)))
    return names


def _names(source: bytes) -> Iterator[str]:
    """Yield the modules that a file imports, wherever in it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _is_shared(name: str, files: Path | None) -> bool:
    package = name.partition(".")[0]
    distribution = SHARED.get(package)
    if distribution is None:
        return False
    if files is not None and ((files / package).exists() or (files / f"{package}.py").exists()):
        return False  # the model's own module comes first
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return False
    site = os.path.dirname(os.path.dirname(spec.origin))
    return site in sys.path and any(Path(site).glob(f"{distribution}-*.dist-info"))
