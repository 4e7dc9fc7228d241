"""SUMO in this process: the one import of libsumo, and the options every scenario is played with."""

import importlib
from pathlib import Path
from typing import Any

from .clock import DT

# libsumo has no type stubs and lives only in the simulator's environment.
sumo: Any = importlib.import_module("libsumo")

EGO = "ego"


def options(network: Path, types: Path, seed: int) -> list[str]:
    """Return SUMO's arguments; all chance comes from the seed.

    Never add ``--random`` or a rerouting thread: both break equal replays.
    """
    return [
        *("--net-file", str(network), "--additional-files", str(types), "--seed", str(seed % 2**31)),
        *("--step-length", str(DT), "--step-method.ballistic", "true"),
        # Half a second of reaction for the others halves a step's cost. The ego's type says 0.1 for itself: with a
        # longer one, a lane change that takes time ends SUMO 1.28 in std::bad_array_new_length.
        *("--lanechange.duration", "3", "--default.action-step-length", "0.5"),
        # Without the factor a gap below the follower's minGap already counts as a collision.
        *("--collision.action", "warn", "--collision.mingap-factor", "0", "--collision.check-junctions", "true"),
        # Pedestrians of the `nonInteracting` model are cheaper, but nobody yields to them and nobody can hit them.
        *("--intermodal-collision.action", "warn", "--pedestrian.model", "striping"),
        *("--time-to-teleport", "-1", "--max-depart-delay", "10"),
        *("--no-step-log", "true", "--no-warnings", "true", "--duration-log.disable", "true"),
        *("--xml-validation", "never", "--xml-validation.net", "never"),
    ]


def load(arguments: list[str]) -> None:
    """Begin afresh. A loaded simulation equals a started one, whatever was played before; ``loadState`` does not."""
    if sumo.isLoaded():
        sumo.load(arguments)
    else:
        sumo.start(["sumo", *arguments])
