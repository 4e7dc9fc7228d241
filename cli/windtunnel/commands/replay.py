"""`windtunnel replay`: save a task of a simulation as an animation."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel.commands.options import save_option, simulation_ids, with_client

if TYPE_CHECKING:
    from windtunnel import Client


@click.command()
@click.argument("id", shell_complete=simulation_ids)
@click.argument("task", type=click.IntRange(0), required=False)
@save_option("ID-TASK.svg")
@click.option("--open", "open_", is_flag=True, help="Show it in a browser.")
@with_client
def command(client: "Client", id: str, task: int | None, output: str | None, open_: bool) -> None:
    """Save a task of a simulation as an animated SVG: the worst task if none is named."""
    id = client.simulations.find(id)
    if task is None:
        worst = client.simulations.worst(id, limit=1)
        if not worst and not client.simulations.get(id).tasks.done:
            raise click.ClickException(f"{id} has no results yet.")
        task = worst[0].task if worst else 0
    elif task >= (total := client.simulations.get(id).tasks.total):
        raise click.ClickException(f"{id} has the tasks 0 to {total - 1}.")
    file = client.simulations.replay(id, task).save(output)
    click.echo(file)
    if open_:
        click.launch(Path(file).resolve().as_uri())
