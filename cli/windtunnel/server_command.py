"""Command of the server on this machine: in this environment, or from the package index by uv; it is not imported."""

import functools
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from windtunnel.errors import WindtunnelError

CLIENT, SERVER = "windtunnel", "windtunnel-server"
#: Module of the server, which is run with `-P`: the working directory is the user's.
MODULE = "windtunnel_server"
#: The same module in a checkout.
CHECKOUT_MODULE = f"server.{MODULE}"


#: Where the server's wheel comes from; no public index has it.
WHEELS = (
    "Its wheel is built in a checkout of Windtunnel by `make dist`, into the folder dist, which --find-links names; an"
    " index of yours may have it too. In the checkout itself `make run` starts a platform without it."
)


class NoServer(WindtunnelError):
    """There is no server to start on this machine; the text has the next step."""


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """A command to which a role, or `play` or `session`, is added. ``variables``: of its environment, besides ours.

    ``checkout``: the folder of the checkout that it is in, None if it is installed.
    """

    arguments: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    checkout: Path | None = None

    @property
    def environ(self) -> dict[str, str]:
        """The environment to start it with."""
        return {**os.environ, **self.variables}


@functools.cache
def server_command(find_links: tuple[str, ...] = ()) -> ServerCommand:
    """Return the command of the server of this version; raise NoServer if there is no way to it."""
    if sys.platform != "linux":
        raise NoServer(
            "The server runs on Linux only. Start it in WSL 2, a container or a virtual machine, or name a running"
            " platform to the other commands."
        )
    wanted = metadata.version(CLIENT)
    if (checkout := checkout_of(Path(__file__))) is not None:
        path = os.pathsep.join(filter(None, (str(checkout), os.environ.get("PYTHONPATH"))))
        return ServerCommand((sys.executable, "-P", "-m", CHECKOUT_MODULE), {"PYTHONPATH": path}, checkout)
    if importlib.util.find_spec(MODULE) is not None:
        installed = metadata.version(SERVER)
        if installed != wanted:
            raise NoServer(
                f"{CLIENT} {wanted} and {SERVER} {installed} are installed here, and their versions must be equal:"
                f" {installation(wanted)}. {WHEELS}"
            )
        return ServerCommand((sys.executable, "-P", "-m", MODULE))
    uv = find_uv(os.environ)
    if uv is None:
        raise NoServer(
            f"The server is not installed. Install it beside this command: {installation(wanted)}. {WHEELS} With uv"
            " (pip install uv) it is fetched from there and need not be installed."
        )
    return ServerCommand(tuple(fetched_command(uv, wanted, find_links)))


def installation(version: str) -> str:
    """Return the command that installs the server of a version from the folder that this client's wheel was in."""
    return f"pip install --find-links {shlex.quote(wheels_folder() or 'dist')} {SERVER}=={version}"


def wheels_folder() -> str | None:
    """Return the folder, or the address of it, that this client's wheel was installed from; None if nothing says so.

    https://packaging.python.org/en/latest/specifications/direct-url/
    """
    try:
        document = json.loads(metadata.distribution(CLIENT).read_text("direct_url.json") or "")
        parts = urlsplit(document["url"])
    except (ValueError, KeyError, TypeError, metadata.PackageNotFoundError):
        return None
    if not parts.path.endswith(".whl"):
        return None
    folder = parts.path.rpartition("/")[0]
    return unquote(folder) if parts.scheme == "file" else f"{parts.scheme}://{parts.netloc}{folder}"


def checkout_of(file: Path) -> Path | None:
    """Return the checkout that this module is in, if it is in one: the server is beside the client there."""
    folder = file.resolve().parents[2]
    return (
        folder
        if (folder / "server" / MODULE / "__main__.py").is_file() and (folder / "cli" / CLIENT).is_dir()
        else None
    )


def find_uv(environ: Mapping[str, str]) -> str | None:
    """Return the path of uv: the uv that runs this command, on the PATH, or in this environment; None without any."""
    if (running := environ.get("UV")) and os.access(running, os.X_OK):
        return running
    if (found := shutil.which("uv", path=environ.get("PATH"))) is not None:
        return found
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if os.access(beside, os.X_OK) else None


def fetched_command(uv: str, version: str, find_links: tuple[str, ...]) -> list[str]:
    """Return the command that runs the server by uv, with this process's Python, from uv's cache if it is there.

    Raise NoServer with the next step if it cannot be fetched. uv reads the indexes from its variables, UV_*.
    """
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    links = [argument for folder in find_links for argument in ("--find-links", folder)]
    options = ["--python", python, *links, "--from", f"{SERVER}=={version}", SERVER]
    # Also without a network, and without a question to the index at each start.
    cached = [uv, "tool", "run", "--quiet", "--offline", *options]
    if subprocess.run([*cached, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
        return cached
    print(f"Fetching {SERVER} {version} (once, about 130 MB) ...", file=sys.stderr)
    online = [uv, "tool", "run", *options]
    if subprocess.run([*online, "--version"], stdout=subprocess.DEVNULL).returncode != 0:
        raise NoServer(
            f"uv has not installed {SERVER} {version}; its message is above. {WHEELS} Name the folder by --find-links"
            " or UV_FIND_LINKS, or the index by UV_DEFAULT_INDEX, and try again."
        )
    return online
