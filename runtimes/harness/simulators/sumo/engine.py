"""libsumo: its only import, and the options with which every scenario is simulated."""

import importlib
from pathlib import Path
from typing import Any

from .clock import DT

# libsumo has no type stubs and lives only in the simulator's environment.
sumo: Any = importlib.import_module("libsumo")

EGO = "ego"


def options(network: Path, types: Path, seed: int) -> list[str]:
    """Return SUMO's arguments; all randomness comes from the seed.

    Never add ``--random`` or a rerouting thread: with either, equal seeds would give different results.
    """
    return [
        *("--net-file", str(network), "--additional-files", str(types), "--seed", str(seed % 2**31)),
        *("--step-length", str(DT), "--step-method.ballistic", "true"),
        # An action step of 0.5 s for the other vehicles halves the cost of a step. The ego's type sets 0.1 s: with a
        # longer one, a lane change with a duration crashes SUMO 1.28 with std::bad_array_new_length.
        *("--lanechange.duration", "3", "--default.action-step-length", "0.5"),
        # With the default factor, a gap below the follower's minGap already counts as a collision.
        *("--collision.action", "warn", "--collision.mingap-factor", "0", "--collision.check-junctions", "true"),
        # Pedestrians of the `nonInteracting` model cost less, but vehicles neither yield to them nor collide with them.
        *("--intermodal-collision.action", "warn", "--pedestrian.model", "striping"),
        *("--time-to-teleport", "-1", "--max-depart-delay", "10"),
        *("--no-step-log", "true", "--no-warnings", "true", "--duration-log.disable", "true"),
        *("--xml-validation", "never", "--xml-validation.net", "never"),
    ]


def load(arguments: list[str]) -> None:
    """Start a simulation. ``load`` gives the same results as a new process, unlike ``loadState``."""
    if sumo.isLoaded():
        sumo.load(arguments)
    else:
        sumo.start(["sumo", *arguments])
