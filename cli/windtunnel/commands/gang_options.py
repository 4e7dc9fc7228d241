"""Options of coupled programs on the command line, and what a submission with them has: for `run` and `estimate`."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import click

from windtunnel.commands.submission_options import field_values
from windtunnel.gang_programs import COMMUNICATIONS, DATASET, ONE_TASK, default_start, is_case
from windtunnel.model_sources import StoredModel, source_of

P = ParamSpec("P")
T = TypeVar("T")
#: The options, in the order of the help.
GANG_OPTIONS = (
    click.option(
        "--ranks", type=click.IntRange(1), metavar="N", help="Run MODEL, a coupled program, as a gang of N ranks."
    ),
    click.option(
        "--command", "program", metavar="TEXT", help="Command of each rank, in the folder of MODEL; by what MODEL is."
    ),
    click.option(
        "--build", metavar="TEXT", help="Command that compiles MODEL first, in its folder, such as 'mpicc a.c -o a'."
    ),
    click.option(
        "--communication",
        type=click.Choice(COMMUNICATIONS),
        help="How the ranks find each other; mpi if left out.",
    ),
)


def gang_options() -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Give a command the options of coupled programs."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        for option in reversed(GANG_OPTIONS):
            function = option(function)
        return function

    return decorate


def submission_of(model: str, dataset: str | None, options: Mapping[str, object]) -> tuple[str, dict[str, Any]]:
    """Return the dataset and the arguments of `simulations.submit` for the options of a submission and of a gang.

    Raise UsageError for what does not go together.
    """
    fields: dict[str, Any] = dict(options)
    ranks, *start = (fields.pop(name) for name in ("ranks", "program", "build", "communication"))
    submission = field_values(fields)
    if both := sorted(submission["params"].keys() & submission["sweep"].keys()):
        raise click.UsageError(f"{both[0]} is in --param and in --sweep; leave one of them out.")
    if ranks is not None:
        return dataset or DATASET, submission | gang_fields(model, dataset, ranks, *start, **submission)
    if any(each is not None for each in start):
        raise click.UsageError("--command, --build and --communication are of a coupled program: add --ranks N.")
    if dataset is None:
        raise click.UsageError(
            "Name a DATASET, such as car_street (`windtunnel datasets` lists them), or run MODEL as a coupled program"
            " with --ranks N."
        )
    return dataset, submission


def gang_fields(
    model: str,
    dataset: str | None,
    ranks: int,
    command: str | None,
    build: str | None,
    communication: str | None,
    *,
    scenarios: str | None,
    sample: int | None,
    **_: object,
) -> dict[str, object]:
    """Return the arguments of `simulations.submit` that make a submission one of a gang, where it leaves them open."""
    tasks = ONE_TASK if scenarios is None and sample is None else scenarios
    source = source_of(model)
    described = is_case(source) or (isinstance(source, StoredModel) and dataset not in {None, DATASET})
    if described and {command, build, communication} == {None}:  # the case, or the dataset, has them
        return {"gang": {"size": ranks}, "scenarios": tasks}
    communication = communication or COMMUNICATIONS[0]
    compiled = _words("--build", build) if build is not None else None
    if command is not None:
        words = _words("--command", command)
    else:
        compiled, words = default_start(model, communication, compiled)
    built = {"build": compiled} if compiled is not None else {}
    return {
        "gang": {"size": ranks, "communication": communication, "command": words, **built},
        "scenarios": tasks,
    }


def _words(option: str, text: str) -> list[str]:
    """Return the words of a command line. Raise UsageError if it has none, or is not one."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise click.UsageError(f"{option} {text!r} is not a command line: {error}.") from None
    if not words:
        raise click.UsageError(f"{option} is empty: leave it out, or name the program and its arguments.")
    return words
