"""`windtunnel executors`: list the machines and clusters that simulations run on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import output as outputs
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import output_option, with_client

if TYPE_CHECKING:
    from windtunnel import Client

HEALTH = {True: "yes", False: "no", None: "not known yet"}
COLUMNS: Sequence[outputs.Column] = (
    ("name", lambda executor: executor["name"]),
    ("kind", lambda executor: executor["kind"]),
    ("in use", lambda executor: executor["in_use"]),
    ("workers", lambda executor: executor["workers"]),
    ("healthy", lambda executor: HEALTH[executor["healthy"]]),
    ("reason", lambda executor: executor["reason"]),
)


@click.group(cls=NounGroup)
def command() -> None:
    """List the machines and clusters that simulations run on."""


@command.command("list")
@output_option()
@with_client
def list_(client: "Client", output: str) -> None:
    """List executors, with their workers."""
    outputs.show_list([executor.raw for executor in client.executors()], COLUMNS, output, name="name")
