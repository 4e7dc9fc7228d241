"""Executor registry: the kinds of executors are the modules of this package, found by name and imported when used."""

import functools
import importlib
import json
import pkgutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.domain.scheduling.executor_config import ExecutorConfig, parsed
from workers import executors
from workers.executors.base import Executor, ExecutorKind, LocalPaths

#: Modules of the package that are not kinds.
OTHER_MODULES = frozenset({"base", "registry"})


def kinds() -> tuple[str, ...]:
    """Return the names of all kinds. Imports none of them."""
    modules = {module.name for module in pkgutil.iter_modules(executors.__path__)}
    return tuple(sorted(modules - OTHER_MODULES))


@functools.cache
def kind(name: str) -> ExecutorKind[Any]:
    """Import one kind. Raise ValueError that lists the known kinds if there is no such kind."""
    if name not in kinds():
        raise ValueError(f'no executor kind "{name[:100]}"; known: {", ".join(kinds())}')
    module = importlib.import_module(f"{executors.__name__}.{name}")
    executor_kind = getattr(module, "KIND", None)
    if not isinstance(executor_kind, ExecutorKind):
        raise ValueError(f"{module.__name__} is not an executor kind: it has no KIND of type ExecutorKind")
    return executor_kind


def load_executor_configs(path: str, workers: int) -> tuple[ExecutorConfig, ...]:
    """Return the executors that the file configures; without a file, this machine with ``workers``.

    Raise ValueError, with the file and the entry, for unknown kinds and invalid options too.
    """
    if not path:
        return (_with_kind(ExecutorConfig(name="local", kind="local", workers=workers)),)
    configs = []
    try:
        for number, config in enumerate(parsed(json.loads(Path(path).read_bytes()))):
            try:
                kind(config.kind).parse(config.options)
                configs.append(_with_kind(config))
            except ValueError as error:
                raise ValueError(f"executors[{number}] ({config.name}): {error}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return tuple(configs)


def _with_kind(config: ExecutorConfig) -> ExecutorConfig:
    """Return a config with its kind's facts. Raise ValueError if it allows an option that the kind ignores."""
    executor_kind = kind(config.kind)
    if useless := sorted(set(config.allowed) & executor_kind.ignored):
        raise ValueError(f"`allowed.{useless[0]}`: a {config.kind} executor ignores the option {useless[0]}")
    return replace(
        config,
        ignored=executor_kind.ignored,
        equivalents=executor_kind.equivalents,
        lends=executor_kind.lends,
        gangs=executor_kind.gangs(executor_kind.parse(config.options)) if executor_kind.gangs else None,
    )


def with_own_environments(executor_configs: Iterable[ExecutorConfig]) -> frozenset[str]:
    """Return names of executors that bring their own environments and share no folder with this machine."""
    return frozenset(config.name for config in executor_configs if kind(config.kind).own_environments)


def with_node_agent(executor_configs: Iterable[ExecutorConfig]) -> frozenset[str]:
    """Return names of executors whose launches run on this machine's node agent."""
    return frozenset(config.name for config in executor_configs if kind(config.kind).node_agent)


def open_executors(executor_configs: Iterable[ExecutorConfig], paths: LocalPaths) -> dict[str, Executor]:
    """Open the executors by name. Raise ValueError for an unknown kind or invalid options."""
    opened: dict[str, Executor] = {}
    for config in executor_configs:
        executor_kind = kind(config.kind)
        opened[config.name] = executor_kind.open(config.name, executor_kind.parse(config.options), paths)
    return opened
