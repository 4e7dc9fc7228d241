"""`windtunnel logs`: the logs of models and simulators."""

from typing import TYPE_CHECKING

import click

from windtunnel.commands.options import simulation_ids, with_client

if TYPE_CHECKING:
    from windtunnel import Client


@click.command()
@click.argument("id", shell_complete=simulation_ids)
@click.option("-f", "--follow", is_flag=True, help="Also what arrives, until the simulation ends.")
@with_client
def command(client: "Client", id: str, follow: bool) -> None:
    """Show what models and simulators have written. Control characters are shown as escapes."""
    from windtunnel.visible_text import visible

    empty = True
    for line in client.simulations.logs(client.simulations.find(id), follow=follow):
        click.echo(visible(line))
        empty = False
    if empty:
        click.echo("Neither the model nor the simulator has written anything.", err=True)
