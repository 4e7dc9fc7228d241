"""`windtunnel datasets`: list and show datasets, their scenarios, files and versions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import confirm, dataset_names, output_option, with_client
from windtunnel.commands.transfer_bar import transfer_bar, transfer_bars

if TYPE_CHECKING:
    from windtunnel import Client

COLUMNS: Sequence[outputs.Column] = (
    ("name", "name"),
    ("version", "version"),
    ("state", "state"),
    ("scenarios", lambda dataset: "" if dataset["tasks"] is None else dataset["tasks"]),
    ("simulator", "simulator"),
    ("tags", lambda dataset: ", ".join(dataset["tags"])),
    ("title", "title"),
)
DETAILS: Sequence[outputs.Column] = (
    *COLUMNS,
    ("description", "description"),
    ("digest", "digest"),
    ("score", lambda dataset: (dataset.get("score") or {}).get("formula")),
    ("observation", lambda dataset: _space(dataset, "observation")),
    ("action", lambda dataset: _space(dataset, "action")),
    ("parameters", lambda dataset: ", ".join(dataset.get("params") or {})),
    ("reason", "reason"),
    ("next step", "next_step"),
)
METRICS: Sequence[outputs.Column] = (
    ("metric", "name"),
    ("unit", "unit"),
    ("better", "better"),
    ("title", "title"),
)
SCENARIOS: Sequence[outputs.Column] = (
    ("index", "index"),
    ("name", "name"),
    (
        "members",
        lambda scenario: ", ".join(
            f"{name}={value}"
            for name, value in scenario.items()
            if name not in {"index", "name"} and isinstance(value, str | int | float)
        ),
    ),
)
FILES: Sequence[outputs.Column] = (
    ("path", "path"),
    ("size", lambda file: figures.size(file["size"])),
    ("digest", "digest"),
)
CHANGES: Sequence[outputs.Column] = (
    ("change", "change"),
    ("path", "path"),
)


def _space(dataset: outputs.Document, name: str) -> str:
    space = (dataset.get("interface") or {}).get(name) or {}
    if "shape" not in space:
        return ", ".join(f"{key}={value}" for key, value in space.items() if isinstance(value, str | int))
    names = f": {', '.join(space['names'])}" if space.get("names") else ""
    named = _gymnasium(space.get("gymnasium") or {"type": "Box"})
    return f"{space.get('dtype', '')}{space['shape']}{f', {named}' if named != 'Box' else ''}{names}"


def _gymnasium(described: outputs.Document) -> str:
    """Return what a space is in Gymnasium, in short."""
    if described["type"] == "Dict":
        parts = (f"{part['key']}: {_gymnasium(part['space'])}" for part in described["spaces"])
        return f"Dict({', '.join(parts)})"
    if described["type"] == "Tuple":
        return f"Tuple({', '.join(map(_gymnasium, described['spaces']))})"
    counts = described.get("n", described.get("nvec", ""))
    return f"{described['type']}({counts})" if counts else str(described["type"])


@click.group(cls=NounGroup)
def command() -> None:
    """List and show datasets. A dataset is a name, name@version, name@tag, id or digest."""


@command.command("list")
@click.option("-n", "--limit", type=click.IntRange(1), default=200, show_default=True, help="At most this many.")
@click.option("--shared", is_flag=True, default=None, help="Only those that other projects share with yours.")
@output_option()
@with_client
def list_(client: "Client", limit: int, shared: bool | None, output: str) -> None:
    """List datasets, the built-in ones first, each at its latest version."""
    found = client.datasets.list(shared=shared, limit=limit)
    outputs.show_list([dataset.raw for dataset in found], COLUMNS, output, "name")


@command.command()
@click.argument("dataset", shell_complete=dataset_names)
@output_option()
@with_client
def get(client: "Client", dataset: str, output: str) -> None:
    """Show a dataset: the model's interface, the metrics, the parameters."""
    document = client.datasets.get(dataset).raw
    outputs.show_one([document], DETAILS, output, name="name")
    if output == "table" and document.get("metrics"):
        click.echo()
        outputs.show_table(METRICS, document["metrics"])


@command.command()
@click.argument("name", shell_complete=dataset_names)
@output_option()
@with_client
def versions(client: "Client", name: str, output: str) -> None:
    """List the versions of a registered dataset."""
    outputs.show_list([dataset.raw for dataset in client.datasets.versions(name)], COLUMNS, output, "version")


@command.command()
@click.argument("dataset", shell_complete=dataset_names)
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most this many.")
@output_option()
@with_client
def scenarios(client: "Client", dataset: str, limit: int, output: str) -> None:
    """List the scenarios of a dataset."""
    outputs.show_list(list(client.datasets.scenarios(dataset, limit=limit)), SCENARIOS, output, "index")


@command.command()
@click.argument("dataset", shell_complete=dataset_names)
@click.option("-n", "--limit", type=click.IntRange(1), help="At most this many.")
@output_option()
@with_client
def files(client: "Client", dataset: str, limit: int | None, output: str) -> None:
    """List the files of a dataset."""
    outputs.show_list(list(client.datasets.files(dataset, limit=limit)), FILES, output, "path")


@command.command()
@click.argument("name", shell_complete=dataset_names)
@click.argument("first")
@click.argument("second")
@output_option()
@with_client
def diff(client: "Client", name: str, first: str, second: str, output: str) -> None:
    """List the files that differ between two versions."""
    outputs.show_list(list(client.datasets.diff(name, first, second)), CHANGES, output, "path")


@command.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.argument("name", shell_complete=dataset_names)
@click.option("--like", multiple=True, shell_complete=dataset_names, help="Do not send what this dataset has either.")
@click.option("--tag", "tags", multiple=True, help="Tag of the new version, such as `gold`; may be repeated.")
@output_option()
@with_client
def push(client: "Client", folder: str, name: str, like: Sequence[str], tags: Sequence[str], output: str) -> None:
    """Send FOLDER as the next version of the dataset NAME: only the contents that it does not have yet.

    A dataset.json in the folder makes it scenarios of your own. A push that was interrupted continues where it stopped.
    """
    with transfer_bars("read", "send") as (scanned, sent):
        dataset = client.datasets.push(folder, name, like=like, tags=tags, scanned=scanned, sent=sent)
    outputs.show_one([dataset.raw], DETAILS, output, name="name")


@command.command()
@click.argument("dataset", shell_complete=dataset_names)
@click.argument("folder", required=False, type=click.Path(file_okay=False))
@click.option("--replace", is_flag=True, help="Replace files of the folder that differ, and write hidden ones into it.")
@with_client
def pull(client: "Client", dataset: str, folder: str | None, replace: bool) -> None:
    """Write the files of DATASET into FOLDER, by default one of its name. Files that are there already are not sent.

    Nothing is written if a file of the folder would be replaced, unless --replace says so.
    """
    target = folder or dataset.partition("@")[0]
    with transfer_bar("pull") as progress:
        written, kept = client.datasets.pull(dataset, target, replace=replace, progress=progress)
    click.echo(f"{target}: {written} written, {kept} there already")


@command.command()
@click.argument("name", shell_complete=dataset_names)
@click.argument("tag")
@click.argument("version")
@with_client
def tag(client: "Client", name: str, tag: str, version: str) -> None:
    """Let a tag refer to a version: `windtunnel datasets tag drives gold 3`."""
    client.datasets.tag(name, tag, version)
    click.echo(f"{name}@{tag} is {name}@{version}")


@command.command()
@click.argument("name", shell_complete=dataset_names)
@click.argument("tag")
@with_client
def untag(client: "Client", name: str, tag: str) -> None:
    """Delete a tag; the version that it refers to stays."""
    client.datasets.untag(name, tag)
    click.echo(f"{name}@{tag}")


@command.command()
@click.argument("dataset", shell_complete=dataset_names)
@click.option("--all-versions", is_flag=True, help="Delete every version of the name.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_client
def delete(client: "Client", dataset: str, all_versions: bool, yes: bool) -> None:
    """Delete a version of a registered dataset, `name@version`, or all versions of a name."""
    found = client.datasets.get(dataset)
    if all_versions != (found.name == dataset):
        raise click.UsageError(
            f"Name a version, such as {found.name}@{found.version}; or the name, and --all-versions."
        )
    confirm(f"Delete {'all versions of ' * all_versions}{dataset}?", yes=yes)
    client.datasets.delete(dataset)
    click.echo(dataset)
