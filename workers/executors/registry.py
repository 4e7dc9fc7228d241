"""Executor registry: each kind is a module of this package with `open` and flags of its capabilities."""

import importlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from core.domain.executor_config import ExecutorConfig, parsed
from workers.executors.base import Executor


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalPaths:
    """Paths and URLs of the machine that opens an executor."""

    home: Path
    run_dir: Path
    environments: Path
    runner_api_url: str


def load_executor_configs(path: str, workers: int) -> tuple[ExecutorConfig, ...]:
    """Return the executors that a file configures; without a file, this machine with ``workers``. Raise ValueError."""
    if not path:
        return (ExecutorConfig(name="local", kind="local", workers=workers),)
    try:
        configs = parsed(json.loads(Path(path).read_bytes()))
        for config in configs:
            _module(config)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return configs


def with_own_environments(executor_configs: Iterable[ExecutorConfig]) -> frozenset[str]:
    """Return names of executors that bring their own environments and share no folder with this machine."""
    return frozenset(config.name for config in executor_configs if _module(config).OWN_ENVIRONMENTS)


def with_gangs(executor_configs: Iterable[ExecutorConfig]) -> frozenset[str]:
    """Return names of executors that can run gangs."""
    return frozenset(config.name for config in executor_configs if getattr(_module(config), "GANGS", False))


def open_executors(executor_configs: Iterable[ExecutorConfig], paths: LocalPaths) -> dict[str, Executor]:
    """Open the executors by name. Raise ValueError for invalid options."""
    return {config.name: _module(config).open(config.name, config.options, paths) for config in executor_configs}


def _module(config: ExecutorConfig) -> ModuleType:
    try:
        return importlib.import_module(f"workers.executors.{config.kind}")
    except ModuleNotFoundError as error:
        if error.name != f"workers.executors.{config.kind}":
            raise
        raise ValueError(f"there is no kind of executor named {config.kind!r}") from None
