"""`windtunnel gate`: let a candidate through, or not, by a sequential comparison with a reference; for CI."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windtunnel import gate, tables
from windtunnel import output as outputs
from windtunnel.commands.events import tell_batch
from windtunnel.commands.options import dataset_names, models_and_files, with_client
from windtunnel.errors import WindtunnelError
from windtunnel.submissions import pairs
from windtunnel.visible_text import visible

if TYPE_CHECKING:
    from windtunnel import Client, Simulation
    from windtunnel.records import ModelComparison

#: Seconds between two requests for a report whose replays are being made, and for how long it is waited for.
REPORT_INTERVAL, REPORT_PATIENCE = 2.0, 300.0


@click.command()
@click.argument("candidate", shell_complete=models_and_files)
@click.option("--against", required=True, metavar="MODEL", shell_complete=models_and_files, help="The reference.")
@click.option("--dataset", required=True, shell_complete=dataset_names, help="Dataset whose scenarios are played.")
@click.option(
    "--require",
    type=click.Choice(["not-worse", "better", "equivalent"]),
    default="not-worse",
    show_default=True,
    help="What has to be shown of the candidate.",
)
@click.option("--margin", type=click.FloatRange(0), help="Difference that does not matter; 2 % of a declared range.")
@click.option(
    "--no-new-failures",
    "new_failures",
    metavar="[N]",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0),
    help="Play all scenarios, and fail if more than N broke (0).",
)
@click.option("--max-failures", type=click.IntRange(0), default=0, help="Tasks that may be not ok; none by default.")
@click.option("--groups", is_flag=True, help="Play all scenarios, and fail also if a group of them has regressed.")
@click.option("--metric", help="Metric of the verdict; the dataset's score if left out.")
@click.option("--error-rate", type=click.FloatRange(1e-4, 0.5), help="Probability of a wrong verdict; 0.05.")
@click.option("--bound", type=float, help="Largest difference that counts, for a metric without a declared range.")
@click.option("--scenarios", metavar="0-99,120", help="Only these scenarios.")
@click.option("--trusted", is_flag=True, help="Run both models in the evaluator's process, and let that count.")
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
    new_failures: int | None,
    trusted: bool,
    labels: tuple[str, ...],
    junit: str | None,
    markdown: str | None,
    html: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Compare CANDIDATE with a reference. Exit codes: 0 passed; 1 refuted, or a check failed; 2 nothing could be
    compared; 3 undecided: neither what is required nor its opposite was shown.

    Both play the same scenarios, in batches, until that is shown at the error rate, or all are played. CANDIDATE
    and the reference are files, names (`prod`, `prod@3`, `prod@gold`) or references. A candidate that fails in a task
    does not pass.

    \b
    windtunnel gate candidate.onnx --against prod@gold --dataset car_street --junit gate.xml --html report.html
    """
    began = time.monotonic()
    files = [Path(file) for file in (junit, html, markdown) if file and file != "-"]
    for file in files:
        tables.checked_target(file)  # now, not after the comparison
    title = f"{Path(candidate).stem} against {Path(against).stem} on {dataset}"

    def report(judgement: Judgement) -> None:
        checks, url = judgement.checks, judgement.url
        if junit:
            Path(junit).write_bytes(gate.junit(checks, name=title, url=url, seconds=time.monotonic() - began))
        if markdown:
            text = gate.markdown(checks, judgement.model, title=title, url=url, server=client.server.url)
            click.echo(text) if markdown == "-" else Path(markdown).write_text(text, encoding="utf-8")

    options["labels"] = pairs(labels, "--label")
    try:
        required = Required(require, max_failures, groups, new_failures, trusted)
        judgement = _judged(client, (candidate, against), dataset, required, options)
    except (WindtunnelError, click.ClickException) as error:  # the next step of a CI may read the reports
        report(Judgement({"name": candidate}, client.server.url, [gate.errored(str(error))]))
        raise
    if html and judgement.comparison is not None:
        _write_report(client, judgement.comparison, Path(html))
    elif html:
        click.echo(f"{html} is not written: nothing was compared.", err=True)
    report(judgement)
    if as_json:
        document = {"passed": gate.passes(judgement.checks), "url": judgement.url, "model": judgement.model}
        click.echo(outputs.serialised(document, "json"))
    elif markdown != "-":
        _print(judgement.checks)
    raise click.exceptions.Exit(gate.exit_code(judgement.checks))


@dataclass(frozen=True)
class Required:
    """What a candidate has to show. ``new_failures``: scenarios that may break; None: any number.

    ``trusted``: both models are run in the evaluator's process, and their results count.
    """

    claim: gate.Requirement
    max_failures: int
    groups: bool
    new_failures: int | None
    trusted: bool


@dataclass(frozen=True)
class Judgement:
    """What the gate has found: the document of the candidate, the page of what was played, and the checks.

    ``comparison``: the id of the comparison, if there was one.
    """

    model: dict[str, Any]
    url: str
    checks: list[gate.Check]
    comparison: str | None = None


def _judged(
    client: "Client",
    models: tuple[str, str],
    dataset: str,
    required: Required,
    options: dict[str, Any],
) -> Judgement:
    """Compare a candidate with a reference; of the same bytes, play the candidate alone."""
    references = [client.models.stored(model) for model in models]
    known = [client.models.get(reference) for reference in references]
    given = {name: value for name, value in options.items() if value is not None}
    if required.trusted:
        given["trusted"] = True
    if known[0].digest == known[1].digest:
        chosen = {name: given[name] for name in ("scenarios", "labels", "trusted") if name in given}
        simulation = client.submit(references[0], dataset, **chosen)
        url = f"{client.server.url}/simulations/{simulation.id}"
        click.echo(url, err=True)
        with _cancelled_by_ctrl_c(client.simulations, simulation.id):
            simulation = client.simulations.wait(simulation.id)
        if simulation.state not in {"succeeded", "failed"}:
            raise click.ClickException(f"The simulation {simulation.id} is {simulation.state}: {simulation.reason}")
        checks = [gate.same_model(required.claim), _tasks(client, [simulation], required.max_failures)]
        checks += _trust([simulation], required)
        return Judgement({"name": known[0].name}, url, checks)
    comparison = client.comparisons.create(
        references,
        dataset,
        reference=references[1],
        play_all=required.groups or required.new_failures is not None or None,
        until=gate.claim_of(required.claim),
        **given,
    )
    url = f"{client.server.url}/comparisons/{comparison.id}"
    click.echo(url, err=True)
    with _cancelled_by_ctrl_c(client.comparisons, comparison.id):
        comparison = client.comparisons.wait(comparison.id, tell_batch)
    model = comparison.raw["models"][0]
    played = [client.simulations.get(simulation["id"]) for simulation in model["simulations"]]
    if comparison.state != "finished" and not (played and played[-1].state == "failed"):
        raise click.ClickException(f"The comparison {comparison.id} is {comparison.state}: {comparison.reason}")
    checks = [gate.verdict_check(model, required.claim), _tasks(client, played, required.max_failures)]
    checks += _trust([comparison, *played], required)
    if required.new_failures is not None:
        checks.append(gate.flip_check(model, required.new_failures))
    return Judgement(model, url, checks + (gate.group_checks(model) if required.groups else []), comparison.id)


def _trust(played: "Sequence[Simulation | ModelComparison]", required: Required) -> list[gate.Check]:
    """Return the check of trusted results, if there are any: they count only where the gate was asked for them."""
    check = gate.trust_check(any(each.trusted for each in played), allowed=required.trusted)
    return [check] if check is not None else []


def _tasks(client: "Client", played: "Sequence[Simulation]", allowed: int) -> gate.Check:
    """Return the check of the candidate's tasks in the simulations that it has played."""
    failed = [simulation for simulation in played if simulation.tasks.failed]
    error = next(iter(client.simulations.worst(failed[0].id, limit=1))).error if failed else None
    if not failed and (stopped := [simulation for simulation in played if simulation.state == "failed"]):
        return gate.Check("tasks", "every task is ok", "failed", f"The candidate cannot be played: {stopped[0].reason}")
    return gate.task_check(
        sum(simulation.tasks.failed for simulation in played),
        sum(simulation.tasks.done for simulation in played),
        allowed=allowed,
        error=error,
    )


def _print(checks: list[gate.Check]) -> None:
    for check in checks:
        if check.suite in {"verdict", "flips", "trusted"} or check.outcome == "failed":
            colour = {"passed": "green", "undecided": "yellow"}.get(check.outcome, "red")
            click.echo(f"{click.style(check.outcome, fg=colour)}  {visible(check.message)}")
    skipped = sum(check.outcome == "skipped" for check in checks)
    if skipped:
        click.echo(f"{skipped} groups have too few scenarios for a verdict of their own.")


@contextmanager
def _cancelled_by_ctrl_c(kind: Any, id: str) -> Iterator[None]:
    """Cancel a simulation or a comparison on Ctrl-C, which ends jobs of a CI."""
    try:
        yield
    except KeyboardInterrupt:
        kind.cancel(id)
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
