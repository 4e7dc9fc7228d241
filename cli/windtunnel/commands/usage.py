"""`windtunnel usage`: the use of the project, by anything, and its cost."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import output as outputs
from windtunnel.commands.options import with_client
from windtunnel.usage_records import UsageNumbers

if TYPE_CHECKING:
    from windtunnel import Client

#: Columns of the numbers of a sum.
COLUMNS: Sequence[tuple[str, Callable[[UsageNumbers], str]]] = (
    ("core hours", lambda each: f"{each.core_hours:,.3f}"),
    ("GiB hours", lambda each: f"{each.gib_seconds / 3600:,.3f}"),
    ("GPU hours", lambda each: f"{each.gpu_seconds / 3600:,.3f}"),
    ("lost", lambda each: f"{each.lost_core_seconds / 3600:,.3f}"),
    ("cost", lambda each: "" if each.cost is None else f"{each.cost:,.2f}"),
)


@click.command()
@click.option(
    "--by",
    default="",
    metavar="NAMES",
    help="Names with commas between them: day, user, simulation, kind, executor, project, label, label:KEY.",
)
@click.option("--since", metavar="DAY", help="Only what was used from a day or a moment on, in UTC.")
@click.option("--until", metavar="DAY", help="Only what was used before a day or a moment, in UTC.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "csv", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
@click.option("--every-project", is_flag=True, help="All projects, also deleted ones; an operator's option.")
@with_client
def command(client: "Client", by: str, since: str | None, until: str | None, output: str, every_project: bool) -> None:
    """Show what the project has used: what is granted to simulations counts, from launch to end.

    \b
    windtunnel usage --by day,user --since 2026-11-01
    windtunnel usage --by label:team --output csv
    """
    names = [name.strip() for name in by.split(",") if name.strip()]
    if output == "csv":
        click.echo(
            client.usage.csv(names, since=since, until=until, every_project=every_project).replace("\r\n", "\n"),
            nl=False,
        )
        return
    usage = client.usage.get(names, since=since, until=until, every_project=every_project)
    if output != "table":
        click.echo(outputs.serialised(usage.raw, output))
        return
    rows = [{**item, **_cells(numbers)} for item, numbers in zip(usage.items, usage.sums, strict=True)]
    total = {name: "" if at else "total" for at, name in enumerate(names)} | _cells(usage.total)
    heads = [*names, *(head for head, _ in COLUMNS)]
    outputs.show_table([(head, head) for head in heads], [*(rows if names else ()), total])


def _cells(numbers: UsageNumbers) -> dict[str, str]:
    return {head: shown(numbers) for head, shown in COLUMNS}
