"""`windtunnel simulations`: list, show and delete simulations."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.answers import failures_text, score_text
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import (
    confirm,
    dataset_names,
    model_names,
    output_option,
    save_option,
    simulation_ids,
    with_client,
)
from windtunnel.descriptions import running_text
from windtunnel.submissions import pairs

if TYPE_CHECKING:
    from windtunnel import Client, Simulation

#: Seconds between two reads of a list that is watched.
WATCH_INTERVAL = 2.0
STATES = "queued staging launching running cancelling succeeded failed errored cancelled".split()


@click.group(cls=NounGroup)
def command() -> None:
    """List, show and delete simulations. An id may be shortened to its first letters; `last` is the newest."""


@command.command("list")
@click.option("--state", type=click.Choice(STATES), multiple=True, help="In this state; may be repeated.")
@click.option("--dataset", shell_complete=dataset_names, help="Of this dataset.")
@click.option("--model", shell_complete=model_names, help="Of models with this name.")
@click.option("--label", "labels", metavar="NAME=VALUE", multiple=True, help="With this label; may be repeated.")
@click.option("--comparison", metavar="ID", help="Batches of this comparison; `none`: without those of comparisons.")
@click.option("-q", "--query", metavar="WORDS", help="Words in the names, the labels, or the first letters of the id.")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="At most this many.")
@click.option("-w", "--watch", is_flag=True, help="Read the list again every two seconds, until Ctrl-C.")
@output_option()
@with_client
def list_(
    client: "Client",
    state: Sequence[str],
    dataset: str | None,
    model: str | None,
    labels: Sequence[str],
    comparison: str | None,
    query: str | None,
    limit: int,
    watch: bool,
    output: str,
) -> None:
    """List simulations, the newest first."""
    wanted = pairs(labels, "--label")

    def read() -> list[dict[str, Any]]:
        found = client.simulations.list(
            query=query,
            state=state,
            dataset=dataset,
            model=model,
            labels=wanted,
            comparison=comparison,
            limit=limit,
        )
        return [item.raw for item in found]

    outputs.show_list(read(), COLUMNS, output)
    while watch:
        time.sleep(WATCH_INTERVAL)
        documents = read()
        click.clear()
        outputs.show_list(documents, COLUMNS, output)


@command.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=simulation_ids)
@click.option("--web", is_flag=True, help="Open the page of the simulation in a browser.")
@output_option()
@with_client
def get(client: "Client", ids: Sequence[str], web: bool, output: str) -> None:
    """Show simulations: state, progress, metrics so far."""
    found = [client.simulations.get(client.simulations.find(id)) for id in ids]
    if web:
        for item in found:
            click.launch(f"{client.server.url}/simulations/{item.id}")
        return
    show_one([item.raw for item in found], output)


def show_one(documents: Sequence[dict[str, Any]], format: str) -> None:
    """Print simulations that were named, with the metrics of a single one."""
    outputs.show_one(documents, DETAILS, format)
    if format == "table" and len(documents) == 1 and documents[0]["metrics"]:
        click.echo()
        metrics = [{"name": name, **statistics} for name, statistics in documents[0]["metrics"].items()]
        outputs.show_table(METRICS, metrics)


@command.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=simulation_ids)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_client
def delete(client: "Client", ids: Sequence[str], yes: bool) -> None:
    """Delete simulations that have ended, with their results."""
    found = [client.simulations.find(id) for id in ids]
    confirm(f"Delete {', '.join(found)} with all results?", yes=yes)
    for id in found:
        client.simulations.delete(id)
        click.echo(id)


@command.command()
@click.argument("id", shell_complete=simulation_ids)
@save_option("ID.zip")
@click.option("--no-model", is_flag=True, help="Without the model's file.")
@with_client
def archive(client: "Client", id: str, output: str | None, no_model: bool) -> None:
    """Save all of an ended simulation as a zip: results, summary, traces, logs, model."""
    from windtunnel.commands.transfer_bar import transfer_bar

    with transfer_bar("archive") as progress:
        file = client.simulations.archive(client.simulations.find(id), output, model=not no_model, progress=progress)
    click.echo(file)


def _tasks(document: outputs.Document) -> str:
    tasks = document["tasks"]
    return f"{tasks['done']}/{tasks['total']}" + (f" ({tasks['failed']} not ok)" if tasks["failed"] else "")


def _record(document: outputs.Document) -> "Simulation":
    from windtunnel.records import Simulation, read

    return read(Simulation, dict(document))


def _time(name: str) -> Any:
    return lambda document: (document.get(name) or "")[:19].replace("T", " ")


def _age(document: outputs.Document) -> str:
    from datetime import datetime

    return figures.age(datetime.fromisoformat(document["created_at"]))


def _model(document: outputs.Document) -> str:
    simulation = _record(document)
    model = simulation.model
    name = f"{model.name}@{model.version}" if model.version else model.name
    return f"{name} (trusted)" if simulation.trusted else name


COLUMNS: Sequence[outputs.Column] = (
    ("id", "id"),
    ("state", "state"),
    ("model", _model),
    ("dataset", lambda document: f"{document['dataset']['name']}@{document['dataset']['version']}"),
    ("tasks", _tasks),
    ("score", lambda document: score_text(_record(document).answer)),
    ("failures", lambda document: failures_text(_record(document).answer)),
    ("age", _age),
)


def _running_task(document: outputs.Document) -> str:
    task = _record(document).running
    return running_text(task.task, task.fraction) if task is not None else ""


DETAILS: Sequence[outputs.Column] = (
    *COLUMNS[:7],
    ("runtime", lambda document: document["runtime"]["name"]),
    ("executor", "executor"),
    ("workers", "workers"),
    ("reason", "reason"),
    ("position", "position"),
    ("remaining", lambda document: figures.seconds(document["eta"]) if document["eta"] is not None else ""),
    ("running", _running_task),
    ("labels", lambda document: ", ".join(f"{name}={value}" for name, value in document["labels"].items())),
    ("submitted", _time("created_at")),
    ("started", _time("started_at")),
    ("ended", _time("ended_at")),
    ("results digest", "results_digest"),
    ("retry of", "retry_of"),
)
METRICS: Sequence[outputs.Column] = (
    ("metric", "name"),
    ("mean", lambda metric: figures.number(metric.get("mean"))),
    ("95 % low", lambda metric: figures.number(metric.get("low"))),
    ("95 % high", lambda metric: figures.number(metric.get("high"))),
    ("min", lambda metric: figures.number(metric.get("min"))),
    ("median", lambda metric: figures.number(metric.get("p50"))),
    ("max", lambda metric: figures.number(metric.get("max"))),
)
