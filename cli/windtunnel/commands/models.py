"""`windtunnel models`: list, upload, tag, download and delete models."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import SaveOption, confirm, model_names, output_option, runtime_names, with_client
from windtunnel.commands.transfer_bar import transfer_bar

if TYPE_CHECKING:
    from windtunnel import Client

COLUMNS: Sequence[outputs.Column] = (
    ("name", "name"),
    ("version", "version"),
    ("format", "format"),
    ("size", lambda model: figures.size(model["size"])),
    ("tags", lambda model: ", ".join(model["tags"])),
    ("digest", lambda model: model["digest"][:19]),
    ("baseline", lambda model: "yes" if model["baseline"] else ""),
    ("created", lambda model: "" if model["baseline"] else model["created_at"][:19].replace("T", " ")),
)
DETAILS: Sequence[outputs.Column] = (
    *COLUMNS[:5],
    ("digest", "digest"),
    ("file", "filename"),
    ("runtime", "runtime"),
    ("id", "id"),
    *COLUMNS[6:],
    ("packages", lambda model: ", ".join((model["dependencies"] or {}).get("requirements", []))),
    ("imported from", lambda model: (model["source"] or {}).get("reference")),
)


@click.group(cls=NounGroup)
def command() -> None:
    """List, upload, tag, download and delete models. A model is a name, name@version, name@tag, id or digest."""


@command.command("list")
@click.option("--name", shell_complete=model_names, help="Only the versions of this name.")
@click.option("--format", help="Only this format, such as `onnx`.")
@click.option("--baseline/--no-baseline", default=None, help="Only those that ship with the platform, or the others.")
@click.option("--shared", is_flag=True, default=None, help="Only those that other projects share with yours.")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most this many.")
@output_option()
@with_client
def list_(
    client: "Client",
    name: str | None,
    format: str | None,
    baseline: bool | None,
    shared: bool | None,
    limit: int,
    output: str,
) -> None:
    """List models, the newest first; those that ship with the platform come last."""
    found = client.models.list(name=name, format=format, baseline=baseline, shared=shared, limit=limit)
    outputs.show_list([model.raw for model in found], COLUMNS, output, name="name")


@command.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", shell_complete=model_names)
@output_option()
@with_client
def get(client: "Client", models: Sequence[str], output: str) -> None:
    """Show models."""
    outputs.show_one([client.models.get(model).raw for model in models], DETAILS, output, name="name")


@command.command()
@click.argument("file", type=click.Path(exists=True))
@click.option("--name", help="Name of the model; by default that of the file.")
@click.option("--format", help="Format; detected from the bytes if left out.")
@click.option("--runtime", shell_complete=runtime_names, help="Runtime that the model is meant for.")
@click.option("--tag", "tags", multiple=True, help="Tag of the version, such as `gold`; may be repeated.")
@output_option()
@with_client
def upload(
    client: "Client",
    file: str,
    name: str | None,
    format: str | None,
    runtime: str | None,
    tags: Sequence[str],
    output: str,
) -> None:
    """Upload a model file, or a folder as a zip. Nothing is sent if the platform has it; a broken upload goes on."""
    with transfer_bar("upload") as progress:
        model = client.models.upload(file, name=name, format=format, runtime=runtime, tags=tags, progress=progress)
    outputs.show_one([model.raw], DETAILS, output, name="name")


@command.command()
@click.argument("name", shell_complete=model_names)
@click.argument("tag")
@click.argument("version")
@with_client
def tag(client: "Client", name: str, tag: str, version: str) -> None:
    """Let a tag refer to a version: `windtunnel models tag prod gold 3`."""
    model = client.models.tag(name, tag, version)
    click.echo(f"{name}@{tag} is {name}@{model.version}")


@command.command()
@click.argument("name", shell_complete=model_names)
@click.argument("tag")
@with_client
def untag(client: "Client", name: str, tag: str) -> None:
    """Delete a tag; the version that it refers to stays."""
    client.models.untag(name, tag)
    click.echo(f"{name}@{tag}")


@command.command()
@click.argument("model", shell_complete=model_names)
@click.option(
    "--save",
    "output",
    cls=SaveOption,
    metavar="FILE",
    type=click.Path(),
    help="File, which is replaced, or folder; by default a new file with the model's name.",
)
@with_client
def download(client: "Client", model: str, output: str | None) -> None:
    """Save the bytes of a model, compared with its digest."""
    with transfer_bar("download") as progress:
        file = client.models.download(model, output, progress=progress)
    click.echo(file)


@command.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", shell_complete=model_names)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_client
def delete(client: "Client", models: Sequence[str], yes: bool) -> None:
    """Delete models. Simulations that have played a model keep its bytes."""
    found = [client.models.get(model) for model in models]  # a name is its newest version
    names = [f"{model.name}@{model.version}" for model in found]
    confirm(f"Delete {', '.join(names)}?", yes=yes)
    for model, name in zip(found, names, strict=True):
        client.models.delete(model.id)
        click.echo(name)
