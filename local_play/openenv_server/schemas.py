"""Schemas: OpenEnv's action, observation and state of a dataset, with the names, units and ranges of its interface."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from openenv.core.env_server.types import Action, Observation, State
from pydantic import ConfigDict, Field, WithJsonSchema, create_model

from local_play.openenv_server.actions import METADATA, VALUES
from runtimes.harness.simulators.base import Interface, Space
from runtimes.harness.simulators.structures import box


class ScenarioState(State):  # type: ignore[misc]
    """The scenario that a session plays. ``seed``: of the simulation; ``scenario_seed``: derived from it."""

    dataset: str
    digest: str
    scenario: int | None = None
    name: str | None = None
    repeat: int | None = None
    seed: int | None = None
    scenario_seed: int | None = None


class FlexibleAction(Action):  # type: ignore[misc]
    """An action as it came: the session checks it, because OpenEnv's own refusal does not name the fault."""

    model_config = ConfigDict(extra="allow")

    values: Any = None


class WorldObservation(Observation):  # type: ignore[misc]
    """An observation as a list and by name; at a scenario's end, `metadata.metrics` are those of a simulation."""

    values: list[float] = Field(default_factory=list)
    named: dict[str, float] = Field(default_factory=dict)


def schemas(interface: Interface) -> tuple[type[FlexibleAction], type[WorldObservation]]:
    """Return the types of actions and observations."""
    space = interface.action
    fields: dict[str, Any] = {
        name: (Annotated[Any, WithJsonSchema(schema)], Field(default=None, description=schema["description"]))
        for name, schema in _entries(space)
        if name.isidentifier() and not name.startswith("_") and name not in (VALUES, METADATA)
    }
    fields[VALUES] = (
        Annotated[Any, WithJsonSchema(_list(space))],
        Field(default=None),
    )
    observed = interface.observation
    named = {"type": "object", "properties": dict(_entries(observed))}
    create: Any = create_model  # its declared types know no schema that is computed
    action = create(
        "WorldAction",
        __base__=FlexibleAction,
        __doc__="Either `values`, one number per entry of the action space, or one field per name.",
        **fields,
    )
    observation = create(
        "WorldObservation",
        __base__=WorldObservation,
        __doc__=WorldObservation.__doc__,
        values=(Annotated[list[float], WithJsonSchema(_list(observed))], Field(default_factory=list)),
        named=(Annotated[dict[str, float], WithJsonSchema(named)], Field(default_factory=dict)),
    )
    return action, observation


def _list(space: Space) -> dict[str, Any]:
    count = len(space.names)
    entries = [schema | {"title": name} for name, schema in _entries(space)]
    shape = f"{space.dtype}{list(space.shape)}, flat, the last index varies fastest"
    return {
        "type": "array",
        "description": shape,
        "dtype": space.dtype,
        "shape": list(space.shape),
        "gymnasium": (space.gymnasium or box(space.shape, space.dtype)).describe(),
        "prefixItems": entries,
        "items": False,
        "minItems": count,
        "maxItems": count,
    }


def _entries(space: Space) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON schema of each entry; the range is a description of actions, which are clipped to it."""
    for name, unit, low, high in zip(space.names, space.units, space.low, space.high, strict=True):
        bounds: Mapping[str, Any] = {"minimum": low, "maximum": high}
        yield (
            name,
            {
                "type": "number",
                "description": unit or "no unit",
                **{key: bound for key, bound in bounds.items() if bound is not None},
            },
        )


def _of_gymnasium(space: Space) -> str:
    return f", {space.gymnasium} in Gymnasium" if space.gymnasium is not None else ""


def readme(definition: Mapping[str, Any], interface: Interface, reward: str) -> str:
    """Return the description of a dataset as Markdown: observation, action, reward and metrics."""
    lines = [f"# {definition['title']}", "", str(definition["description"]), ""]
    for title, space in (("Observation", interface.observation), ("Action", interface.action)):
        lines += [
            f"## {title}",
            "",
            f"{space.dtype}{list(space.shape)}{_of_gymnasium(space)}",
            "",
            "| entry | name | unit | low | high |",
            "|---|---|---|---|---|",
        ]
        rows = zip(space.names, space.units, space.low, space.high, strict=True)
        lines += [
            f"| {index} | {name} | {unit} | {'' if low is None else low} | {'' if high is None else high} |"
            for index, (name, unit, low, high) in enumerate(rows)
        ]
        lines.append("")
    lines += ["## Reward", "", reward, "", "## Metrics", "", "| name | unit | formula |", "|---|---|---|"]
    lines += [f"| {metric['name']} | {metric['unit']} | {metric['formula']} |" for metric in definition["metrics"]]
    return "\n".join(lines) + "\n"
