"""Kinds of what a project can share with another one, to be read there; named as in paths of the API."""

from enum import StrEnum


class SharedKind(StrEnum):
    """A kind: all versions of a name or one of them, or a simulation with its results."""

    MODELS = "models"
    DATASETS = "datasets"
    SIMULATIONS = "simulations"
