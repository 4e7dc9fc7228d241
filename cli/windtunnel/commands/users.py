"""`windtunnel users`: list, invite and remove the users of a platform with accounts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.account_records import ROLES, User
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import confirm, output_option, user_names, with_client

if TYPE_CHECKING:
    from windtunnel import Client

COLUMNS: Sequence[outputs.RecordColumn[User]] = (
    ("name", lambda user: user.name),
    ("operator", lambda user: "yes" if user.operator else ""),
    ("service of", lambda user: user.service),
    ("created by", lambda user: user.created_by),
    ("created", lambda user: figures.minute(user.created_at)),
)


@click.group(cls=NounGroup)
def command() -> None:
    """List, invite and remove users. An operator does; the members of a project are `windtunnel members`."""


@command.command("list")
@output_option()
@with_client
def list_(client: "Client", output: str) -> None:
    """List all users of the platform, and the service accounts of its projects."""
    outputs.show_records([*client.users.list()], COLUMNS, output, name="name")


@command.command()
@click.argument("name")
@click.option("--operator", is_flag=True, help="The user is an operator of the platform.")
@click.option("--role", type=click.Choice(ROLES), help="Role that the user has at once, in the project.")
@click.option("--again", is_flag=True, help="Invite a user who has lost passkey and password; who is one stays one.")
@output_option()
@with_client
def invite(client: "Client", name: str, operator: bool, role: str | None, again: bool, output: str) -> None:
    """Create a user, and print the invitation, which is shown this once; `-o name` prints it alone.

    Send it to the user, who signs in with it within a week, on the page or by `windtunnel login URL --user NAME`.
    """
    if again and (operator or role):
        raise click.UsageError(f"--again changes nothing else: leave out {'--operator' if operator else '--role'}.")
    if again:
        user = User(name=name, invitation=client.users.invite_again(name))
    else:
        user = client.users.invite(name, operator=operator)
    outputs.show_records(
        [user], (*COLUMNS, ("invitation", lambda user: user.invitation)), output, named=True, name="invitation"
    )
    if output == "table":
        step = f"windtunnel login {client.server.url} --user {user.name}"
        page = f"{client.server.url}/invitation?user={user.name}#{user.invitation}"
        click.echo(f"It is shown this once. Within a week, {user.name} signs in with it: `{step}`, or at", err=True)
        click.echo(page, err=True)
    if role:  # after the invitation, which nothing shows again
        click.echo(f"{name} is {role} of {client.members.set(name, role)}", err=True)


@command.command()
@click.argument("name", shell_complete=user_names)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_client
def remove(client: "Client", name: str, yes: bool) -> None:
    """Let a user leave. The tokens of the user are refused from then on; what the user has made stays."""
    confirm(f"Remove {name} from {client.server.url}, for ever? The name is never used again.", yes=yes)
    client.users.remove(name)
    click.echo(name)
