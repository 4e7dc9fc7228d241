"""`windtunnel projects`: list and create the projects of a platform with accounts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.account_records import AccountProject
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import output_option, with_client

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
    """List and create projects. An operator does; `windtunnel whoami` lists your own."""


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
