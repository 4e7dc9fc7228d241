"""`windtunnel estimate`: the needs of a simulation, before it is submitted."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import output as outputs
from windtunnel.commands.gang_options import gang_options, submission_of
from windtunnel.commands.options import dataset_names, models_and_files, with_client
from windtunnel.commands.submission_options import submission_options
from windtunnel.usage_records import Estimate, QuotaPart, ResourcePart

if TYPE_CHECKING:
    from windtunnel import Client

#: The simulations on which an estimate rests, in words.
BASES = {
    "model": "{:,} earlier simulations of this model, {:,} tasks",
    "dataset": "{:,} earlier simulations of other models on this dataset, {:,} tasks",
    "none": "nothing like it has succeeded in this project yet",
}
COLUMNS: Sequence[outputs.RecordColumn[Estimate]] = (
    ("tasks", lambda estimate: f"{estimate.tasks:,}"),
    ("workers", lambda estimate: estimate.workers),
    ("core hours", lambda estimate: _amount(estimate.core_hours, "{:,.3f}")),
    ("runs for", lambda estimate: _amount(estimate.seconds, "{:,.0f} s")),
    ("cost", lambda estimate: f"{_amount(estimate.cost, '{:,.2f}')} {estimate.currency}".strip()),
    ("rests on", lambda estimate: BASES[estimate.basis.kind].format(estimate.basis.simulations, estimate.basis.tasks)),
    ("quotas", lambda estimate: _shares(estimate.quotas) or "none"),
    ("own quotas", lambda estimate: _shares(estimate.user_quotas) or "none"),
    ("resources", lambda estimate: _shares(estimate.resources) or "no limits"),
    ("own resources", lambda estimate: _shares(estimate.user_resources) or "no limits"),
    ("never starts", lambda estimate: estimate.never_starts or ""),
)


@click.command()
@click.argument("model", shell_complete=models_and_files)
@click.argument("dataset", required=False, shell_complete=dataset_names)
@submission_options()
@gang_options()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
@with_client
def command(client: "Client", model: str, dataset: str | None, output: str, **options: object) -> None:
    """Estimate the needs of a simulation of MODEL on DATASET: at once, without a worker; nothing is uploaded.

    MODEL, DATASET and the options of the submission are those of `windtunnel run`. A number that is not known is left
    empty.

    \b
    windtunnel estimate policy.onnx car_street --scenarios 0-499
    windtunnel estimate heat.py --ranks 4
    """
    dataset, submission = submission_of(model, dataset, options)
    estimate = client.simulations.estimate(model, dataset, **submission)
    outputs.show_records([estimate], COLUMNS, output, named=True)


def _amount(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _shares(parts: Mapping[str, QuotaPart] | Mapping[str, ResourcePart]) -> str:
    return ", ".join(f"{part.part:.0%} of {name}" for name, part in parts.items() if part.part is not None)
