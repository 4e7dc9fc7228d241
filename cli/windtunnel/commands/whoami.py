"""`windtunnel whoami`: who the client is to the platform, by which token, in which projects, and what it may do."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from windtunnel import output as outputs
from windtunnel.account_records import ClientIdentity
from windtunnel.commands.options import output_option, with_client

if TYPE_CHECKING:
    from windtunnel import Client


@dataclass(frozen=True, slots=True)
class SignedInUser:
    """Who a client is to a platform."""

    url: str
    context: str | None
    identity: ClientIdentity

    @property
    def raw(self) -> outputs.Document:
        """The document of the platform, with its address and the context."""
        return {"url": self.url, "context": self.context} | self.identity.raw


def user_of(account: SignedInUser) -> str:
    """Return the user, and whether the user is an operator."""
    if not account.identity.accounts:
        return "everybody: this platform has no accounts"
    return f"{account.identity.user}, an operator" if account.identity.operator else str(account.identity.user)


def token_of(account: SignedInUser) -> str:
    """Return where the token is from, and its id."""
    if account.identity.by == "nothing":
        return "none"
    source = f"that of the context {account.context}" if account.context else "that of WINDTUNNEL_TOKEN"
    return f"{source} ({account.identity.token.id})" if account.identity.token else source


def projects_of(account: SignedInUser) -> str:
    """Return the projects with the roles there."""
    return ", ".join(
        f"{project.name} ({project.role}{', closed' if project.closed else ''})"
        for project in account.identity.projects
    )


COLUMNS: Sequence[outputs.RecordColumn[SignedInUser]] = (
    ("platform", lambda account: account.url),
    ("user", user_of),
    ("token", token_of),
    ("project", lambda account: account.identity.project or "none: --project or WINDTUNNEL_PROJECT names it"),
    ("may", lambda account: ", ".join(account.identity.verbs)),
    ("projects", projects_of),
)


@click.command()
@output_option()
@with_client
def command(client: "Client", output: str) -> None:
    """Show who you are to the platform, your projects, and what you may do.

    `project` is the one that commands act in, and `may` is what you may do there.
    """
    context = None if os.environ.get("WINDTUNNEL_TOKEN") else client.server.context
    account = SignedInUser(client.server.url, context, client.whoami())
    outputs.show_records([account], COLUMNS, output, named=True, name="user")
