"""`windtunnel services`: create service accounts, which belong to a project instead of a person."""

from typing import TYPE_CHECKING

import click

from windtunnel import output as outputs
from windtunnel.account_records import ROLES
from windtunnel.commands.options import output_option, with_client
from windtunnel.commands.users import COLUMNS

if TYPE_CHECKING:
    from windtunnel import Client


@click.group()
def command() -> None:
    """Create service accounts of a project: for CI and schedules, whose tokens go on when people leave.

    `windtunnel members` lists and removes them, and changes their roles.
    """


@command.command()
@click.argument("name")
@click.argument("role", type=click.Choice(ROLES), metavar="ROLE")
@output_option()
@with_client
def create(client: "Client", name: str, role: str, output: str) -> None:
    """Create a service account, a member of the project with this role: viewer, submitter or maintainer.

    `windtunnel tokens create NAME --role ROLE --service SERVICE` makes its tokens.
    """
    outputs.show_records([client.services.create(name, role)], COLUMNS, output, named=True, name="name")
