"""Plant simulator: a supplier's plant, given as an FMU, whose native code runs in a process of its own per scenario."""

from pathlib import Path

from ...dataset_definition import Definition
from .plant_process import Plants, start_processes
from .simulator import PlantSimulator

__all__ = ["create", "start_processes"]


def create(dataset: Path, definition: Definition, plants: Plants) -> PlantSimulator:
    """Return a simulator for the dataset; ``plants`` has the zygote of its processes."""
    return PlantSimulator(dataset, definition, plants)
