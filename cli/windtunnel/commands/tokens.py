"""`windtunnel tokens`: list, create and revoke the tokens of a project, or those of a user."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.account_records import ROLES, VERBS, AccessToken
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import Lifetime, member_names, output_option, user_names, with_client
from windtunnel.errors import WindtunnelError

if TYPE_CHECKING:
    from windtunnel import Client

P = ParamSpec("P")
T = TypeVar("T")
COLUMNS: Sequence[outputs.RecordColumn[AccessToken]] = (
    ("id", lambda token: token.id),
    ("name", lambda token: token.name),
    ("user", lambda token: token.user),
    ("role", lambda token: token.role or "the user's"),
    ("verbs", lambda token: "all" if token.verbs is None else ", ".join(token.verbs)),
    ("for", lambda token: " ".join([*(token.models or ()), *(token.datasets or ())]) or "all"),
    ("expires", lambda token: figures.minute(token.expires_at, "never")),
    ("used", lambda token: figures.minute(token.used_at, "never")),
    ("from", lambda token: token.used_from),
    ("kind", lambda token: "browser" if token.session else "token"),
)


def personal_options(function: Callable[P, T]) -> Callable[P, T]:
    """Give a command the options of a user whose personal tokens are meant, in place of those of the project."""
    function = click.option(
        "--user", metavar="NAME", shell_complete=user_names, help="Personal tokens of this user; an operator's option."
    )(function)
    return click.option(
        "--personal", is_flag=True, help="Your own personal tokens, which may in each project what you may there."
    )(function)


def _whose(client: "Client", personal: bool, user: str | None) -> str | None:
    """Return the user whose personal tokens are meant; None: tokens of the project."""
    if not personal or user is not None:
        return user
    own = client.whoami().user
    if own is None:
        raise WindtunnelError("This platform has no accounts. Its operator starts it with WINDTUNNEL_MULTI_USER=yes.")
    return own


@click.group(cls=NounGroup)
def command() -> None:
    """List, create and revoke tokens of a project, or with --personal those that are yours in all of your projects."""


@command.command("list")
@personal_options
@output_option()
@with_client
def list_(client: "Client", personal: bool, user: str | None, output: str) -> None:
    """List tokens, the newest first, with when and from where each was used last.

    A maintainer sees all of the project, others their own. Personal tokens are listed with sessions of browsers.
    """
    found = client.tokens.list(user=_whose(client, personal, user))
    outputs.show_records([*found], COLUMNS, output)


@command.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), help="Its role, at most yours; a token of a project needs one.")
@click.option("--verb", "verbs", multiple=True, type=click.Choice(VERBS), help="The only verb; may be repeated.")
@click.option("--model", "models", multiple=True, metavar="PATTERN", help="The only models; may be repeated.")
@click.option("--dataset", "datasets", multiple=True, metavar="PATTERN", help="The only datasets; may be repeated.")
@click.option("--expires", type=Lifetime(), help="Time until it ends, such as 45m, 12h, 90d or 2w; never by default.")
@click.option("--service", metavar="NAME", shell_complete=member_names, help="Service account whose token it is.")
@personal_options
@output_option()
@with_client
def create(
    client: "Client",
    name: str,
    role: str | None,
    verbs: Sequence[str],
    models: Sequence[str],
    datasets: Sequence[str],
    expires: int | None,
    service: str | None,
    personal: bool,
    user: str | None,
    output: str,
) -> None:
    """Make a token, and print it, which is done this once; `-o name` prints its text alone. NAME says what it is for.

    \b
    windtunnel tokens create gate --role submitter --verb read --verb upload --verb submit --expires 90d
    windtunnel tokens create gate --role submitter --model 'brake*' --dataset streets --dataset 'maps@gold'
    windtunnel tokens create laptop --personal
    """
    if role is None and not personal and user is None:
        raise click.UsageError(
            f"A token of a project needs a --role: {', '.join(ROLES)}. --personal makes one for all of your projects."
        )
    if service is not None and (personal or user is not None):
        raise click.UsageError("--service is of a token of the project: leave --personal and --user out.")
    owner = _whose(client, personal, user)
    limits: dict[str, Sequence[str]] = {"verbs": verbs, "models": models, "datasets": datasets}
    token = client.tokens.create(name, role=role, expires_in=expires, service=service, user=owner, **limits)
    columns = (*COLUMNS[:7], ("project", lambda token: token.project), ("token", lambda token: token.token))
    outputs.show_records([token], columns, output, named=True, name="token")
    if output == "table":
        click.echo("It is shown this once. `windtunnel login` stores it; WINDTUNNEL_TOKEN names it.", err=True)


@command.command()
@click.argument("id")
@personal_options
@with_client
def revoke(client: "Client", id: str, personal: bool, user: str | None) -> None:
    """Revoke a token, or end a browser's session. Within two seconds it is refused everywhere."""
    client.tokens.revoke(id, user=_whose(client, personal, user))
    click.echo(id)
