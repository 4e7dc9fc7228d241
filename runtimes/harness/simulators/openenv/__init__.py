"""OpenEnv simulator: environments of the package `openenv`, run beside the evaluator and asked over their own protocol.

An environment is a user's code with packages of its own (docs/openenv.md). Its processes are confined with the
evaluator, and share no memory and no descriptor with it but a socket.
"""

from pathlib import Path

from ...dataset_definition import Definition
from ..base import Simulator
from .process_client import EnvironmentProcesses
from .simulator import OpenEnvSimulator

#: Starts the process from which environments are forked, given the level of the evaluator's sandbox, 0 without one.
start_processes = EnvironmentProcesses


def create(dataset: Path, definition: Definition, processes: EnvironmentProcesses) -> Simulator:
    """Return a simulator for the dataset."""
    if definition.openenv is None:
        raise ValueError("the dataset names no environment")
    return OpenEnvSimulator(dataset, definition, processes)
