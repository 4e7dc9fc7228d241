"""`windtunnel forward`: a port of a program that runs, as a port of this machine."""

import contextlib
from typing import TYPE_CHECKING

import click

from windtunnel.commands.options import simulation_ids, with_client
from windtunnel.port_forwarding import PortForwarding
from windtunnel.visible_text import visible

if TYPE_CHECKING:
    from windtunnel import Client


@click.command()
@click.argument("id", shell_complete=simulation_ids)
@click.argument("task", type=click.IntRange(0))
@click.argument("port", type=click.IntRange(1, 65535))
@click.option(
    "--local-port", type=click.IntRange(0, 65535), help="Port of this machine; the same by default, 0 for any free one."
)
@with_client
def command(client: "Client", id: str, task: int, port: int, local_port: int | None) -> None:
    """Forward PORT of the program of a TASK that runs to this machine, until Ctrl-C.

    The program listens at 127.0.0.1 in its sandbox: TensorBoard, a notebook, ParaView's server. The operator lists the
    ports that may be forwarded, and each connection is recorded.
    """
    try:
        forwarding = PortForwarding(
            client,
            client.simulations.find(id),
            task,
            port,
            local_port=port if local_port is None else local_port,
            say=lambda text: click.echo(visible(text), err=True),
        )
    except OSError as error:
        raise click.ClickException(f"Port {local_port or port} of this machine: {error.strerror}.") from None
    with contextlib.closing(forwarding), contextlib.suppress(KeyboardInterrupt):
        forwarding.check()
        click.echo(f"http://127.0.0.1:{forwarding.local_port} leads to port {port} of task {task}, until Ctrl-C.")
        forwarding.serve()
