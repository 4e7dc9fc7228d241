"""`windtunnel sensitivity`: which parameters of scenarios and sweeps go with failure, or with a metric."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.commands.options import simulation_ids, with_client

if TYPE_CHECKING:
    from windtunnel import Client

#: Parameters and combinations of a table, unless a limit is given.
MOST_ROWS = 10
PARAMETERS: Sequence[outputs.Column] = (
    ("parameter", "parameter"),
    ("from", "source"),
    ("association", lambda row: figures.number(row["association"])),
    ("effect", lambda row: row["effect"]["name"].replace("_", " ")),
    ("value", lambda row: figures.number(row["effect"]["value"])),
    ("95 % low", lambda row: figures.number(row["effect"]["low"])),
    ("95 % high", lambda row: figures.number(row["effect"]["high"])),
    ("of", "level"),
)
COMBINATIONS: Sequence[outputs.Column] = (
    ("failures", "failures"),
    ("of", "count"),
    ("rate", lambda row: figures.percent(row["failures"], row["count"])),
    ("95 % low", lambda row: figures.percent(row["low"], 1)),
    ("95 % high", lambda row: figures.percent(row["high"], 1)),
    ("where", lambda row: ", ".join(f"{name} {value}" for name, value in row["values"].items())),
)


@click.command()
@click.argument("id", shell_complete=simulation_ids)
@click.option("--metric", help="Name of a metric, instead of whether a task failed.")
@click.option("-n", "--limit", type=click.IntRange(1), default=MOST_ROWS, show_default=True, help="Rows of a table.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="Format.")
@with_client
def command(client: "Client", id: str, metric: str | None, limit: int, output: str) -> None:
    """Show which parameters go with failure, the strongest first, and where most fails. It proves no cause.

    \b
    windtunnel sensitivity last
    windtunnel sensitivity last --metric min_ttc -o json
    """
    document = client.simulations.sensitivity(client.simulations.find(id), metric=metric)
    if output != "table":
        click.echo(outputs.serialised(document, output))
        return
    _show(document, limit)


def _show(document: Mapping[str, Any], limit: int) -> None:
    parameters, combinations = document["parameters"], document["combinations"]
    of = "failure" if document["metric"] == "failed" else document["metric"]
    click.echo(f"{document['failed']} of {document['sampled']} tasks failed. Parameters that go with {of}:")
    outputs.show_table(PARAMETERS, parameters[:limit])
    if combinations:
        fewest = f"at least {document['fewest']} scenarios"
        click.echo(f"\nWhere most fails, of {document['candidates']} combinations with {fewest}:")
        outputs.show_table(COMBINATIONS, combinations[:limit])
    if len(parameters) > limit or len(combinations) > limit:
        click.echo("`--limit` shows more, `-o json` all.", err=True)
