"""`windtunnel run`: upload a model, simulate it, show the progress, report how it did."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from windtunnel import tables
from windtunnel.commands.gang_options import gang_options, submission_of
from windtunnel.commands.options import SaveOption, dataset_names, models_and_files, with_client
from windtunnel.commands.submission_options import submission_options
from windtunnel.errors import WindtunnelError
from windtunnel.output import serialised
from windtunnel.visible_text import visible

if TYPE_CHECKING:
    from windtunnel import Client, Dataset, Simulation

#: Seconds between two looks at the file of a model that is watched.
LOOK_INTERVAL = 0.3
#: What is printed: the report, the simulation as JSON, or its id.
Style = Literal["report", "json", "quiet"]
#: Exit codes: the model failed; it could not be run; the run goes on without us.
FAILED, NOT_RUN, DETACHED = 1, 2, 130


@click.command()
@click.argument("model", shell_complete=models_and_files)
@click.argument("dataset", required=False, shell_complete=dataset_names)
@submission_options()
@gang_options()
@click.option(
    "--save", "outputs", cls=SaveOption, metavar="FILE", multiple=True, help="Save results: .parquet, .csv, .ndjson."
)
@click.option("--json", "as_json", is_flag=True, help="Print the simulation at its end as JSON, and nothing else.")
@click.option("-q", "--quiet", is_flag=True, help="Print the id when it has ended, and nothing else.")
@click.option("-d", "--detach", is_flag=True, help="Submit only.")
@click.option("--watch", is_flag=True, help="Run again whenever the model's file changes.")
@with_client
def command(
    client: "Client",
    model: str,
    dataset: str | None,
    outputs: Sequence[str],
    as_json: bool,
    quiet: bool,
    detach: bool,
    watch: bool,
    **options: Any,
) -> None:
    """Simulate MODEL on DATASET and show how it did.

    MODEL is a file, a folder, the name of a model that the platform has, or a reference such as s3://bucket/model.onnx.

    \b
    windtunnel run policy.onnx car_street
    windtunnel run controller.py car_street --scenarios 0-49 --sweep latency_steps=0,2,4 --save results.parquet
    windtunnel run heat.py --ranks 4
    windtunnel run solver.c --ranks 4

    With --ranks, MODEL is a program whose ranks run together and communicate, such as by MPI: a Python file, one of C
    or C++, which is compiled, an executable, or a folder. Its DATASET is `program`, of which one task is run unless
    others are asked for.

    Exit codes: 0 every task is ok; 1 the model failed, as a whole or in a task; 2 it could not be run or was cancelled.
    Ctrl-C asks whether to cancel the simulation or to leave it running.
    """
    for file in outputs:
        tables.format_of(Path(file))  # what cannot be written is an error now, not after the simulation
        tables.checked_target(Path(file))
    if as_json and quiet:
        raise click.UsageError("--json and --quiet exclude each other.")
    if detach and outputs:
        raise click.UsageError("--detach submits only; `windtunnel results ID --save FILE` saves the results later.")
    if watch and (detach or not Path(model).exists()):
        raise click.UsageError("--watch follows a model's file, and its simulation to the end.")
    dataset, submission = submission_of(model, dataset, options)
    if detach:
        simulation = _submitted(client, model, dataset, submission, quiet or as_json)
        click.echo(serialised(simulation.raw, "json") if as_json else simulation.id)
        return
    previous: str | None = None
    while True:
        changed = _changed(Path(model)) if watch else 0
        style: Style = "json" if as_json else "quiet" if quiet else "report"
        try:
            code, id = _run_once(client, model, dataset, submission, outputs, style, previous)
        except WindtunnelError as error:
            if not watch:
                raise
            click.echo(f"Error: {visible(str(error))}", err=True)  # the next change may mend it
        else:
            if not watch:
                raise click.exceptions.Exit(code)
            previous = id
        click.echo(f"\nWaiting for a change of {model}; Ctrl-C ends.", err=True)
        while _changed(Path(model)) in {changed, None}:
            time.sleep(LOOK_INTERVAL)


def _changed(path: Path) -> int | None:
    """Return the time of the last change of a file, or of any file of a folder; None while it is replaced."""
    try:
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        return max((file.stat().st_mtime_ns for file in files), default=0)
    except OSError:
        return None


def _submitted(client: "Client", model: str, dataset: str, submission: dict[str, Any], silent: bool) -> "Simulation":
    from windtunnel.commands.transfer_bar import transfer_bar

    try:
        with transfer_bar("upload", show=not silent) as progress:
            return client.submit(model, dataset, progress=progress, **submission)
    except KeyboardInterrupt:
        hint = "`windtunnel simulations list` shows whether it was accepted already."
        click.echo(f"Interrupted while the simulation was submitted; {hint}", err=True)
        raise


def _run_once(
    client: "Client",
    model: str,
    dataset: str,
    submission: dict[str, Any],
    files: Sequence[str],
    style: Style,
    previous: str | None,
) -> tuple[int, str]:
    """Run a simulation to its end and report it; return the exit code and the id."""
    silent = style != "report"
    simulation = _submitted(client, model, dataset, submission, silent)
    described = None if silent else client.datasets.get(simulation.dataset.reference)
    if style == "report":
        click.echo(f"{client.server.url}/simulations/{simulation.id}", err=True)
    simulation = _followed(client, simulation, described)
    if style == "quiet":  # before files are saved, which may fail
        click.echo(simulation.id)
    for file in files:
        client.simulations.results(simulation.id).save(file)
    if style == "json":
        click.echo(serialised(simulation.raw, "json"))
    elif described is not None:
        from windtunnel.commands.run_report import show_report

        show_report(client, simulation, described, files, previous)
    if simulation.ok:
        return 0, simulation.id
    model_failed = simulation.state == "failed" or (simulation.state == "succeeded" and simulation.tasks.failed > 0)
    return FAILED if model_failed else NOT_RUN, simulation.id


def _followed(client: "Client", simulation: "Simulation", dataset: "Dataset | None") -> "Simulation":
    """Follow a simulation to its end; on Ctrl-C ask whether to cancel it, to leave it, or to go on watching.

    ``dataset``: that of the simulation, to show its progress; None: silently.
    """
    from windtunnel.commands.live_view import LiveView

    after, cancelled = 0, False
    view = LiveView(simulation, dataset)
    while True:
        try:
            with view:
                for event in client.simulations.events(simulation.id, after):
                    after = event.number
                    view.event(event)
            return client.simulations.get(simulation.id)
        except WindtunnelError:
            click.echo(f"{simulation.id} has not ended here: `windtunnel events {simulation.id}` follows it.", err=True)
            raise
        except KeyboardInterrupt:
            if cancelled or not _cancels(simulation.id):
                click.echo(
                    f"{simulation.id} has not ended and goes on: `windtunnel events {simulation.id}` follows it.",
                    err=True,
                )
                raise click.exceptions.Exit(DETACHED) from None
            client.simulations.cancel(simulation.id)
            cancelled = True


def _cancels(id: str) -> bool:
    """Ask what Ctrl-C means; return whether to cancel. Without a terminal, or at a second Ctrl-C: no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    with suppress(click.Abort, KeyboardInterrupt):
        answer = click.prompt(
            f"\n{id} has not ended. Leave it running (detach), or cancel it?",
            type=click.Choice(["detach", "cancel"]),
            default="detach",
            err=True,
        )
        return bool(answer == "cancel")
    return False
