"""Trusted packages: the packages of a model in a process that has those of a simulator, which come first."""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from ..models.base import ModelFormat, format_named

#: The folder of a distribution's metadata, as installers name it.
METADATA = re.compile(r"(.+?)-([^-]+)\.(?:dist-info|egg-info)")


class TrustedOptions(msgspec.Struct):
    """Format of the model, the folders of its packages, and which of them has those that it has declared, if any."""

    format: str
    folders: Sequence[str]
    declared: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedPackages:
    """``folders``: of the model's packages, in their order. ``declared``: where it has those that it has declared.

    ``path``: where modules of the model are searched.
    """

    format: ModelFormat
    folders: Sequence[str]
    declared: str | None
    path: Sequence[str]

    @classmethod
    def prepare(cls, options: TrustedOptions) -> "TrustedPackages":
        """Import the libraries of a model's format, before the sandbox is sealed."""
        folders, format = options.folders, format_named(options.format)
        world_path, path = sys.path, [*sys.path, *folders]
        if conflict(world_path, folders) is None:
            sys.path = path
            try:
                format.preload()
            finally:
                sys.path = world_path
        return cls(format=format, folders=folders, declared=options.declared or None, path=path)

    def refusal(self) -> str | None:
        """Return why a model cannot have these packages beside the simulator's; None if it can."""
        return conflict(sys.path, self.folders)


def conflict(world: Iterable[str], model: Iterable[str]) -> str | None:
    """Return which distribution is there in two versions, in a sentence with the next step; None if there is none.

    ``world`` and ``model``: the folders of their packages.
    """
    first, second = distributions(world), distributions(model)
    for name in sorted(first.keys() & second.keys()):
        if first[name] != second[name]:
            return (
                f"{name} is {first[name]} in the simulator's packages and {second[name]} in the model's, and one"
                f" process has one of them. Leave `trusted` out, or let the model have {name}=={first[name]}"
            )
    return None


def distributions(folders: Iterable[str]) -> dict[str, str]:
    """Return the versions of the distributions in these folders, by normalized name (PEP 503); the first one counts."""
    found: dict[str, str] = {}
    for folder in folders:
        try:
            entries = os.listdir(folder)
        except OSError:  # a zip of the standard library, or a folder that is not there
            continue
        for match in filter(None, map(METADATA.fullmatch, entries)):
            name, version = match.groups()
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    return found
