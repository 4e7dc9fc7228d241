"""Installed files: which distribution each file of an environment belongs to, by the lists that wheels bring (RECORD).

See https://packaging.python.org/en/latest/specifications/recording-installed-packages/. A file of one distribution in
another's package changes what that does, and which of two equal paths wins depends on the order of installation.
"""

import ast
import csv
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path, PurePosixPath

from common.errors import BadRequirements

#: The most bytes of a list, and of a file that may declare a namespace.
LARGEST_RECORD, LARGEST_NAMESPACE = 32 << 20, 64 << 10
#: The file that makes a package of a folder.
PACKAGE = "__init__.py"
#: Statements with which a package says that others may add to it.
NAMESPACES = frozenset(
    {"__path__ = extend_path(__path__, __name__)", "__path__ = pkgutil.extend_path(__path__, __name__)"}
    | {"__path__ = __import__('pkgutil').extend_path(__path__, __name__)"}
    | {"__import__('pkg_resources').declare_namespace(__name__)", "pkg_resources.declare_namespace(__name__)"}
)


def check(sites: Iterable[Path]) -> None:
    """Raise BadRequirements if a distribution has files in another one's package.

    ``sites``: folders that are on one path.
    """
    sites = list(sites)
    owners = _owners(sites)
    packages = {
        folder: names
        for path, names in owners.items()
        if path.name == PACKAGE and not _is_namespace(folder := path.parent, sites)
    }
    for folder, names in packages.items():
        if len(names) > 1:
            raise BadRequirements(f"{' and '.join(sorted(names))} both have the package {folder}; require one of them.")
    for path, names in owners.items():
        for folder in path.parents:
            if (others := packages.get(folder, names)) != names:
                raise BadRequirements(
                    f"The file {path} of {', '.join(sorted(names - others))} is in the package {folder} of"
                    f" {', '.join(sorted(others))}; require one of them, or ask the author for a package of its own."
                )
    for site in sites:
        for path in _unlisted(site, owners):
            above = [folder for folder in path.parents if folder in packages]
            if above:
                raise BadRequirements(
                    f"The file {path}, in the package {above[0]}, is in the list of no distribution; leave out the"
                    " package that brings it, or ask its author for a wheel with a complete RECORD."
                )


def _owners(sites: Iterable[Path]) -> Mapping[PurePosixPath, frozenset[str]]:
    """Return the distributions that have a file, by its path below a site."""
    owners: dict[PurePosixPath, frozenset[str]] = {}
    for record in chain.from_iterable(sorted(site.glob("*.dist-info/RECORD")) for site in sites):
        name = record.parent.name.removesuffix(".dist-info")
        for path in _listed(record):
            owners[path] = owners.get(path, frozenset()) | {name}
    return owners


def _listed(record: Path) -> Iterator[PurePosixPath]:
    if record.is_symlink() or record.stat().st_size > LARGEST_RECORD:
        raise BadRequirements(f"The list {record.parent.name}/{record.name} is too large.")
    with open(record, newline="", encoding="utf-8", errors="surrogateescape") as file:
        for row in csv.reader(file):
            if row:
                yield PurePosixPath(os.path.normpath(row[0]))


def _is_namespace(folder: PurePosixPath, sites: Iterable[Path]) -> bool:
    """Return whether a package only says that its folder is shared: it is empty, or declares a namespace."""
    for site in sites:
        file = site / folder / PACKAGE
        if not file.is_file():
            continue
        try:
            if file.stat().st_size > LARGEST_NAMESPACE:
                return False
            body = ast.parse(file.read_bytes()).body
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        rest = [node for node in body if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant)]
        if not all(_declares_namespace(node) for node in rest):
            return False
    return True


def _declares_namespace(node: ast.stmt) -> bool:
    """Return whether a statement does nothing but share a package's folder, in one of the ways that are in use."""
    match node:
        case ast.Import() | ast.ImportFrom():
            return {alias.name for alias in node.names} <= {"pkgutil", "pkg_resources", "extend_path"}
        case ast.Try():
            return all(
                map(_declares_namespace, (*node.body, *chain.from_iterable(each.body for each in node.handlers)))
            )
        case ast.Assign() | ast.Expr():
            return ast.unparse(node) in NAMESPACES
    return False


def _unlisted(site: Path, owners: Mapping[PurePosixPath, frozenset[str]]) -> Iterator[PurePosixPath]:
    for above, folders, names in os.walk(site):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = PurePosixPath(os.path.relpath(os.path.join(above, name), site))
            if path not in owners:
                yield path
