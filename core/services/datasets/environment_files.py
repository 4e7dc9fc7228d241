"""Files of a dataset's environment: which of a version's files it has, what it declares to need, and its folder."""

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from common.errors import BadRequirements, BadScenario
from datasets.versions import scenarios
from runtimes.dependencies import declaration as declarations
from runtimes.dependencies import lock_files
from runtimes.dependencies.declaration import PROJECT, REQUIREMENTS, UV_LOCK, Declaration
from runtimes.harness.runner.model_folder import link
from runtimes.harness.runner.process_spec import ENVIRONMENT_FOLDERS

#: The environment's own description, and the requirements of its server as `openenv init` writes them.
MANIFEST, SERVER_REQUIREMENTS = "openenv.yaml", "server/requirements.txt"
#: Files of a version that a registration makes: the lock of the packages, and the fields.
LOCK, DESCRIPTION = f"{scenarios.CONVERTED}/requirements.lock", f"{scenarios.CONVERTED}/environment.json"
#: Folders of the dataset as an evaluator sees it (harness/simulators/openenv/simulator.py).
ENVIRONMENT, PACKAGES = "environment", "packages"
#: Folders that tools leave in a project, which are not part of an environment.
LEFT_OUT = frozenset({".venv", ".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
#: The most bytes and files of an environment.
LARGEST, MOST = 256 << 20, 5_000
#: Files that are read here, and the most bytes of each.
_READ: Mapping[str, int] = {
    MANIFEST: 64 << 10,
    PROJECT: declarations.LARGEST,
    REQUIREMENTS: declarations.LARGEST,
    SERVER_REQUIREMENTS: declarations.LARGEST,
    UV_LOCK: lock_files.LARGEST,
}

#: Path, size, and the content of each file.
Files = Sequence[tuple[str, int, Callable[[], Iterable[bytes]]]]


def belongs(path: str) -> bool:
    """Return whether a file of a version is part of its environment."""
    parts = PurePosixPath(path).parts
    return path != scenarios.DESCRIPTION and parts[0] != scenarios.CONVERTED and LEFT_OUT.isdisjoint(parts)


def chosen(entries: Iterable[tuple[str, int, Callable[[], Iterable[bytes]]]]) -> Files:
    """Return the files of an environment. Raises BadScenario if they are too many or too large."""
    files, total = [], 0
    for file in entries:
        if not belongs(file[0]):
            continue
        files.append(file)
        total += file[1]
        if total > LARGEST or len(files) > MOST:
            raise BadScenario(
                f"An environment has at most {MOST:,} files with {LARGEST:,} bytes in all; leave out what it does not"
                " read, such as models and recordings."
            )
    return files


def in_tree(tree: Path) -> Files:
    """Return the files of an environment in the folder of a version's files."""
    paths = [path for path in sorted(tree.rglob("*")) if path.is_file()]
    return chosen((path.relative_to(tree).as_posix(), path.stat().st_size, partial(_pieces, path)) for path in paths)


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def texts(files: Files) -> dict[str, str]:
    """Return the texts of the files that describe an environment. Raises BadScenario."""
    found = {}
    for path, size, content in files:
        if path in _READ:
            if size > _READ[path]:
                raise BadScenario(f"{path} has more than {_READ[path]:,} bytes.")
            try:
                found[path] = b"".join(content()).decode("utf-8-sig")
            except UnicodeDecodeError:
                raise BadScenario(f"{path} is not UTF-8.") from None
    return found


def declaration(texts: Mapping[str, str]) -> Declaration:
    """Return what an environment declares to need. Raises BadRequirements with the file and the line.

    The first of these counts: uv.lock with pyproject.toml, pyproject.toml, requirements.txt, server/requirements.txt.
    """
    if UV_LOCK in texts and PROJECT in texts:
        return lock_files.of_uv_lock(texts[UV_LOCK], texts[PROJECT])
    if PROJECT in texts and (found := declarations.of_pyproject(texts[PROJECT])) is not None:
        return found
    for name in (REQUIREMENTS, SERVER_REQUIREMENTS):
        if name in texts:
            return declarations.of_requirements(texts[name], name)
    raise BadRequirements(
        f"The environment declares no packages: list them, with `openenv`, in [project] dependencies of {PROJECT}."
    )


def package_of(texts: Mapping[str, str]) -> str | None:
    """Return the name of the package that pyproject.toml makes of the environment's folder, if it says so."""
    try:
        document = tomllib.loads(texts.get(PROJECT, ""))
        folders = document["tool"]["setuptools"]["package-dir"]
        return next((str(name) for name, folder in folders.items() if folder == "." and "." not in name), None)
    except (tomllib.TOMLDecodeError, RecursionError, KeyError, TypeError, AttributeError):
        return None


def write(files: Files, folder: Path, package: str, installed: Path) -> None:
    """Write an environment and its packages into a folder, as an evaluator reads them.

    ``installed``: the folder of its packages, as they were installed (runtimes/dependencies/installer.py).
    """
    for path, _, content in files:
        target = folder / ENVIRONMENT / package / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "wb") as file:
            file.writelines(content())
        target.chmod(0o444)
    for above, _, _ in os.walk(folder / ENVIRONMENT):
        os.chmod(above, 0o755)  # an evaluator has a user of its own
    for name in ENVIRONMENT_FOLDERS:
        place(installed / name, folder)


def place(site: Path, folder: Path) -> None:
    """Make the packages of an environment appear in a folder, as hard links."""
    for above, names in _walked(site):
        target = folder / PACKAGES / above
        target.mkdir(exist_ok=True)
        target.chmod(0o755)
        for name in names:
            if not (target / name).exists():  # a file that two packages have is the same in both
                link(str(site / above / name), str(target / name))


def _walked(site: Path) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each folder below a site, relative to it, with the names of its files; links are left out."""
    for above, _, names in os.walk(site):
        yield os.path.relpath(above, site), [name for name in names if not os.path.islink(os.path.join(above, name))]
