"""`windtunnel audit`: who did what to what, from where, with which token, and how it ended."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Unpack

import click

from windtunnel import output as outputs
from windtunnel.account_records import AUDIT_OUTCOMES, ActFilters, RecordedAct
from windtunnel.commands.options import Lifetime, member_names, output_option, with_client

if TYPE_CHECKING:
    from windtunnel import Client


def user_of(entry: RecordedAct) -> str:
    """Return who did it."""
    return f"{entry.user} (operator)" if entry.outsider else entry.user or ""


def end_of(entry: RecordedAct) -> str:
    """Return how it ended, and of several equal ones how many there were."""
    end = f"{entry.outcome}: {entry.problem}" if entry.problem else entry.outcome
    return f"{end} ({entry.times} times)" if entry.times > 1 else end


COLUMNS: Sequence[outputs.RecordColumn[RecordedAct]] = (
    ("at", lambda entry: f"{entry.at:%Y-%m-%d %H:%M:%S}"),
    ("project", lambda entry: entry.project),
    ("user", user_of),
    ("from", lambda entry: entry.address),
    ("act", lambda entry: entry.act),
    ("outcome", end_of),
    ("subject", lambda entry: entry.subject),
)


@click.command()
@click.argument("words", nargs=-1)
@click.option("--user", metavar="NAME", shell_complete=member_names, help="Acts of this user.")
@click.option("--act", metavar="NAME", help="Acts of this kind, such as delete_model.")
@click.option("--subject", metavar="ADDRESS", help="Acts on this or what is below it, such as models/brake.")
@click.option("--outcome", type=click.Choice(AUDIT_OUTCOMES), help="Acts that ended like this.")
@click.option("--token", metavar="ID", help="Acts with the token of this id.")
@click.option("--since", type=Lifetime(), help="Acts of the last hours or days, such as 12h or 7d.")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most this many.")
@click.option("--all", "every", is_flag=True, help="All entries, however many.")
@output_option()
@with_client
def command(
    client: "Client",
    words: Sequence[str],
    since: int | None,
    limit: int,
    every: bool,
    output: str,
    **equal: Unpack[ActFilters],
) -> None:
    """Show who did what to what, newest first: a maintainer in the project, an operator without --project in all.

    WORDS are looked for in users, acts, subjects and addresses.

    \b
    windtunnel audit --outcome refused --since 7d
    windtunnel audit --all -o json > audit.json
    """
    after = None if since is None else datetime.now(UTC) - timedelta(seconds=since)
    most = None if every else limit
    entries = client.audit.list(limit=most, since=after, search=" ".join(words) or None, **equal)
    outputs.show_records([*entries], COLUMNS, output)
