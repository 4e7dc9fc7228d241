"""`windtunnel check`: does a model fit a dataset? On this machine, before any upload, or on a platform."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.commands.options import dataset_names, models_and_files
from windtunnel.commands.submission_options import submission_options
from windtunnel.submissions import parameters

if TYPE_CHECKING:
    from windtunnel import Check, Client

#: Exit codes: the model fits; it does not. 2: it cannot be checked.
FITS, FITS_NOT = 0, 1

COLUMNS: Sequence[outputs.Column] = (
    ("fits", lambda check: "yes" if check["fits"] else "no"),
    ("reason", "reason"),
    ("dataset", "dataset"),
    ("runtime", "runtime"),
    ("format", "format"),
    ("loaded in", lambda check: _seconds(check["load_seconds"])),
    ("an action takes", lambda check: _seconds(check["act_seconds"])),
    ("the slowest", lambda check: _seconds(check["slowest_act_seconds"])),
    ("memory", lambda check: "" if check["memory"] is None else figures.size(check["memory"])),
)


@click.command()
@click.argument("model", shell_complete=models_and_files)
@click.argument("dataset", shell_complete=dataset_names)
@submission_options("runtime", "format", "params")
@click.option("--remote", is_flag=True, help="Check on the platform, which gets the model, not on this machine.")
@click.option(
    "--server", metavar="URL", help="Platform that the dataset is registered on, for a check on this machine."
)
@click.option("--context", metavar="NAME", help="Context instead of the current one, with --remote.")
@click.option("--url", metavar="URL", help="Address of the platform, with --remote.")
@click.option("--project", metavar="NAME", help="Project to act in, with --remote.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Format of the output.",
)
def command(
    model: str,
    dataset: str,
    runtime: str | None,
    format: str | None,
    params: Sequence[str],
    remote: bool,
    server: str | None,
    context: str | None,
    url: str | None,
    project: str | None,
    output: str,
) -> None:
    """Load MODEL and act for a few real steps of DATASET, on this machine: nothing is uploaded.

    MODEL is a file, a folder, or the name of a baseline. The evaluator, the model server and the sandbox are the
    platform's own, of the package windtunnel-server.

    Exit codes: 0 it fits; 1 it does not, and the reason is printed; 2 it cannot be checked.
    """
    values = parameters(params)
    if remote:
        if server is not None:
            raise click.UsageError("--server is of a check on this machine; with --remote, name the platform by --url.")
        from windtunnel import Client

        with Client(url, context=context, project=project) as client:
            check = _remote(client, model, dataset, runtime=runtime, format=format, params=values)
    else:
        if url is not None or context is not None or project is not None:
            raise click.UsageError("--url, --context and --project are of a check on a platform: add --remote.")
        check = _local(model, dataset, runtime=runtime, format=format, params=values, server=server)
    outputs.show_one([check.raw], COLUMNS, output)
    raise click.exceptions.Exit(FITS if check.fits else FITS_NOT)


def _local(model: str, dataset: str, **options: object) -> "Check":
    from windtunnel import local
    from windtunnel.server_command import NoServer

    def progress(message: str, done: int | None, total: int | None) -> None:
        if message:
            click.echo(message, err=True)

    try:
        return local.check(model, dataset, progress=progress, **options)  # type: ignore[arg-type]
    except NoServer as error:
        raise NoServer(f"{error} Or let the platform check: add --remote.") from None


def _remote(client: "Client", model: str, dataset: str, **options: object) -> "Check":
    from windtunnel.commands.transfer_bar import transfer_bar

    format = options.pop("format")
    with transfer_bar("upload") as progress:
        stored = client.models.stored(model, format=format, progress=progress)  # type: ignore[arg-type]
    members: dict[str, Any] = {name: value for name, value in options.items() if value}
    return client.simulations.check(stored, dataset, **members)


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
