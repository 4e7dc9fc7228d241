"""`windtunnel cancel`: cancel simulations."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel.commands.options import simulation_ids, with_client

if TYPE_CHECKING:
    from windtunnel import Client


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=simulation_ids)
@with_client
def command(client: "Client", ids: Sequence[str]) -> None:
    """Cancel simulations; their results so far are kept. One that has ended already is not an error."""
    from windtunnel.errors import Refused

    for id in [client.simulations.find(id) for id in ids]:
        try:
            state = client.simulations.cancel(id).state
        except Refused as error:
            if error.status != 409:
                raise
            state = client.simulations.get(id).state
        click.echo(f"{id}  {state}")
