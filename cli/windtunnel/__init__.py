"""Windtunnel's Python client: `from windtunnel import Client`, or `AsyncClient` with `await`.

The names are imported when they are first used, so that the command line starts without an HTTP library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windtunnel._async.client import AsyncClient as AsyncClient
    from windtunnel._async.results import AsyncResults as AsyncResults
    from windtunnel._sync.client import Client as Client
    from windtunnel._sync.results import Results as Results
    from windtunnel.errors import BadConfiguration as BadConfiguration
    from windtunnel.errors import CannotConnect as CannotConnect
    from windtunnel.errors import Interrupted as Interrupted
    from windtunnel.errors import Refused as Refused
    from windtunnel.errors import WindtunnelError as WindtunnelError
    from windtunnel.python_models import PythonBatchModel as PythonBatchModel
    from windtunnel.python_models import PythonGymnasiumModel as PythonGymnasiumModel
    from windtunnel.python_models import PythonModel as PythonModel
    from windtunnel.python_models import ResetInfo as ResetInfo
    from windtunnel.records import Check as Check
    from windtunnel.records import Dataset as Dataset
    from windtunnel.records import Event as Event
    from windtunnel.records import Model as Model
    from windtunnel.records import ModelComparison as ModelComparison
    from windtunnel.records import Result as Result
    from windtunnel.records import Simulation as Simulation
    from windtunnel.replays import Replay as Replay

_MODULES = {
    "windtunnel._async.client": ("AsyncClient",),
    "windtunnel._async.results": ("AsyncResults",),
    "windtunnel._sync.client": ("Client",),
    "windtunnel._sync.results": ("Results",),
    "windtunnel.errors": ("BadConfiguration", "CannotConnect", "Interrupted", "Refused", "WindtunnelError"),
    "windtunnel.python_models": ("PythonBatchModel", "PythonGymnasiumModel", "PythonModel", "ResetInfo"),
    "windtunnel.records": ("Check", "Dataset", "Event", "Model", "ModelComparison", "Result", "Simulation"),
    "windtunnel.replays": ("Replay",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'windtunnel' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
