"""Arguments and documents of the tools: simulations shortened to what an agent can use."""

import functools
import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from windtunnel import WindtunnelError
from windtunnel.records import Simulation
from windtunnel.submission_fields import FIELDS, DescribedField
from windtunnel.visible_text import visible

#: Most items that a tool returns.
MOST_ITEMS = 100
#: Names of datasets, with a version or a tag.
DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(@[A-Za-z0-9._-]{1,99})?")

Id = Annotated[str, Field(description="Id of a simulation, its first letters, or `last`.")]
Limit = Annotated[int, Field(ge=1, le=MOST_ITEMS, description="Most items.")]
Tool = Callable[..., Awaitable[Any]]


def named(dataset: str) -> str:
    """Return the name of a dataset; raise WindtunnelError for what cannot be one, which no address could have."""
    if not DATASET.fullmatch(dataset):
        raise WindtunnelError(f"There is no dataset {visible(repr(dataset))[:200]}. list_datasets lists them.")
    return dataset


def with_submission_fields(tool: Tool) -> Tool:
    """Return a tool with an argument for each field of a submission that agents set, in place of its `**options`."""
    signature = inspect.signature(tool)
    arguments = [argument for argument in signature.parameters.values() if argument.kind is not argument.VAR_KEYWORD]
    arguments += [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(field))
        for field in FIELDS
        if field.agents
    ]

    @functools.wraps(tool)
    async def answer(**options: object) -> object:
        return await tool(**options)

    answer.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
    return answer


def _annotation(field: DescribedField) -> object:
    kind = Literal[field.choices] if field.choices else field.type
    return Annotated[kind | None, Field(description=field.description, ge=field.low, le=field.high)]


def brief(simulation: Simulation) -> dict[str, Any]:
    """Return what a list says of a simulation."""
    return {
        "id": simulation.id,
        "state": simulation.state,
        "reason": simulation.reason,
        "model": simulation.model.name,
        "dataset": simulation.dataset.reference,
        "tasks": {
            "total": simulation.tasks.total,
            "done": simulation.tasks.done,
            "not_ok": simulation.tasks.failed,
        },
        "answer": simulation.raw.get("answer"),
        "labels": simulation.labels,
    }


def detailed(simulation: Simulation) -> dict[str, Any]:
    """Return a simulation with the means of its metrics over the tasks that are ok, and their 95 % intervals."""
    metrics = {
        name: {"mean": metric.mean, "low": metric.low, "high": metric.high, "min": metric.min, "max": metric.max}
        for name, metric in simulation.metrics.items()
    }
    return {**brief(simulation), "seconds_remaining": simulation.eta, "metrics": metrics}
