"""`windtunnel runtimes`: list runtimes and the formats of models that they load."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from windtunnel import output as outputs
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import output_option, runtime_names, with_client

if TYPE_CHECKING:
    from windtunnel import Client


def files(formats: Sequence[Mapping[str, Any]]) -> str:
    """Return the suffixes of the files of formats, archives last and all tars in a word."""
    suffixes = dict.fromkeys(suffix for format in formats for suffix in format["accepted_suffixes"])
    shown = [suffix for suffix in suffixes if not suffix.startswith((".zip", ".tar"))]
    shown += [".zip"] if ".zip" in suffixes else []
    shown += [".tar*"] if ".tar" in suffixes else []
    return ", ".join(shown) or "any"


COLUMNS: Sequence[outputs.Column] = (
    ("name", "name"),
    ("formats", lambda runtime: ", ".join(format["name"] for format in runtime["formats"])),
    ("files", lambda runtime: files(runtime["formats"])),
    ("title", "title"),
)
DETAILS: Sequence[outputs.Column] = (*COLUMNS, ("description", "description"))
FORMATS: Sequence[outputs.Column] = (
    ("format", "name"),
    ("files", lambda format: files([format])),
    ("environment", "environment"),
    ("ready", lambda format: "yes" if format["ready"] else "at first use"),
    ("title", "title"),
)


@click.group(cls=NounGroup)
def command() -> None:
    """List runtimes and the formats of models that they load."""


@command.command("list")
@output_option()
@with_client
def list_(client: "Client", output: str) -> None:
    """List runtimes."""
    outputs.show_list([runtime.raw for runtime in client.runtimes()], COLUMNS, output, name="name")


@command.command()
@click.argument("name", shell_complete=runtime_names)
@output_option()
@with_client
def get(client: "Client", name: str, output: str) -> None:
    """Show a runtime and its formats."""
    document = client.runtime(name).raw
    outputs.show_one([document], DETAILS, output, name="name")
    if output == "table":
        click.echo()
        outputs.show_table(FORMATS, document["formats"])
