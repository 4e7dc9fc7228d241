"""Options of a submission on the command line: one for each of its fields, and those that people write otherwise."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, ParamSpec, TypeVar

import click

from windtunnel import submissions
from windtunnel.commands.options import Seconds, WholeOrAuto, executor_names, runtime_names
from windtunnel.submission_fields import FIELDS, DescribedField

P = ParamSpec("P")
T = TypeVar("T")
#: Options beside those of fields: of a selection of scenarios, and of the executor of the placement.
OTHERS = {
    "scenarios": click.option(
        "--scenarios", metavar="0-99,120", help="Only these, the last number included; all if left out."
    ),
    "sample": click.option("--sample", type=click.IntRange(1), metavar="N", help="Only N scenarios, drawn at random."),
    "sample_seed": click.option(
        "--sample-seed", type=click.IntRange(0), metavar="N", help="Seed of the sample; 0 if left out."
    ),
    "executor": click.option(
        "--executor", shell_complete=executor_names, help="Executor; by the platform if left out."
    ),
}
#: Names in the order of the help; a field that is not among them comes last.
ORDER = (
    *("runtime", "format", "scenarios", "sample", "sample_seed", "repeat", "seed", "params", "sweep", "labels"),
    *("workers", "worlds", "trusted", "executor", "connection", "log_to_run", "timeout", "max_failures", "record"),
)
#: How the texts of an option that is repeated become an object, by the type of its field.
READERS: Mapping[object, Callable[[Sequence[str], str], Mapping[str, object]]] = {
    Mapping[str, str]: submissions.pairs,
    Mapping[str, Any]: submissions.parameters,
    Mapping[str, Sequence[Any]]: submissions.swept,
}


def submission_options(*names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Give a command the options of these fields; without names, of all."""
    options = OTHERS | {field.name: _option(field) for field in FIELDS if field.option}
    shown = names or sorted(options, key=lambda name: (*ORDER, name).index(name))

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        for name in reversed(shown):
            function = options[name](function)
        return function

    return decorate


def field_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the objects that options of several texts write."""
    repeated = [field for field in FIELDS if field.name in options and field.type in READERS]
    return {**options, **{field.name: READERS[field.type](options[field.name], field.option) for field in repeated}}


def _option(field: DescribedField) -> Callable[[Callable[P, T]], Callable[P, T]]:
    attributes: dict[str, Any] = {"metavar": field.metavar, "help": field.help}
    if field.type in READERS:
        attributes["multiple"] = True
    elif field.type is bool:
        attributes |= {"is_flag": True, "default": None}
    elif field.type is int:
        attributes["type"] = click.IntRange(int(field.low or 0))
    elif field.type == int | Literal["auto"]:
        attributes["type"] = WholeOrAuto(int(field.low or 0))
    elif field.type is float:
        attributes["type"] = Seconds() if field.metavar == "SECONDS" else click.FloatRange(field.low)
    elif field.choices:
        attributes["type"] = click.Choice(field.choices)
    elif field.name == "runtime":
        attributes["shell_complete"] = runtime_names
    return click.option(field.option, field.name, **attributes)
