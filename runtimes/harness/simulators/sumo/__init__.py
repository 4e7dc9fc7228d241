"""SUMO simulator of the dataset `car_street`: street traffic with one car driven by the model, in this process.

libsumo is imported by `preload` or `create`, not by this package: its pure modules can be used where libsumo is not
installed.
"""

import importlib
from pathlib import Path

from ...dataset_definition import Definition
from ..base import Simulator


def preload(definition: Definition) -> None:
    """Import libsumo and the compiled step, before the sandbox restricts access to files and a launch waits."""
    importlib.import_module(".simulator", __package__)
    importlib.import_module(".compiled_library", __package__).library()


def create(dataset: Path, definition: Definition) -> Simulator:
    """Return a simulator for the dataset; one per process, because libsumo holds one simulation."""
    from .simulator import SumoSimulator

    return SumoSimulator(dataset, definition)
