"""Command `up`: the platform on this machine, from the server in this environment, or from the one that uv fetches."""

import os
import sys
from pathlib import Path

import click

from windtunnel.server_command import server_command


def folder(context: click.Context, option: click.Parameter, name: str | None) -> Path | None:
    """Return the path of the folder that an option names; the empty text of an unset variable is refused."""
    if name == "":
        raise click.BadParameter("it is empty: name a folder, or leave the option out for the default.")
    return None if name is None else Path(name)


@click.command("up")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the API and the web page  [default: 5000 or above]"
)
@click.option(
    "--home",
    type=click.Path(file_okay=False),
    callback=folder,
    help="Folder of all data  [default: ~/.local/share/windtunnel]",
)
@click.option("--demo/--no-demo", help="Run the demo on it: two simulations, compared on the terminal.")
@click.option("--multi-user", is_flag=True, help="With accounts: print the link by which the first operator signs in.")
@click.option(
    "--find-links",
    metavar="FOLDER",
    multiple=True,
    help="Folder or page with the server's wheel, besides the package index; for uv, as UV_FIND_LINKS.",
)
def command(port: int | None, home: Path | None, demo: bool, multi_user: bool, find_links: tuple[str, ...]) -> None:
    """Start the platform on this machine, and serve it until Ctrl-C."""
    server = server_command(find_links)
    options = ["up", "--demo" if demo else "--no-demo", *(["--multi-user"] if multi_user else [])]
    options += ["--port", str(port)] if port is not None else []
    options += ["--home", str(home.absolute())] if home is not None else []
    sys.stdout.flush()
    sys.stderr.flush()
    # It takes this process's place: terminal, signals and exit status are the server's.
    os.execvpe(server.arguments[0], [*server.arguments, *options], server.environ)
