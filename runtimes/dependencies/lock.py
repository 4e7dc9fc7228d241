"""Locks of model environments: requirements files with one version and the SHA-256 hashes of each package."""

import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from itertools import chain

from packaging.utils import canonicalize_name

from common.errors import BadRequirements
from runtimes.dependencies.declaration import Declaration

_BLOCK = re.compile(r"^(?=[A-Za-z0-9])", re.MULTILINE)
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s\\;]+)")
_ENTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[^\s\\;]+( ; [^\n\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\s*")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


def pins(lock: str) -> dict[str, str]:
    """Return the version of each package, by its normalized name."""
    matches = (_PIN.match(block) for block in _BLOCK.split(lock))
    return {canonicalize_name(match.group(1)): match.group(2) for match in matches if match}


def divided(lock: str, own: Iterable[str]) -> tuple[str, str]:
    """Divide a lock into the packages all of whose files are in a lock of our ``own``, byte for byte, and the rest."""
    known: dict[str, set[str]] = {}
    for block in chain.from_iterable(map(_BLOCK.split, own)):
        if match := _PIN.match(block):
            known.setdefault(_key(match), set()).update(_HASH.findall(block))
    parts: tuple[list[str], list[str]] = ([], [])
    for block in filter(str.strip, _BLOCK.split(lock)):
        match, hashes = _PIN.match(block), set(_HASH.findall(block))
        is_own = match is not None and bool(hashes) and hashes <= known.get(_key(match), set())
        parts[0 if is_own else 1].append(block)
    return "".join(parts[0]), "".join(parts[1])


def merged(locks: Iterable[str]) -> str:
    """Return a lock with the packages of several; of a package that is in more than one, the entries of the first."""
    names: set[str] = set()
    blocks = []
    for lock in locks:
        found = [
            (canonicalize_name(match.group(1)), block) for block in _BLOCK.split(lock) if (match := _PIN.match(block))
        ]
        blocks += [block for name, block in found if name not in names]
        names |= {name for name, _ in found}
    return "".join(blocks)


def _key(match: re.Match[str]) -> str:
    return f"{canonicalize_name(match.group(1))}=={match.group(2)}"


def checked(lock: str, declaration: Declaration, allowed: Collection[str]) -> str:
    """Return a resolved lock with the hashes that the declaration's own lock allows.

    Raises BadRequirements for a package that the operator does not allow, and for one whose files differ from those of
    the declaration's lock.
    """
    if not all(_ENTRY.fullmatch(block) for block in _BLOCK.split(lock) if block.strip()):
        raise BadRequirements(f"The lock of {declaration.file} has an entry without a version and SHA-256 hashes.")
    for name in pins(lock):
        if not any(
            fnmatchcase(name, canonicalize_name(pattern) if "*" not in pattern else pattern) for pattern in allowed
        ):
            raise BadRequirements(
                f"The package {name} is not allowed here: it is not in WINDTUNNEL_ALLOWED_PACKAGES."
                " Ask the operator for it, or do without it."
            )
    if not declaration.hashes:
        return lock
    return "".join(_with_hashes(block, declaration.hashes, declaration.file) for block in _BLOCK.split(lock))


def _with_hashes(block: str, hashes: Mapping[str, frozenset[str]], file: str) -> str:
    match = _PIN.match(block)
    if match is None:
        return block
    name = canonicalize_name(match.group(1))
    locked = hashes.get(f"{name}=={match.group(2)}")
    if locked is None:
        return block  # a package of the platform's own, which the model does not lock
    kept = sorted(locked & set(_HASH.findall(block)))
    if not kept:
        raise BadRequirements(
            f"{file}: no file of {name} {match.group(2)} on the indexes here has a hash of the lock. The file was"
            " replaced, or the lock is of another index; lock again, and compare the hashes."
        )
    head = block.partition("\\")[0].rstrip()
    return head + "".join(f" \\\n    --hash={digest}" for digest in kept) + "\n"
