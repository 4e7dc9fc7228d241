"""Opening executors: each kind is a module of this package that has `open` and says what it brings along."""

import importlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from core.domain.executor_config import ExecutorConfig, parsed
from workers.executors.base import Executor


@dataclass(frozen=True, kw_only=True, slots=True)
class Here:
    """What an executor may know of the machine it is opened on."""

    home: Path
    run_dir: Path
    environments: Path
    runner_api_url: str


def load_executor_configs(path: str, workers: int) -> tuple[ExecutorConfig, ...]:
    """Return the places that a file names; this machine with its workers where there is none. Raise ValueError."""
    if not path:
        return (ExecutorConfig(name="local", kind="local", workers=workers),)
    try:
        found = parsed(json.loads(Path(path).read_bytes()))
        for one in found:
            _module(one)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return found


def apart(executor_configs: Iterable[ExecutorConfig]) -> frozenset[str]:
    """Return those that bring their own environments, and share no folder with this machine."""
    return frozenset(one.name for one in executor_configs if _module(one).OWN_ENVIRONMENTS)


def gangs(executor_configs: Iterable[ExecutorConfig]) -> frozenset[str]:
    """Return those that can start gangs."""
    return frozenset(one.name for one in executor_configs if getattr(_module(one), "GANGS", False))


def open_executors(executor_configs: Iterable[ExecutorConfig], here: Here) -> dict[str, Executor]:
    """Open each of them. Raise ValueError where the options of one cannot be."""
    return {one.name: _module(one).open(one.name, one.options, here) for one in executor_configs}


def _module(context: ExecutorConfig) -> ModuleType:
    try:
        return importlib.import_module(f"workers.executors.{context.kind}")
    except ModuleNotFoundError as error:
        if error.name != f"workers.executors.{context.kind}":
            raise
        raise ValueError(f"there is no kind of executor named {context.kind!r}") from None
