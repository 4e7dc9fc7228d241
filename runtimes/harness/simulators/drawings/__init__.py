"""Drawings: what the replay of a world shows above its signals, as shapes in the world's units.

A module of this package that defines ``drawing(environment, own)`` draws the environments that it recognises, of
Gymnasium or PettingZoo; it imports no library of them. ``own``: the agent that the model plays, if there are several.
Drawings are numbers: no window, no graphics library and no image is involved.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from .shapes import Drawing


@functools.cache
def _recognisers() -> tuple[Callable[[Any, str], Drawing | None], ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f".{name}", __name__) for name in names]
    return tuple(module.drawing for module in modules if hasattr(module, "drawing"))


def drawing_of(environment: Any, own: str = "") -> Drawing | None:
    """Return the drawing of an environment; None if no module of this package draws it."""
    return next((drawn for recognise in _recognisers() if (drawn := recognise(environment, own)) is not None), None)
