"""Lock files that people bring: uv.lock and pylock.toml (PEP 751), read as versions and hashes for the resolution.

A lock is taken at its word for versions and hashes, and not for addresses: files come from the operator's indexes, and
have to be those of the lock.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from common.errors import BadRequirements
from runtimes.dependencies.declaration import (
    LONGEST,
    MOST,
    Declaration,
    of_pyproject,
    python_of,
    requirement_of,
    toml_of,
)

#: The most bytes of a lock file.
LARGEST = 4 << 20
#: The most characters of an environment marker, and of all of a lock; those of uv.lock name every supported platform.
LONGEST_MARKER, LONGEST_MARKERS = 20_000, 500_000
_SHA256 = re.compile(r"(sha256:)?[0-9a-f]{64}")
#: Sources of packages in locks other than wheels of an index.
_OTHER_SOURCES = ("git", "url", "path", "directory", "editable", "virtual", "vcs", "archive")


def of_uv_lock(lock: str, pyproject: str, file: str = "uv.lock") -> Declaration:
    """Read uv.lock, for the dependencies of the pyproject.toml beside it."""
    declaration = of_pyproject(pyproject)
    if declaration is None:
        raise BadRequirements(f"{file} locks the dependencies of pyproject.toml, which declares none.")
    constraints, hashes = [], {}
    characters = 0
    for package in _packages(toml_of(lock, file), "package", file):
        source = package.get("source")
        if not isinstance(source, dict):
            raise BadRequirements(f"{file}: the package {_name(package, file)} has no source.")
        if source.get("virtual") == "." or source.get("editable") == ".":
            continue  # the project itself
        pin = _pin(package, source, file)
        markers = package.get("resolution-markers", [])
        if not isinstance(markers, list):
            raise BadRequirements(f"{file}: resolution-markers of {_name(package, file)} is not a list.")
        characters += sum(len(str(text)) for text in markers)
        _check_markers(characters, file)
        marker = _marker(" or ".join(f"({text})" for text in markers), file) if markers else ""
        constraints.append(f"{pin} ; {marker}" if marker else pin)
        hashes[pin] = _wheel_hashes(package, file)
    return replace(declaration, file=file, constraints=tuple(constraints), hashes=hashes)


def of_pylock(text: str, file: str = "pylock.toml") -> Declaration:
    """Read pylock.toml: each of its packages is a requirement, under its marker."""
    document = toml_of(text, file)
    if not str(document.get("lock-version", "")).startswith("1."):
        raise BadRequirements(f"{file}: lock-version {document.get('lock-version')!r} is not 1.x (PEP 751).")
    requirements, hashes = [], {}
    characters = 0
    for package in _packages(document, "packages", file):
        pin = _pin(package, package, file)
        characters += len(str(package.get("marker", "")))
        _check_markers(characters, file)
        marker = _marker(package["marker"], file) if "marker" in package else ""
        requirements.append(f"{pin} ; {marker}" if marker else pin)
        hashes[pin] = _wheel_hashes(package, file)
    return Declaration(
        file=file,
        requirements=tuple(requirements),
        hashes=hashes,
        python=python_of(document.get("requires-python", ""), file),
    )


def _packages(document: Mapping[str, Any], key: str, file: str) -> list[Mapping[str, Any]]:
    packages = document.get(key, [])
    if not isinstance(packages, list) or not all(isinstance(package, dict) for package in packages):
        raise BadRequirements(f"{file}: `{key}` is not a list of tables.")
    if len(packages) > MOST:
        raise BadRequirements(f"{file} has {len(packages):,} packages; at most {MOST:,} are accepted.")
    return packages


def _pin(package: Mapping[str, Any], source: Mapping[str, Any], file: str) -> str:
    name = _name(package, file)
    if other := next((kind for kind in _OTHER_SOURCES if kind in source), None):
        raise BadRequirements(f"{file}: {name} comes from a {other}; packages are installed from wheels of an index.")
    text = str(package.get("version", ""))
    try:
        version = Version(text if len(text) <= LONGEST else "")
    except InvalidVersion:
        raise BadRequirements(f"{file}: {name} has no version.") from None
    return f"{name}=={version}"


def _name(package: Mapping[str, Any], file: str) -> str:
    return canonicalize_name(requirement_of(str(package.get("name", "")), file).name)


def _check_markers(characters: int, file: str) -> None:
    if characters > LONGEST_MARKERS:
        raise BadRequirements(f"{file}: its environment markers have at most {LONGEST_MARKERS:,} characters together.")


def _marker(text: Any, file: str) -> str:
    if len(str(text)) > LONGEST_MARKER:
        raise BadRequirements(f"{file}: an environment marker has at most {LONGEST_MARKER:,} characters.")
    try:
        return str(Marker(str(text)))
    except (InvalidMarker, RecursionError):
        raise BadRequirements(f"{file}: {str(text)[:80]!r} is not an environment marker.") from None


def _wheel_hashes(package: Mapping[str, Any], file: str) -> frozenset[str]:
    """Return the SHA-256 digests of a package's wheels; of uv.lock in ``hash``, of pylock.toml in ``hashes``."""
    digests = set()
    wheels = package.get("wheels", [])
    for wheel in wheels if isinstance(wheels, list) else ():
        by_algorithm = wheel.get("hashes", {}) if isinstance(wheel, dict) else {}
        digest = wheel.get("hash") if isinstance(wheel, dict) else None
        digest = digest or (by_algorithm.get("sha256") if isinstance(by_algorithm, dict) else None)
        if isinstance(digest, str) and _SHA256.fullmatch(digest):
            digests.add(f"sha256:{digest.removeprefix('sha256:')}")
    if not digests:
        raise BadRequirements(f"{file}: {_name(package, file)} has no wheel with a SHA-256 hash; only wheels are used.")
    return frozenset(digests)
