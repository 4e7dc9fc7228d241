"""Worlds of this machine: datasets by their names, and the environments of their simulators, prepared on first use."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from common.errors import UnknownDataset
from common.near_names import near_names, suggestion
from core.services.datasets.catalogue import find_dataset
from core.settings import Settings
from datasets.catalogue import Dataset, datasets
from local_play.registered_dataset import CannotFetch, fetch
from local_play.served_world import ServedWorld
from runtimes import catalogue, environments, harness
from runtimes.harness import sandbox
from windtunnel import Client, Refused, WindtunnelError


class CannotServe(Exception):
    """The options name nothing that can be served; the text is for the user."""


def find(name: str, server: str | None, settings: Settings) -> Dataset:
    """Return a dataset by its name; ``server``: URL of the platform that has it, None: it is built in.

    Raise CannotServe if it cannot be served.
    """
    dataset = _fetched(name, server, settings) if server is not None else _built_in(name)
    if dataset.declared.gang:
        raise CannotServe(
            f"{name} has no scenarios to step through: its programs are worlds of their own, and run in simulations."
        )
    if dataset.declared.template:
        raise CannotServe(
            f"{name} is a template without a world of its own; plants and OpenEnv environments are not served, only the"
            " scenarios of built-in worlds."
        )
    return dataset


def _built_in(reference: str) -> Dataset:
    name = reference.partition("@")[0]
    if name not in datasets():
        hint = suggestion(near_names(name, datasets()), f"There are: {', '.join(datasets())}.")
        raise CannotServe(f"There is no built-in dataset {name!r}. {hint} For a registered one, add --server URL.")
    try:
        return find_dataset(reference)
    except UnknownDataset as error:
        raise CannotServe(str(error.detail)) from None


def _fetched(reference: str, server: str, settings: Settings) -> Dataset:
    try:
        with Client(server, token=settings.token) as client:
            return fetch(client, reference, settings.home.resolve() / "openenv")
    except (CannotFetch, Refused) as error:
        raise CannotServe(str(error)) from None
    except WindtunnelError as error:
        raise CannotServe(
            f"The platform at {server} does not answer: {error}. Start it, or correct --server."
        ) from None


def print_progress(message: str) -> None:
    """Print a step of a preparation to standard error."""
    print(message, file=sys.stderr)


def served(
    dataset: Dataset,
    params: Mapping[str, Any],
    settings: Settings,
    tell: Callable[[str], None] = print_progress,
    **limits: Any,
) -> ServedWorld:
    """Prepare the simulator's environment; return what the process of a session must know.

    ``tell`` gets the steps of the preparation. ``limits``: of sessions, see `ServedWorld`.
    """
    dataset.verify()
    level = sandbox.level() if settings.sandbox == "auto" else None
    return ServedWorld(
        digest=dataset.digest,
        folder=str(dataset.folder),
        site=str(prepared(catalogue.simulators()[dataset.simulator], settings.environments, tell)),
        total=dataset.most_tasks,
        python=os.path.realpath(sys.executable),
        harness=str(Path(harness.__file__).parent),
        sandbox=level.number if level is not None else None,
        params=params,
        **limits,
    )


def prepared(environment: environments.Environment, root: Path, tell: Callable[[str], None] = print_progress) -> Path:
    """Return the folder of an environment's packages; download them on first use."""

    def progress(message: str, fraction: float | None) -> None:
        if fraction is not None:
            tell(f"{environment.name}: {message}")

    return environments.prepare(environment, root, progress)
