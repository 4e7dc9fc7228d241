"""Streets played by SUMO, in process: the world behind the data set `car_street`."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .world import World

__all__ = ["World", "preload"]


def preload(definition: Mapping[str, Any]) -> None:
    """Load libsumo while files may still be opened freely and nobody waits."""
    importlib.import_module(".world", __package__)


def __getattr__(name: str) -> Any:
    """Load the world when it is asked for: its pure parts can be read where libsumo is not installed."""
    if name == "World":
        from .world import World

        return World
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
