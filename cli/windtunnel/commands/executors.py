"""`windtunnel executors`: list and drain the machines and clusters that simulations run on."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from windtunnel import output as outputs
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import executor_names, output_option, with_client

if TYPE_CHECKING:
    from windtunnel import Client


def drained(drain: Mapping[str, Any] | None) -> str:
    """Return since when an executor is drained and why; empty if it is not."""
    if drain is None:
        return ""
    since = f"since {drain['since'][:16].replace('T', ' ')}"
    return f"{since}: {drain['reason']}" if drain.get("reason") else since


HEALTH = {True: "yes", False: "no", None: "not known yet"}
COLUMNS: Sequence[outputs.Column] = (
    ("name", "name"),
    ("kind", "kind"),
    ("in use", "in_use"),
    ("workers", "workers"),
    ("healthy", lambda executor: HEALTH[executor["healthy"]]),
    ("drained", lambda executor: drained(executor.get("drain"))),
    ("reason", "reason"),
)


@click.group(cls=NounGroup)
def command() -> None:
    """List and drain the machines and clusters that simulations run on."""


@command.command("list")
@output_option()
@with_client
def list_(client: "Client", output: str) -> None:
    """List executors, with their workers."""
    outputs.show_list([executor.raw for executor in client.executors()], COLUMNS, output, name="name")


@command.command()
@click.argument("executor", shell_complete=executor_names)
@click.option("--reason", help="Why, for those whose simulations wait, such as `maintenance until 14:00`.")
@output_option()
@with_client
def drain(client: "Client", executor: str, reason: str | None, output: str) -> None:
    """Give an executor no simulations until `undrain`. What it runs goes on to its end."""
    outputs.show_one([client.drain_executor(executor, reason).raw], COLUMNS, output, name="name")


@command.command()
@click.argument("executor", shell_complete=executor_names)
@output_option()
@with_client
def undrain(client: "Client", executor: str, output: str) -> None:
    """Give a drained executor simulations again."""
    outputs.show_one([client.undrain_executor(executor).raw], COLUMNS, output, name="name")
