"""`windtunnel members`: list, set and remove the members of a project."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.account_records import ROLES, ProjectMember
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import member_names, output_option, with_client

if TYPE_CHECKING:
    from windtunnel import Client

COLUMNS: Sequence[outputs.RecordColumn[ProjectMember]] = (
    ("user", lambda member: member.user),
    ("role", lambda member: member.role),
    ("since", lambda member: figures.minute(member.since)),
)


@click.group(cls=NounGroup)
def command() -> None:
    """List, set and remove the members of a project: the one of --project, WINDTUNNEL_PROJECT or the context."""


@command.command("list")
@output_option()
@with_client
def list_(client: "Client", output: str) -> None:
    """List the members of the project, and its service accounts."""
    outputs.show_records([*client.members.list()], COLUMNS, output, name="user")


@command.command("set")
@click.argument("user", shell_complete=member_names)
@click.argument("role", type=click.Choice(ROLES), metavar="ROLE")
@with_client
def set_(client: "Client", user: str, role: str) -> None:
    """Give a user a role in the project, in place of the one that the user has there.

    A viewer reads; a submitter also uploads and submits; a maintainer also changes what others have made, and decides
    about members and tokens.
    """
    project = client.members.set(user, role)
    click.echo(f"{user} is {role} of {project}")


@command.command()
@click.argument("user", shell_complete=member_names)
@with_client
def remove(client: "Client", user: str) -> None:
    """End a membership. The user's tokens of the project do nothing from then on; what the user has made stays."""
    project = client.members.remove(user)
    click.echo(f"{user} is no member of {project} any more")
