"""Trusted packages: the packages of a model in a process that has those of a simulator, which come first."""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from ..models.base import ModelFormat, format_named
from .model_globals import ModelGlobals

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

    ``globals``: what the model has for itself, among them the path on which its modules are searched.
    """

    format: ModelFormat
    folders: Sequence[str]
    declared: str | None
    globals: ModelGlobals

    @classmethod
    def prepare(cls, options: TrustedOptions) -> "TrustedPackages":
        """Import the libraries of a model's format, before the sandbox is sealed."""
        folders, format = options.folders, format_named(options.format)
        model_globals = ModelGlobals([*sys.path, *folders])
        if conflict(sys.path, folders) is None:
            model_globals.run(format.preload)
        return cls(format=format, folders=folders, declared=options.declared or None, globals=model_globals)

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
