"""`windtunnel bin`: list, restore and delete for good what was deleted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import confirm, output_option, with_client
from windtunnel.retention_records import BinItem

if TYPE_CHECKING:
    from windtunnel import Client

COLUMNS: Sequence[outputs.RecordColumn[BinItem]] = (
    ("id", lambda item: item.id),
    ("kind", lambda item: item.kind),
    ("name", lambda item: item.name if item.version is None else f"{item.name}@{item.version}"),
    ("size", lambda item: figures.size(item.bytes)),
    ("deleted", lambda item: figures.minute(item.binned_at)),
    ("by", lambda item: item.binned_by or (f"rule {item.rule}" if item.rule else "")),
    ("until", lambda item: figures.minute(item.until)),
)


@click.group(cls=NounGroup)
def command() -> None:
    """List and restore what was deleted. It stays in the bin for a week, and counts in the project's quota."""


@command.command("list")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most this many.")
@output_option()
@with_client
def list_(client: "Client", limit: int, output: str) -> None:
    """List what is in the bin, the last deleted first."""
    outputs.show_records([*client.bin.list(limit=limit)], COLUMNS, output)


@command.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@with_client
def restore(client: "Client", ids: Sequence[str]) -> None:
    """Take something back, as it was but for its shares."""
    for id in ids:
        client.bin.restore(id)
        click.echo(id)


@command.command()
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_client
def empty(client: "Client", ids: Sequence[str], yes: bool) -> None:
    """Delete for good: what you name, or all that is in the bin. A maintainer does."""
    confirm("Delete it for ever?" if ids else "Delete all that is in the bin, for ever?", yes=yes)
    for id in ids or (None,):
        client.bin.empty(id)
        click.echo(id or "empty")
