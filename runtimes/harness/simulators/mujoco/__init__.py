"""MuJoCo simulator: Gymnasium's MuJoCo tasks, without the libraries that would open a window for them."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ...dataset_definition import Definition
from ..base import Simulator
from ..gymnasium import GymnasiumSimulator
from . import drawings

#: Imported by Gymnasium's MuJoCo tasks, also where nothing is rendered; it needs OpenGL, a window library and Pillow.
RENDERING = "gymnasium.envs.mujoco.mujoco_rendering"
#: Simulators share nothing: many may work side by side in a process.
MANY_WORLDS = True


class _NoRenderer:
    """Takes the place of Gymnasium's renderer, which these environments create and close but never call."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Open nothing."""

    def close(self) -> None:
        """Close nothing."""


def preload(definition: Definition) -> None:
    """Import MuJoCo and the tasks."""
    if RENDERING not in sys.modules:
        sys.modules[RENDERING] = module = ModuleType(RENDERING)
        module.MujocoRenderer = _NoRenderer  # type: ignore[attr-defined]
    import gymnasium.envs.mujoco.mujoco_env  # noqa: F401


def create(dataset: Path, definition: Definition) -> Simulator:
    """Return a simulator for the dataset."""
    preload(definition)
    return GymnasiumSimulator(definition, drawings)
