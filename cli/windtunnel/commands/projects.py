"""`windtunnel projects`: list, create, close and delete the projects of a platform with accounts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.account_records import AccountProject
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import confirm, output_option, project_names, with_client

if TYPE_CHECKING:
    from windtunnel import Client

COLUMNS: Sequence[outputs.RecordColumn[AccountProject]] = (
    ("name", lambda project: project.name),
    ("state", lambda project: project.state),
    ("created by", lambda project: project.created_by),
    ("created", lambda project: figures.minute(project.created_at)),
)


@click.group(cls=NounGroup)
def command() -> None:
    """List, create, close and delete projects. An operator does; `windtunnel whoami` lists your own."""


@command.command("list")
@output_option()
@with_client
def list_(client: "Client", output: str) -> None:
    """List all projects of the platform."""
    outputs.show_records([*client.projects.list()], COLUMNS, output, name="name")


@command.command()
@click.argument("name")
@output_option()
@with_client
def create(client: "Client", name: str, output: str) -> None:
    """Create a project. It has no members yet: `windtunnel members set USER ROLE --project NAME`."""
    outputs.show_records([client.projects.create(name)], COLUMNS, output, named=True, name="name")


@command.command()
@click.argument("name", shell_complete=project_names)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option()
@with_client
def close(client: "Client", name: str, yes: bool, output: str) -> None:
    """Close a project. Nothing new begins in it, what runs is cancelled, and its members read what it has."""
    confirm(f"Close {name}, and cancel what it has under way?", yes=yes)
    outputs.show_records([client.projects.close(name)], COLUMNS, output, named=True, name="name")


@command.command()
@click.argument("name", shell_complete=project_names)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_client
def delete(client: "Client", name: str, yes: bool) -> None:
    """Delete a closed project, with all that it has. It does not come back, and its name is never used again."""
    confirm(f"Delete {name}, with its models, datasets and results, for ever?", yes=yes)
    client.projects.delete(name)
    click.echo(name)
