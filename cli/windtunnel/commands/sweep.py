"""`windtunnel sweep`: how a model did with each value of the swept parameters."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.commands.options import simulation_ids, with_client
from windtunnel.errors import WindtunnelError

if TYPE_CHECKING:
    from windtunnel import Client, Dataset

#: Rows of a sweep below a run's report, and metrics of a dataset that has no score.
MOST_ROWS, MOST_METRICS = 20, 5


@click.command()
@click.argument("id", shell_complete=simulation_ids)
@click.option("--metric", help="Name of a metric; if left out the score, or the means of all.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="Format.")
@with_client
def command(client: "Client", id: str, metric: str | None, output: str) -> None:
    """Show the tasks, the failures, and a metric with its 95 % interval, for each combination of a sweep.

    \b
    windtunnel run controller.py car_street --sweep latency_steps=0,3,8
    windtunnel sweep last --metric min_ttc
    """
    id = client.simulations.find(id)
    document = client.simulations.sweep(id)
    if output != "table":
        click.echo(outputs.serialised(document, output))
        return
    dataset = client.datasets.get(client.simulations.get(id).dataset.reference)
    if not document["parameters"]:
        click.echo("It has no sweep; `windtunnel run MODEL DATASET --sweep NAME=A,B,C` plays one.", err=True)
    click.echo(sweep_table(document, dataset, metric), nl=False)


def sweep_table(document: Mapping[str, Any], dataset: "Dataset", metric: str | None = None) -> str:
    """Return a row for each combination; of the score, tasks that are not ok count as its worst value.

    Raise WindtunnelError for a metric that no row has.
    """
    rows: Sequence[Mapping[str, Any]] = document["rows"]
    known = sorted({name for row in rows for name in row["metrics"]})
    shown = metric or dataset.score_metric
    if metric is not None and metric not in known:
        raise WindtunnelError(f"No row has the metric {metric!r:.200}; there are {', '.join(known)}.")
    columns: list[outputs.Column] = [(name, _parameter(name)) for name in document["parameters"]]
    columns += [("tasks", lambda row: row["tasks"]["done"]), ("failures", lambda row: _failures(row, dataset))]
    if shown is not None:
        penalised = shown == dataset.score_metric
        described = next((each for each in dataset.metrics if each.name == shown), None)
        unit = f" [{described.unit}]" if described is not None and described.unit else ""
        columns += [
            (f"{shown}{unit}", lambda row: figures.number(_statistics(row, shown, penalised)[0])),
            ("95 % low", lambda row: figures.number(_statistics(row, shown, penalised)[1])),
            ("95 % high", lambda row: figures.number(_statistics(row, shown, penalised)[2])),
        ]
    else:  # a program's metrics are those that it printed
        columns += [(name, _mean_of(name)) for name in known[:MOST_METRICS]]
    return outputs.table(columns, rows)


def _failures(row: Mapping[str, Any], dataset: "Dataset") -> int:
    """Return the tasks of a row that are not ok, or have an outcome that the dataset counts as a failure."""
    failure = dataset.raw.get("failure") or {"metric": "", "in": ()}
    outcomes = row["outcomes"].get(failure["metric"], {})
    failed: int = row["tasks"]["failed"] + sum(outcomes.get(outcome, 0) for outcome in failure["in"])
    return failed


def _parameter(name: str) -> Callable[[Mapping[str, Any]], object]:
    return lambda row: row["params"].get(name)


def _mean_of(metric: str) -> Callable[[Mapping[str, Any]], object]:
    return lambda row: figures.number(_statistics(row, metric, False)[0])


def _statistics(row: Mapping[str, Any], metric: str, penalised: bool) -> tuple[float | None, ...]:
    """Return a mean and its interval; ``penalised``: over all tasks, if the platform has that."""
    values = row["metrics"].get(metric, {})
    if penalised and "low_penalised" in values:
        return values["mean_penalised"], values["low_penalised"], values["high_penalised"]
    return values.get("mean"), values.get("low"), values.get("high")
