"""`windtunnel pipeline`: run a file of steps whose outputs are the inputs of the next, follow it, run it again."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from windtunnel import output as outputs
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import output_option, with_client
from windtunnel.commands.run import DETACHED
from windtunnel.visible_text import visible

if TYPE_CHECKING:
    from windtunnel import Client
    from windtunnel.pipeline_records import Pipeline, PipelineStep
    from windtunnel.records import Event

PIPELINE_COLUMNS: Sequence[outputs.Column] = [(name, name) for name in ("id", "name", "state", "steps", "created")]
STEP_COLUMNS: Sequence[outputs.Column] = [
    (name, name) for name in ("step", "state", "after", "run", "outputs", "reason")
]

#: Names of files, which no command has: with a suffix, or a folder.
_NAME_OF_FILE = re.compile(r"\A[^-].*[./]")


class PipelineFile(msgspec.Struct, forbid_unknown_fields=True):
    """The file of a pipeline: its steps as `POST /v1/pipelines` takes them."""

    steps: list[dict[str, object]]
    name: str | None = None
    labels: dict[str, str] = {}
    fresh: bool = False


class _StepEvent(msgspec.Struct):
    step: str
    state: str
    reason: str | None = None


class PipelineGroup(NounGroup):
    """Group whose command `run` is called with a file that is named in place of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `run` before what is a file, or is named as files are."""
        if args and args[0] not in self.commands and (Path(args[0]).is_file() or _NAME_OF_FILE.search(args[0])):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=PipelineGroup)
def command() -> None:
    """Run submissions and comparisons in their order, with the outputs of some as the inputs of others.

    \b
    windtunnel pipeline steps.json                 # submit, follow, report
    windtunnel pipeline retry ID --from train      # run a step again, and what waits for it

    An id may be shortened to its first letters; `last` is the newest.
    """


@command.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--fresh", is_flag=True, help="Run every step although equal ones were complete before.")
@click.option("--detach", is_flag=True, help="Print its id, and do not follow it.")
@with_client
def run(client: "Client", file: Path, fresh: bool, detach: bool) -> None:
    """Run the pipeline of a JSON FILE, `{"steps": [...]}`. Models that are files beside it are uploaded."""
    try:
        read = msgspec.json.decode(file.read_bytes(), type=PipelineFile)
    except msgspec.DecodeError as error:
        raise click.ClickException(f'{file} is not a pipeline: write {{"steps": [...]}} ({error}).') from None
    pipeline = client.pipelines.create(
        read.steps, name=read.name, labels=read.labels, fresh=fresh or read.fresh, folder=file.parent
    )
    _follow(client, pipeline, detach)


@command.command("list")
@click.option("--limit", type=click.IntRange(1), default=20, help="Most pipelines.")
@output_option()
@with_client
def list_(client: "Client", limit: int, output: str) -> None:
    """List pipelines, the newest first."""
    pipelines = list(client.pipelines.list(limit=limit))
    if output == "table":
        outputs.show_table(PIPELINE_COLUMNS, [_row_of(pipeline) for pipeline in pipelines])
    else:
        outputs.show_list([pipeline.raw for pipeline in pipelines], PIPELINE_COLUMNS, output)


@command.command()
@click.argument("id")
@output_option()
@with_client
def show(client: "Client", id: str, output: str) -> None:
    """Show the steps of a pipeline."""
    pipeline = client.pipelines.get(client.pipelines.find(id))
    if output in {"json", "yaml"}:
        click.echo(outputs.serialised(pipeline.raw, output))
        return
    _show_steps(pipeline)


@command.command()
@click.argument("id")
@with_client
def follow(client: "Client", id: str) -> None:
    """Follow a pipeline to its end."""
    _follow(client, client.pipelines.get(client.pipelines.find(id)), False)


@command.command()
@click.argument("id")
@click.option("--from", "first", metavar="STEP", help="Run this step again, and all that wait for it.")
@click.option("--fresh", is_flag=True, help="Skip none of them although equal ones were complete before.")
@click.option("--detach", is_flag=True, help="Do not follow it.")
@with_client
def retry(client: "Client", id: str, first: str | None, fresh: bool, detach: bool) -> None:
    """Run the steps again that failed, were cancelled or not run; or all from a step on."""
    _follow(client, client.pipelines.retry(client.pipelines.find(id), first=first, fresh=fresh), detach)


@command.command()
@click.argument("id")
@with_client
def cancel(client: "Client", id: str) -> None:
    """Cancel a pipeline, with its simulations and comparisons. Steps that are complete stay so."""
    pipeline = client.pipelines.cancel(client.pipelines.find(id))
    click.echo(f"{pipeline.id}  {pipeline.state}")


@command.command()
@click.argument("id")
@with_client
def delete(client: "Client", id: str) -> None:
    """Delete a pipeline that has ended. Its simulations, models and datasets are kept."""
    client.pipelines.delete(client.pipelines.find(id))


def _follow(client: "Client", pipeline: "Pipeline", detach: bool) -> None:
    """Follow a pipeline to its end and show its steps; exit with 1 unless it succeeds."""
    click.echo(f"{client.server.url}/pipelines/{pipeline.id}", err=True)
    if detach:
        click.echo(pipeline.id)
        return
    try:
        pipeline = client.pipelines.wait(pipeline.id, _tell_step)
    except KeyboardInterrupt:
        click.echo(
            f"{pipeline.id} has not ended and goes on: `windtunnel pipeline follow {pipeline.id}` follows it, `cancel`"
            " in place of `follow` cancels it.",
            err=True,
        )
        raise click.exceptions.Exit(DETACHED) from None
    _show_steps(pipeline)
    if pipeline.state != "succeeded":
        click.echo(f"`windtunnel pipeline retry {pipeline.id}` runs the steps again that have not succeeded.", err=True)
        raise click.exceptions.Exit(1)


def _tell_step(event: "Event") -> None:
    """Say on stderr that a step has another state."""
    if event.type == "step":
        told = msgspec.convert(event.raw, _StepEvent)
        click.echo(visible(f"{told.step}  {told.state}{f': {told.reason}' if told.reason else ''}"), err=True)


def _show_steps(pipeline: "Pipeline") -> None:
    click.echo(visible(f"{pipeline.name or pipeline.id}: {pipeline.state}"))
    if pipeline.reason:
        click.echo(visible(pipeline.reason))
    outputs.show_table(STEP_COLUMNS, [_row_of_step(step) for step in pipeline.steps])


def _row_of(pipeline: "Pipeline") -> dict[str, object]:
    """Return the cells of a pipeline in a list."""
    return {
        "id": pipeline.id,
        "name": pipeline.name,
        "state": pipeline.state,
        "steps": ", ".join(f"{count} {state}" for state, count in pipeline.counts.items()),
        "created": f"{pipeline.created_at:%Y-%m-%d %H:%M}" if pipeline.created_at else "",
    }


def _row_of_step(step: "PipelineStep") -> dict[str, object]:
    """Return the cells of a step."""
    return {
        "step": step.name,
        "state": step.state,
        "after": ", ".join(step.after),
        "run": step.simulation_id or step.comparison_id,
        "outputs": ", ".join(f"{name}: {made.reference}" for name, made in step.outputs.items()),
        "reason": step.reason,
    }
