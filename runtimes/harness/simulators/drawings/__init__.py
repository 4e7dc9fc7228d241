"""Drawings: what the replay of a world shows above its signals, as shapes in the world's units.

A simulator whose environments differ has a package ``drawings``, each module of which defines ``drawing(environment,
own)`` and draws the environments that it recognises; it imports no library of them. ``own``: the agent that the model
plays, if there are several. Drawings are numbers: no window, no graphics library and no image is involved.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .shapes import Drawing


@functools.cache
def _recognisers(drawings: ModuleType) -> tuple[Callable[[Any, str], Drawing | None], ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(drawings.__path__))
    return tuple(importlib.import_module(f"{drawings.__name__}.{name}").drawing for name in names)


def drawing_of(drawings: ModuleType, environment: Any, own: str = "") -> Drawing | None:
    """Return the drawing of an environment; None if no module of a simulator's package draws it."""
    drawn = (recognise(environment, own) for recognise in _recognisers(drawings))
    return next((drawing for drawing in drawn if drawing is not None), None)
