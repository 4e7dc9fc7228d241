"""`windtunnel retry`: repeat the tasks of a simulation that are not ok."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel.commands.options import simulation_ids, with_client

if TYPE_CHECKING:
    from windtunnel import Client


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=simulation_ids)
@click.option("--all", "all_tasks", is_flag=True, help="Repeat all tasks, not only those that are not ok.")
@with_client
def command(client: "Client", ids: Sequence[str], all_tasks: bool) -> None:
    """Repeat the tasks of simulations that are not ok, in new simulations with the same digests. Prints their ids."""
    found = [client.simulations.find(id) for id in ids]
    for id in found:
        if client.simulations.get(id).ok and not all_tasks:
            raise click.ClickException(f"All tasks of {id} are ok; --all repeats them.")
    for id in found:
        click.echo(client.simulations.retry(id, all_tasks=all_tasks).id)
