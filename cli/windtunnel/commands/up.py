"""Command `up`: the platform on this machine, from the server in this environment, or from the one that uv fetches."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import click

CLIENT, SERVER = "windtunnel", "windtunnel-server"
#: Module of the server, which is run with `-P`: the working directory is the user's.
MODULE = "windtunnel_server"


class CannotStart(click.ClickException):
    """There is no server to start; the message has the next step."""

    exit_code = 2


@click.command("up")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the API and the web page  [default: 5000 or above]"
)
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of all data  [default: ~/.local/share/windtunnel]",
)
@click.option("--demo/--no-demo", help="Run the demo on it: two simulations, compared on the terminal.")
@click.option(
    "--find-links",
    metavar="FOLDER",
    multiple=True,
    help="Folder or page with the server's wheel, besides the package index; for uv, as UV_FIND_LINKS.",
)
def command(port: int | None, home: Path | None, demo: bool, find_links: tuple[str, ...]) -> None:
    """Start the platform on this machine, and serve it until Ctrl-C."""
    if sys.platform != "linux":
        raise CannotStart(
            "The server runs on Linux only. Start it in WSL 2, a container or a virtual machine, or name a running"
            " platform to the other commands."
        )
    server = server_command(find_links)
    options = ["up", "--demo" if demo else "--no-demo"]
    options += ["--port", str(port)] if port is not None else []
    options += ["--home", str(home.absolute())] if home is not None else []
    sys.stdout.flush()
    sys.stderr.flush()
    # It takes this process's place: terminal, signals and exit status are the server's.
    os.execvpe(server[0], [*server, *options], dict(os.environ))


def server_command(find_links: Sequence[str]) -> list[str]:
    """Return the command of the server of this version; raise CannotStart if there is no way to it."""
    wanted = metadata.version(CLIENT)
    if (checkout := checkout_of(Path(__file__))) is not None:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(checkout), os.environ.get("PYTHONPATH"))))
        return [sys.executable, "-P", "-m", MODULE]
    if importlib.util.find_spec(MODULE) is not None:
        installed = metadata.version(SERVER)
        if installed != wanted:
            raise CannotStart(
                f"{CLIENT} {wanted} and {SERVER} {installed} are installed here, and their versions must be equal:"
                f" pip install --upgrade {CLIENT} {SERVER}"
            )
        return [sys.executable, "-P", "-m", MODULE]
    uv = find_uv(os.environ)
    if uv is None:
        raise CannotStart(
            f"The server is not installed. Install it beside this command (pip install {SERVER}=={wanted}), or install"
            f" uv, which fetches it (pip install uv), and call `{CLIENT} up` again."
        )
    return fetched_command(uv, wanted, find_links)


def checkout_of(file: Path) -> Path | None:
    """Return the checkout that this module is in, if it is in one: the server is beside the client there."""
    folder = file.resolve().parents[3]
    return folder if (folder / MODULE / "__main__.py").is_file() and (folder / "cli" / CLIENT).is_dir() else None


def find_uv(environ: Mapping[str, str]) -> str | None:
    """Return the path of uv: the uv that runs this command, on the PATH, or in this environment; None without any."""
    if (running := environ.get("UV")) and os.access(running, os.X_OK):
        return running
    if (found := shutil.which("uv", path=environ.get("PATH"))) is not None:
        return found
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if os.access(beside, os.X_OK) else None


def fetched_command(uv: str, version: str, find_links: Sequence[str]) -> list[str]:
    """Return the command that runs the server by uv, with this process's Python, from uv's cache if it is there.

    Raise CannotStart with the next step if it cannot be fetched. uv reads the indexes from its variables, UV_*.
    """
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    links = [argument for folder in find_links for argument in ("--find-links", folder)]
    options = ["--python", python, *links, "--from", f"{SERVER}=={version}", SERVER]
    # Also without a network, and without a question to the index at each start.
    cached = [uv, "tool", "run", "--quiet", "--offline", *options]
    if subprocess.run([*cached, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
        return cached
    click.echo(f"Fetching {SERVER} {version} (once, about 130 MB) ...", err=True)
    online = [uv, "tool", "run", *options]
    if subprocess.run([*online, "--version"], stdout=subprocess.DEVNULL).returncode != 0:
        raise CannotStart(
            f"uv has not installed {SERVER} {version}; its message is above. If this machine reaches a mirror only, or"
            " has the wheels in a folder, set UV_DEFAULT_INDEX or --find-links FOLDER and call it again."
        )
    return online
