"""`windtunnel events`: follow the events of a simulation."""

import json
from typing import TYPE_CHECKING

import click

from windtunnel.commands.options import simulation_ids, with_client
from windtunnel.descriptions import event_text
from windtunnel.visible_text import visible, visible_json

if TYPE_CHECKING:
    from windtunnel import Client
    from windtunnel.records import Event


@click.command()
@click.argument("id", shell_complete=simulation_ids)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="`json`: a line per event.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="N", help="Only those after event number N.")
@with_client
def command(client: "Client", id: str, output: str, after: int) -> None:
    """Follow the events of a simulation until it ends; go on after a broken connection."""
    for event in client.simulations.events(client.simulations.find(id), after):
        text = json.dumps(event.raw, ensure_ascii=False)
        click.echo(visible_json(text) if output == "json" else line(event))


def line(event: "Event") -> str:
    """Return an event as a line of text: its time in UTC, its type, and what happened."""
    moment = event.at.strftime("%H:%M:%S") if event.at else ""
    return visible(f"{moment}  {event.type:<9}  {event_text(event)}")


def tell_batch(event: "Event") -> None:
    """Say on stderr what a batch of a comparison has shown; other events are not told."""
    if event.type == "batch":
        click.echo(visible(event_text(event)), err=True)
