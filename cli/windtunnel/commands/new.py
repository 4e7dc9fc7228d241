"""`windtunnel new`: begin a project of a model or of a coupled program, with a test that needs no server."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from windtunnel.commands.options import dataset_names
from windtunnel.projects import KINDS, PROGRAMS, Project, write_program

if TYPE_CHECKING:
    from windtunnel.server_command import NoServer


def folder(context: click.Context, argument: click.Parameter, name: str) -> Path:
    """Return the path of the project; an empty name would be the current folder."""
    if not name:
        raise click.BadParameter("the name is empty: name the folder to be made.")
    return Path(name)


@click.command()
@click.argument("kind", type=click.Choice([*KINDS, *PROGRAMS]))
@click.argument("name", type=click.Path(), callback=folder)
@click.option(
    "--dataset", default="car_street", show_default=True, shell_complete=dataset_names, help="Dataset to play."
)
@click.option("--server", metavar="URL", help="Platform that the dataset is registered on.")
@click.pass_context
def command(context: click.Context, kind: str, name: Path, dataset: str, server: str | None) -> None:
    """Begin a project in the folder NAME: a model that plays, a test of it, and a README.

    Of the kind `mpi`: a program whose ranks compute together, instead of a model.

    \b
    windtunnel new python my-model
    windtunnel new c my-controller --dataset cartpole
    windtunnel new mpi my-program
    """
    if kind in PROGRAMS:
        if context.get_parameter_source("dataset") is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--dataset is of models; a program of the kind {kind} plays none: leave it out.")
        program = PROGRAMS[kind]
        _show(write_program(kind, name), name, program.install, f"windtunnel run {program.file} --ranks 2")
        return
    from windtunnel.server_command import NoServer

    try:
        definition = _defined_here(dataset, server)
    except NoServer as error:
        definition = _defined_on_platform(dataset, server, error)
    written = Project(kind, name.resolve().name, definition).write(name)
    first = {"python": "", "onnx": "python train.py && ", "c": "make && "}[kind]
    _show(written, name, KINDS[kind]["install"], f"{first}windtunnel check {KINDS[kind]['file']} {dataset}")


def _show(written: Sequence[Path], folder: Path, install: str, then: str) -> None:
    """Print the files that were written and what to do next."""
    for path in written:
        click.echo(path)
    click.echo(f"\nNext: cd {shlex.quote(str(folder))} && {install} && pytest; then {then}", err=True)


def _defined_here(dataset: str, server: str | None) -> Mapping[str, Any]:
    """Return the definition of a dataset from the server on this machine."""
    from windtunnel.conversations import Conversation

    with Conversation("describe", [dataset, *([f"--server={server}"] if server else [])]) as conversation:
        _, definition = conversation.receive()
        return dict(definition)


def _defined_on_platform(dataset: str, server: str | None, error: "NoServer") -> Mapping[str, Any]:
    """Return the definition from a running platform; raise NoServer if none answers."""
    from windtunnel import CannotConnect, Client
    from windtunnel.server_command import NoServer

    try:
        with Client(server, patience=0.0) as client:
            return client.datasets.get(dataset).raw
    except CannotConnect as away:
        raise NoServer(f"{error} Nor does a platform answer: {away}") from None
