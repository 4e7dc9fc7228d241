"""Report at the end of `windtunnel run`: the answer, the metrics, the worst tasks, and what to look at next."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.answers import answer_lines
from windtunnel.commands.compare import notice_of
from windtunnel.commands.results import columns
from windtunnel.commands.sweep import MOST_ROWS, sweep_table
from windtunnel.visible_text import visible

if TYPE_CHECKING:
    from windtunnel import Client, Dataset, Simulation

#: Worst tasks that are shown.
MOST_WORST = 5


def show_report(
    client: "Client", simulation: "Simulation", dataset: "Dataset", files: Sequence[str], previous: str | None
) -> None:
    """Print how a simulation on a dataset did; ``previous`` is the id of a run to compare it with."""
    tasks, took = simulation.tasks, ""
    if simulation.started_at and simulation.ended_at:
        took = f" in {figures.seconds((simulation.ended_at - simulation.started_at).total_seconds())}"
    click.echo(
        visible(f"{simulation.model.name} on {simulation.dataset.name}: ")
        + outputs.coloured(simulation.state)
        + f", {tasks.done} of {tasks.total} tasks{took}"
        + (f", {tasks.failed} not ok" if tasks.failed else "")
    )
    if simulation.trusted:
        click.echo("trusted: the model ran in the evaluator's process and could have changed its own score")
    if simulation.reason:
        click.echo(visible(simulation.reason))
    if simulation.answer is not None:
        click.echo()
        for line in answer_lines(simulation.answer):
            click.echo(visible(line))
    if any(metric.count for metric in simulation.metrics.values()):
        ok = simulation.tasks.done - simulation.tasks.failed
        click.echo(f"\nMetrics of the {ok} tasks that are ok:")
        click.echo(_metrics(simulation, dataset), nl=False)
    gang = simulation.spec.get("gang")
    if gang and tasks.done:
        _show_ranks(client, simulation.id)
    if simulation.spec.get("sweep") and tasks.done:
        _show_sweep(client, simulation.id, dataset)
    worst = client.simulations.worst(simulation.id, limit=MOST_WORST) if tasks.done else []
    if worst:  # none is worse than another where all are ok and the dataset has no score
        score = simulation.score.metric if simulation.score else None
        click.echo(f"\nThe worst {len(worst)} of {tasks.done}:")
        outputs.show_table(columns(score), [result.raw for result in worst])
    if previous is not None and tasks.done:
        _compare(client, simulation.id, previous)
    click.echo()
    for file in files:
        click.echo(f"results  {file}")
    if tasks.done and not gang:  # a program has nothing to draw, and what it prints is in the log
        task = worst[0].task if worst else 0
        click.echo(f"replay   windtunnel replay {simulation.id} {task} --open")
    if gang or tasks.failed or simulation.state == "failed":
        click.echo(f"logs     windtunnel logs {simulation.id}")
    click.echo(f"page     {client.server.url}/simulations/{simulation.id}")


def _show_ranks(client: "Client", id: str) -> None:
    """Print what each rank of the first task did, so that one that only waits is seen; an operator's gang has none."""
    result = next(iter(client.simulations.results(id, limit=1)), None)
    if result is None or not result.ranks:
        return
    rows = [
        {
            "rank": number,
            "computing": figures.seconds(rank.computing),
            "waiting": figures.seconds(rank.waiting),
            "all-reduce": figures.seconds(rank.all_reduce),
            "sent": figures.size(rank.sent),
        }
        for number, rank in enumerate(result.ranks)
    ]
    click.echo(f"\nRanks of task {result.task}:")
    outputs.show_table([(name, name) for name in rows[0]], rows)


def _show_sweep(client: "Client", id: str, dataset: "Dataset") -> None:
    """Print the score with each value of the swept parameters."""
    document = client.simulations.sweep(id)
    rows = document["rows"]
    click.echo(f"\nBy {' and '.join(map(visible, document['parameters']))}:")
    click.echo(sweep_table({**document, "rows": rows[:MOST_ROWS]}, dataset), nl=False)
    if len(rows) > MOST_ROWS:
        click.echo(f"{MOST_ROWS} of {len(rows)} combinations; `windtunnel sweep {id}` shows all.")


def _metrics(simulation: "Simulation", dataset: "Dataset") -> str:
    """Return the table of a simulation's metrics: the score first, then in the order of the dataset, then others."""
    found = simulation.raw["metrics"]
    declared = [metric for metric in dataset.score_first if metric.name in found]
    names = {metric.name for metric in declared}
    rows = [
        {**found[metric.name], "metric": metric.title or metric.name, "unit": metric.unit, "better": metric.better}
        for metric in declared
    ]
    rows += [{**found[name], "metric": visible(name), "unit": "", "better": ""} for name in found if name not in names]
    return outputs.table(
        (
            ("metric", "metric"),
            ("mean", lambda row: figures.number(row.get("mean"))),
            ("95 % low", lambda row: figures.number(row.get("low"))),
            ("95 % high", lambda row: figures.number(row.get("high"))),
            ("min", lambda row: figures.number(row.get("min"))),
            ("max", lambda row: figures.number(row.get("max"))),
            *([("never", lambda row: row.get("never"))] if any(row.get("never") for row in rows) else []),
            ("unit", "unit"),
            ("better", "better"),
        ),
        rows,
    )


def _compare(client: "Client", id: str, previous: str) -> None:
    """Print the verdict on this run and the one before; a dataset without a score has none."""
    comparison = client.simulations.compare(id, previous)
    if comparison["verdict"]:
        click.echo(f"\nCompared with the run before: {visible(comparison['verdict']['sentence'])}")
        if notice := notice_of(comparison):
            click.echo(visible(notice))
