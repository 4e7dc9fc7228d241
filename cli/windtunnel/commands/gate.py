"""`windtunnel gate`: let a candidate through, or not, by a sequential comparison with a reference; for CI."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel import gate
from windtunnel import output as outputs
from windtunnel.commands.options import dataset_names, models_and_files, with_client
from windtunnel.submissions import pairs
from windtunnel.visible_text import visible

if TYPE_CHECKING:
    from windtunnel import Client, ModelComparison

#: Seconds between two requests for a report whose replays are being made, and for how long it is waited for.
REPORT_INTERVAL, REPORT_PATIENCE = 2.0, 300.0
#: Exit codes.
PASSED, FAILED = 0, 1


@click.command()
@click.argument("candidate", shell_complete=models_and_files)
@click.option("--against", required=True, metavar="MODEL", shell_complete=models_and_files, help="The reference.")
@click.option("--dataset", required=True, shell_complete=dataset_names, help="Dataset whose scenarios are played.")
@click.option(
    "--require",
    type=click.Choice(["not-worse", "better"]),
    default="not-worse",
    show_default=True,
    help="The verdict that lets the candidate through.",
)
@click.option("--max-failures", type=click.IntRange(0), default=0, help="Tasks that may be not ok; none by default.")
@click.option("--groups", is_flag=True, help="Play all scenarios, and fail also if a group of them has regressed.")
@click.option("--metric", help="Metric of the verdict; the dataset's score if left out.")
@click.option("--error-rate", type=click.FloatRange(1e-9, 0.5), help="Probability of a wrong verdict; 0.05.")
@click.option("--bound", type=float, help="Largest difference that counts, for a metric without a declared range.")
@click.option("--scenarios", metavar="0-99,120", help="Only these scenarios.")
@click.option("--label", "labels", metavar="NAME=VALUE", multiple=True, help="Label, such as commit=1a2b3c.")
@click.option("--junit", metavar="FILE", type=click.Path(dir_okay=False), help="Write a JUnit report.")
@click.option("--markdown", metavar="FILE", type=click.Path(dir_okay=False), help="Write a summary; `-`: stdout.")
@click.option("--html", metavar="FILE", type=click.Path(dir_okay=False), help="Write the report, with replays.")
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON, and nothing else.")
@with_client
def command(
    client: "Client",
    /,
    candidate: str,
    against: str,
    dataset: str,
    require: gate.Requirement,
    max_failures: int,
    groups: bool,
    labels: tuple[str, ...],
    junit: str | None,
    markdown: str | None,
    html: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare CANDIDATE with a reference and exit 0 if it passes, 1 if it does not, 2 if that cannot be said.

    Both play the same scenarios, in batches, until the verdict holds at the error rate, or all are played. CANDIDATE
    and the reference are files, names (`prod`, `prod@3`, `prod@gold`) or references. A candidate that fails in a task
    does not pass.

    \b
    windtunnel gate candidate.onnx --against prod@gold --dataset car_street --junit gate.xml --html report.html
    """
    began = time.monotonic()
    models = [client.models.stored(model) for model in (candidate, against)]
    names = [client.models.get(model) for model in models]
    title = f"{names[0].name} against {names[1].name} on {dataset}"
    if names[0].digest == names[1].digest:
        document, url, checks = {"name": names[0].name}, client.server.url, [gate.same_model()]
    else:
        comparison = client.comparisons.create(
            models,
            dataset,
            reference=models[1],
            play_all=groups or None,
            labels=pairs(labels, "--label"),
            **{name: value for name, value in options.items() if value is not None},
        )
        url = f"{client.server.url}/comparisons/{comparison.id}"
        click.echo(url, err=True)
        comparison = _followed(client, comparison)
        document = comparison.raw["models"][0]
        checks = _checks(client, comparison, require, max_failures, groups)
        if html:
            _write_report(client, comparison.id, Path(html))
    if junit:
        Path(junit).write_bytes(gate.junit(checks, name=title, url=url, seconds=time.monotonic() - began))
    if markdown:
        text = gate.markdown(checks, document, title=title, url=url, server=client.server.url)
        click.echo(text) if markdown == "-" else Path(markdown).write_text(text, encoding="utf-8")
    if as_json:
        click.echo(outputs.serialised({"passed": gate.passes(checks), "url": url, "model": document}, "json"))
    elif markdown != "-":
        _print(checks)
    raise click.exceptions.Exit(PASSED if gate.passes(checks) else FAILED)


def _checks(
    client: "Client", comparison: "ModelComparison", require: gate.Requirement, max_failures: int, groups: bool
) -> list[gate.Check]:
    """Return the checks of a comparison that has ended; raise ClickException if it says nothing of the candidate."""
    model = comparison.raw["models"][0]
    played = [client.simulations.get(simulation["id"]) for simulation in model["simulations"]]
    if comparison.state != "finished" and not (played and played[-1].state == "failed"):
        raise click.ClickException(f"The comparison {comparison.id} is {comparison.state}: {comparison.reason}")
    failed = [simulation for simulation in played if simulation.tasks.failed]
    error = None
    if failed:
        error = next(iter(client.simulations.worst(failed[0].id, limit=1))).error
    tasks = gate.task_check(
        sum(simulation.tasks.failed for simulation in played),
        sum(simulation.tasks.done for simulation in played),
        allowed=max_failures,
        error=error,
    )
    return [gate.verdict_check(model, require), tasks, *(gate.group_checks(model) if groups else [])]


def _print(checks: list[gate.Check]) -> None:
    for check in checks:
        if check.suite == "verdict" or check.outcome == "failed":
            colour = "green" if check.outcome == "passed" else "red"
            click.echo(f"{click.style(check.outcome, fg=colour)}  {visible(check.message)}")
    skipped = sum(check.outcome == "skipped" for check in checks)
    if skipped:
        click.echo(f"{skipped} groups have too few pairs for a verdict of their own.")


def _followed(client: "Client", comparison: "ModelComparison") -> "ModelComparison":
    """Follow a comparison to its end; on Ctrl-C, which ends jobs of a CI, cancel it."""

    def tell(event: Any) -> None:
        if event.type == "batch":
            click.echo(visible(event.raw["sentence"]), err=True)

    try:
        return client.comparisons.wait(comparison.id, tell)
    except KeyboardInterrupt:
        client.comparisons.cancel(comparison.id)
        raise


def _write_report(client: "Client", id: str, file: Path) -> None:
    """Write the report with its replays, which the platform makes on demand."""
    deadline = time.monotonic() + REPORT_PATIENCE
    while (page := client.page(f"/comparisons/{id}/report.html")) is None:
        if time.monotonic() > deadline:
            raise click.ClickException(
                f"The replays of the report are not made yet; fetch it later from the page of {id}."
            )
        time.sleep(REPORT_INTERVAL)
    file.write_bytes(page)
