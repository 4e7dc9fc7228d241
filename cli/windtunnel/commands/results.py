"""`windtunnel results`: show or save the results of a simulation."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windtunnel import figures, tables
from windtunnel import output as outputs
from windtunnel.commands.options import simulation_ids, with_client
from windtunnel.commands.transfer_bar import transfer_bar
from windtunnel.descriptions import result_text
from windtunnel.visible_text import visible, visible_json

if TYPE_CHECKING:
    from windtunnel import Client
    from windtunnel.records import Result

STATUSES = "ok failed crashed timed_out invalid".split()
#: Results of a table, unless a limit is given.
MOST_ROWS = 50


def columns(score: str | None) -> Sequence[outputs.Column]:
    """Return the columns of a table of results of a dataset with this score."""
    return (
        ("task", "task"),
        ("status", "status"),
        ("score", lambda result: figures.number(result["metrics"].get(score)) if score else ""),
        ("scenario", _scenario),
        ("remark", lambda result: result_text(result) if result["status"] == "ok" else result["error"]),
    )


def _scenario(result: outputs.Document) -> str:
    """Return a scenario's name or number, with the values that a sweep has given it."""
    scenario = result["scenario"]
    values = ", ".join(f"{name}={value}" for name, value in scenario.get("params", {}).items())
    return f"{scenario.get('name', scenario.get('index'))}" + (f" ({values})" if values else "")


@click.command()
@click.argument("id", shell_complete=simulation_ids)
@click.option(
    "-o",
    "--output",
    metavar="FORMAT",
    default="table",
    help="`table`, `json`, `yaml`, `ndjson` or `csv`.",
)
@click.option("--save", metavar="FILE", help="Save them in a file that ends in .ndjson, .csv or .parquet.")
@click.option("--worst", type=click.IntRange(1, 1000), metavar="N", help="Only the N worst.")
@click.option("--status", type=click.Choice(STATUSES), multiple=True, help="Only this status; may be repeated.")
@click.option(
    "--where",
    metavar="CONDITION",
    multiple=True,
    help="Only those that meet it: failed=true, street=arterial, metrics.score<50; may be repeated.",
)
@click.option(
    "--sort", metavar="COLUMN", help="By a column or a parameter, such as metrics.score; descending: -metrics.score."
)
@click.option("-n", "--limit", type=click.IntRange(1), help="At most this many.")
@click.option("-f", "--follow", is_flag=True, help="Also those that arrive, until the simulation ends.")
@with_client
def command(
    client: "Client",
    id: str,
    output: str,
    save: str | None,
    worst: int | None,
    status: Sequence[str],
    where: Sequence[str],
    sort: str | None,
    limit: int | None,
    follow: bool,
) -> None:
    """Show the results of a simulation, or save them for pandas, polars or a spreadsheet.

    \b
    windtunnel results last --worst 10
    windtunnel results last --save results.parquet
    windtunnel results last -o ndjson --status failed | jq .error
    windtunnel results last --where failed=true --where street=arterial --sort metrics.min_ttc
    """
    output = save or output  # `-o FILE` is the former spelling
    id = client.simulations.find(id)
    if worst is not None and (status or where or sort or limit or follow):
        raise click.UsageError("--worst selects and sorts by itself: leave out the other options.")
    if worst is not None:
        found = client.simulations.worst(id, limit=worst)
        if not found and client.simulations.get(id).tasks.done:
            click.echo("No result is worse than another: all are ok, and the dataset has no score.", err=True)
            if output == "table":
                return None
        return _show(client, id, list(found), output)
    if follow and (status or where or sort or limit):
        raise click.UsageError("--follow shows all results in the order of their arrival.")
    if output == "table" and not follow:
        limit = limit or MOST_ROWS
    results = client.simulations.results(id, statuses=status, where=where, sort=sort, limit=limit, follow=follow)
    if output == "ndjson" or (follow and output in {"table", "json"}):
        for line in results.lines():
            click.echo(visible_json(line))
    elif output == "csv":
        if sys.stdout.isatty():
            results.write(lambda data: click.echo(visible(data.decode(errors="replace")), nl=False), "csv")
        else:
            results.write(sys.stdout.buffer.write, "csv")
            sys.stdout.buffer.flush()
    elif output in {"table", "json", "yaml"}:
        _show(client, id, list(results), output)
    else:
        file = Path(output)
        tables.format_of(file)
        with transfer_bar(file.name) as progress:
            results.save(file, progress=progress)
        click.echo(f"{file}: {figures.size(file.stat().st_size)}", err=True)


def _show(client: "Client", id: str, results: "Sequence[Result]", format: str) -> None:
    if format not in {"table", "json", "yaml"}:
        raise click.UsageError(f"-o {format} is not possible here: table, json or yaml.")
    simulation = client.simulations.get(id)
    score = simulation.score.metric if simulation.score else None
    outputs.show_list([result.raw for result in results], columns(score), format, name="task")
    if format == "table" and 0 < len(results) < simulation.tasks.done:
        click.echo(
            f"{len(results)} of {simulation.tasks.done} results; `--save results.parquet` saves all,"
            " --limit shows more.",
            err=True,
        )
