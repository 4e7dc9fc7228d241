"""`windtunnel compare`: two simulations pair by pair, or models on the scenarios of a dataset until a verdict holds."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.commands.events import tell_batch
from windtunnel.commands.options import dataset_names, simulation_ids, with_client
from windtunnel.commands.submission_options import submission_options
from windtunnel.errors import WindtunnelError
from windtunnel.submissions import parameters
from windtunnel.visible_text import visible

if TYPE_CHECKING:
    from windtunnel import Client

METRICS: Sequence[outputs.Column] = (
    ("metric", "name"),
    ("first", lambda metric: figures.number(metric["mean"])),
    ("second", lambda metric: figures.number(metric["to"])),
    ("difference", lambda metric: figures.number(metric["difference"])),
    ("95 % low", lambda metric: figures.number(metric["low"])),
    ("95 % high", lambda metric: figures.number(metric["high"])),
    ("scenarios", "count"),
)
FLIPS: Sequence[outputs.Column] = (
    ("flip", "flip"),
    ("scenario", lambda flip: flip["name"] or flip["index"]),
    ("repeat", "repeat"),
    ("parameters", lambda flip: ", ".join(f"{name} {value}" for name, value in flip["params"].items())),
    ("first", "outcome"),
    ("second", "to_outcome"),
    ("at", lambda flip: figures.seconds(flip["at"])),
)


@click.command()
@click.argument("first", shell_complete=simulation_ids)
@click.argument("second", shell_complete=simulation_ids)
@click.option("--dataset", shell_complete=dataset_names, help="Compare two models (files or names) on this dataset.")
@click.option("--metric", help="Metric of the verdict; the dataset's score if left out.")
@click.option("--margin", type=click.FloatRange(0), help="Difference that does not matter; 2 % of a declared range.")
@click.option("--flips", is_flag=True, help="List the scenarios that only one of them fails.")
@click.option("--scenarios", metavar="0-99,120", help="With --dataset: only these.")
@submission_options("params")
@click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="Format.")
@with_client
def command(
    client: "Client",
    first: str,
    second: str,
    dataset: str | None,
    metric: str | None,
    margin: float | None,
    flips: bool,
    scenarios: str | None,
    params: Sequence[str],
    output: str,
) -> None:
    """Compare FIRST with SECOND, and say whether it is better, or equivalent within the margin.

    \b
    windtunnel compare 01jz8 01jz9                            # two simulations of the same scenarios
    windtunnel compare new.onnx old.onnx --dataset car_street # plays scenarios until the verdict holds
    """
    if dataset is not None:
        played = {"metric": metric, "margin": margin, "scenarios": scenarios, "params": parameters(params)}
        document = _played(client, (first, second), dataset, **played)
        verdicts = [model["verdict"] for model in document["models"]]
        flipped = document["models"][0]["flips"]
    else:
        if scenarios is not None or params:
            raise click.UsageError(
                "--scenarios and --param are for models, with --dataset; simulations have played theirs."
            )
        try:
            ids = [client.simulations.find(id) for id in (first, second)]
        except WindtunnelError as error:
            raise WindtunnelError(f"{error} To compare models, add --dataset.") from None
        document = client.simulations.compare(*ids, metric=metric, margin=margin)
        verdicts = [document["verdict"]]
        flipped = document["flips"]
    if output != "table":
        click.echo(outputs.serialised(document, output))
        return
    for verdict in verdicts:
        click.echo(visible(verdict["sentence"] if verdict else "There is no verdict: the dataset has no score."))
        if verdict and verdict["message"]:
            click.echo(visible(verdict["message"]))
    if notice := notice_of(document):
        click.echo(visible(notice))
    if flips and flipped:
        click.echo(f"\n{visible(flipped['sentence'])}")
        outputs.show_table(FLIPS, [{"flip": way, **flip} for way in ("broke", "fixed") for flip in flipped[way]])
    if dataset is None:
        click.echo()
        outputs.show_table(METRICS, paired_metrics(document))
        click.echo(
            "Differences are positive where the first is better; without a better direction, where it is higher."
        )
    else:
        click.echo(f"{client.server.url}/comparisons/{document['id']}", err=True)


def notice_of(comparison: Mapping[str, object]) -> str | None:
    """Return what a reader has to know of the models; None also from a server of an earlier release."""
    notice = comparison.get("notice")
    return notice if isinstance(notice, str) else None


def paired_metrics(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each metric, whose difference is positive where the first simulation is the better one.

    The row of the metric of the verdict has the verdict's interval: one difference has one interval.
    """
    verdict = document["verdict"] or {"metric": None}
    rows = []
    for name, values in document["metrics"].items():
        difference, low, high = values["difference"], values["low"], values["high"]
        if values["better"] == "lower":
            difference, low, high = -difference, high and -high, low and -low
        if name == verdict["metric"] and verdict["scale"]["kind"] == "declared":
            difference, low, high = verdict["mean"], verdict["low"], verdict["high"]
        rows.append({**values, "name": name, "difference": difference, "low": low, "high": high})
    return rows


def _played(client: "Client", models: Sequence[str], dataset: str, **members: Any) -> dict[str, Any]:
    """Upload the models that are files, compare them to the end, and return the comparison."""
    from windtunnel.commands.transfer_bar import transfer_bar

    names = []
    for model in models:
        with transfer_bar(model) as progress:
            names.append(client.models.stored(model, progress=progress))
    comparison = client.comparisons.create(names, dataset, **members)
    comparison = client.comparisons.wait(comparison.id, tell_batch)
    if comparison.state != "finished":
        raise click.ClickException(f"The comparison {comparison.id} is {comparison.state}: {comparison.reason}")
    return comparison.raw
