"""Flow simulator: the flow around a cylinder in a channel, which the model turns; a wind tunnel in the wind tunnel."""

from pathlib import Path

from ...dataset_definition import Definition
from ..rank_connection import RankConnection
from .simulator import FlowSimulator

__all__ = ["create"]


def create(dataset: Path, definition: Definition, ranks: RankConnection | None) -> FlowSimulator:
    """Return a simulator for the dataset; ``ranks`` compute it, None: this process does, to the last bit the same."""
    return FlowSimulator(definition, ranks)
