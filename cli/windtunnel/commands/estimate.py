"""`windtunnel estimate`: the needs of a simulation, before it is submitted."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from windtunnel import output as outputs
from windtunnel.commands.options import dataset_names, models_and_files, with_client
from windtunnel.commands.submission_options import field_values, submission_options
from windtunnel.usage_records import Estimate, QuotaPart

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
)


@click.command()
@click.argument("model", shell_complete=models_and_files)
@click.argument("dataset", shell_complete=dataset_names)
@submission_options()
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
@with_client
def command(client: "Client", model: str, dataset: str, output: str, **options: object) -> None:
    """Estimate the needs of a simulation of MODEL on DATASET: at once, without a worker; nothing is uploaded.

    The options are those of `windtunnel run`. A number that is not known is left empty.

    \b
    windtunnel estimate policy.onnx car_street --scenarios 0-499
    """
    estimate = client.simulations.estimate(model, dataset, **field_values(options))
    outputs.show_records([estimate], COLUMNS, output, named=True)


def _amount(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _shares(parts: Mapping[str, QuotaPart]) -> str:
    return ", ".join(f"{part.part:.0%} of {name}" for name, part in parts.items() if part.part is not None)
