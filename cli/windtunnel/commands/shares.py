"""`windtunnel shares`: list, add and remove what a project lets another one read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.account_records import ProjectShare
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import output_option, with_client

if TYPE_CHECKING:
    from windtunnel import Client

KINDS = ("models", "datasets", "simulations")
COLUMNS: Sequence[outputs.RecordColumn[ProjectShare]] = (
    ("kind", lambda share: share.kind),
    ("name", lambda share: share.name),
    ("of", lambda share: share.owner),
    ("with", lambda share: share.shared_with),
    ("there", lambda share: share.reference),
    ("since", lambda share: figures.minute(share.created_at)),
)


class SharedThing(click.ParamType[tuple[str, str]]):
    """Argument such as `models/brake`, as the kind and the reference."""

    name = "thing"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return the kind and the reference; fail for another text."""
        if isinstance(value, tuple):
            return value
        kind, _, reference = str(value).partition("/")
        if kind not in KINDS or not reference:
            self.fail(f"{value!r} is none of models/NAME, datasets/NAME and simulations/ID.", param, ctx)
        return kind, reference


@click.group(cls=NounGroup)
def command() -> None:
    """Let another project read a model, a dataset or a simulation. There, it is named PROJECT/NAME."""


@command.command("list")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most this many.")
@output_option()
@with_client
def list_(client: "Client", limit: int, output: str) -> None:
    """List what the project shares, and what others share with it."""
    outputs.show_records([*client.shares.list(limit=limit)], COLUMNS, output, name="reference")


@command.command()
@click.argument("thing", type=SharedThing(), metavar="KIND/NAME")
@click.argument("reader", metavar="PROJECT")
@with_client
def add(client: "Client", thing: tuple[str, str], reader: str) -> None:
    """Let a project read what you name: all versions of a name, or one.

    \b
    windtunnel shares add models/brake team-b
    windtunnel shares add datasets/streets@3 team-b
    windtunnel shares add simulations/01jz8w0k5qv3r1m9c2t7x4b6ne team-b
    """
    kind, reference = thing
    client.shares.add(kind, reference, reader)
    click.echo(f"{reader} may read {kind}/{reference}")


@command.command()
@click.argument("thing", type=SharedThing(), metavar="KIND/NAME")
@click.argument("reader", metavar="PROJECT")
@with_client
def remove(client: "Client", thing: tuple[str, str], reader: str) -> None:
    """End a share. Simulations there go on, and their results stay."""
    kind, reference = thing
    client.shares.remove(kind, reference, reader)
    click.echo(f"{reader} may not read {kind}/{reference} any more")
