"""Process spec: interpreter, environment, descriptors and sandbox of an evaluator's or model server's process."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import python_process

#: The module with `main` of each kind of process.
ENTRIES: Mapping[str, str] = {
    "runner": "runner.runner",
    "evaluator": "evaluator.evaluator",
    "model_server": "model_server.confined_start",
    "fork_server": "runner.fork_server",
    "session": "session.session",
    "gang": "gang.local_gang",
    "ranks": "gang.simulator_ranks",
    "environment_probe": "evaluator.environment_probe",
}

#: Folders of an environment of a model's own packages: those that are the platform's own, byte for byte, which may be
#: missing; and all others.
ENVIRONMENT_FOLDERS = ("shared", "site")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessSpec:
    """What process to start; strings and numbers only. The field names travel as JSON to a container init.

    ``options``: the module's; ``readonly``: paths it may read besides its packages; ``memory`` and address
    space besides for ``libraries``, in bytes. ``site``: the folder of its packages, if they are not those of the
    installation. ``environment``: in place of it, the environment of a model's own packages (ENVIRONMENT_FOLDERS).
    ``trusted_format``: of a model that an evaluator loads itself, with the packages in these folders.
    """

    name: str
    module: str
    options: Mapping[str, Any]
    confined: bool
    memory: int
    libraries: int = 0
    readonly: Sequence[str] = ()
    may_fork: bool = False
    site: str = ""
    environment: str = ""
    trusted_format: str = ""
    trusted_folders: Sequence[str] = ()
    trusted_declared: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Installation:
    """Where processes run: interpreter, this harness, the packages' folder, and the available sandbox level."""

    python: str
    harness: str
    site: str
    level: int | None


def process_options(spec: ProcessSpec, installation: Installation, descriptors: Mapping[str, int]) -> dict[str, Any]:
    """Return what a process's module reads from its command line: options, descriptors by name, and confinement."""
    site, packages = spec.site or installation.site, ""
    if spec.environment:
        site, packages = (f"{spec.environment}/{folder}" for folder in ENVIRONMENT_FOLDERS)
    confinement = None
    if spec.confined:
        readable = spec.environment or site
        confinement = {
            "readonly": [readable, *spec.readonly],
            "memory": spec.memory,
            "keep": list(descriptors.values()),
        }
        confinement |= {"level": installation.level, "may_fork": spec.may_fork, "libraries": spec.libraries}
    trusted = None
    if spec.trusted_format:
        folders, declared = list(spec.trusted_folders), spec.trusted_declared
        trusted = {"format": spec.trusted_format, "folders": folders, "declared": declared}
    return {
        **spec.options,
        **descriptors,
        "confinement": confinement,
        "site": site,
        "packages": packages,
        "trusted": trusted,
    }


def start_process(
    spec: ProcessSpec, installation: Installation, descriptors: Mapping[str, int], output: int
) -> "subprocess.Popen[bytes]":
    """Start a process that prints to ``output`` and gets its ``descriptors`` by name; from the main thread only."""
    options = process_options(spec, installation, descriptors)
    paths = [os.path.dirname(installation.harness)]
    if spec.module != "model_server":  # which puts its packages on the path itself, once it is confined
        paths.append(options["site"])
    return python_process.start(installation.python, ENTRIES[spec.module], paths, options, descriptors, output)
