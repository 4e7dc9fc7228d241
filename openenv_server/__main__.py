"""Serve the scenarios of a dataset as an OpenEnv environment: `python -m openenv_server --dataset car_street`.

The environments of OpenEnv's server and of the dataset's simulator are prepared on first use, in the platform's home.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from core.domain.bearer_tokens import token_fault
from core.domain.near_names import near_names, suggestion
from core.domain.selection import checked_params
from core.settings import LOOPBACK, Settings
from datasets.catalogue import Dataset, datasets
from errors import PlatformError
from openenv_server.registered_dataset import CannotFetch, fetch
from openenv_server.served_world import ServedWorld
from runtimes import catalogue, environments, harness
from runtimes.harness import sandbox
from runtimes.harness.python_process import FLAGS
from windtunnel import Client, Refused, WindtunnelError

ROOT = Path(__file__).parents[1]
#: Starts the server's process with the project and OpenEnv's packages, but without those of this process.
BOOT = "import sys; sys.path[:0] = sys.argv[1:3]; from openenv_server.application import main; sys.exit(main())"
#: Variables of OpenEnv that would change what its server offers.
UNSET = frozenset({"ENABLE_WEB_INTERFACE", "OPENENV_MODE"})


class CannotServe(Exception):
    """The options name nothing that can be served; the text is for the user."""


def main(arguments: Sequence[str] | None = None, program: str = "python -m openenv_server") -> int:
    """Prepare the environments and serve until Ctrl-C; return an exit code if that cannot be done."""
    options = parser(program).parse_args(arguments)
    try:
        settings = Settings.from_env(os.environ)
        dataset = find(options.dataset, options.server, settings)
        params = checked_params(dataset.definition.get("params", {}), dict(options.param), dataset.name)
        token = read_token(options.host, options.token_file)
        world = prepare(dataset, params, options, settings)
        site = prepared(catalogue.servers()["openenv_server"], settings.environments)
    except (CannotServe, PlatformError, ValueError, environments.CannotPrepare) as error:
        print((error.detail if isinstance(error, PlatformError) else None) or error, file=sys.stderr)
        return 2
    serve({"world": world.describe(), "host": options.host, "port": options.port, "token": token}, site)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    described = argparse.ArgumentParser(program, description=__doc__)
    add = described.add_argument
    add("--dataset", required=True, help="a dataset of --server, or a built-in one: " + ", ".join(datasets()))
    add(
        "--server", metavar="URL", help="a running platform, for its registered datasets (NAME, NAME@VERSION, NAME@TAG)"
    )
    add("--host", default="127.0.0.1", help="address to listen on; any other than loopback needs --token-file")
    add("--port", type=port, default=8000)
    add("--sessions", type=positive, default=4, help="most clients at a time, each with a process of its own")
    add("--idle", type=positive, default=3600, help="seconds without a request after which a session is ended")
    add(
        "--param", type=parameter, action="append", default=[], metavar="NAME=VALUE", help="as `params` of a simulation"
    )
    add("--token-file", type=Path, help="a file with the token that clients send as `Authorization: Bearer <token>`")
    return described


def port(text: str) -> int:
    """Return the number of a port; raise ValueError."""
    if not 1 <= int(text) <= 65535:
        raise ValueError
    return int(text)


def positive(text: str) -> int:
    """Return a whole number of at least 1; raise ValueError."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def parameter(text: str) -> tuple[str, Any]:
    """Return the name and the value of a parameter; the value is JSON, or else a word. Raise ValueError."""
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def find(name: str, server: str | None, settings: Settings) -> Dataset:
    """Return a dataset by its name; raise CannotServe if it cannot be served."""
    dataset = _fetched(name, server, settings) if server is not None else datasets().get(name)
    if dataset is None:
        hint = suggestion(near_names(name, datasets()), f"There are: {', '.join(datasets())}.")
        raise CannotServe(f"There is no built-in dataset {name!r}. {hint} For a registered one, add --server URL.")
    if dataset.definition.get("gang"):
        raise CannotServe(
            f"{name} has no scenarios to step through: its programs are worlds of their own, and run in simulations."
        )
    if dataset.definition.get("template"):
        raise CannotServe(
            f"{name} is a template without a world of its own; plants and OpenEnv environments are not served, only the"
            " scenarios of built-in worlds."
        )
    return dataset


def _fetched(reference: str, server: str, settings: Settings) -> Dataset:
    try:
        with Client(server, token=settings.token) as client:
            return fetch(client, reference, settings.home.resolve() / "openenv")
    except (CannotFetch, Refused) as error:
        raise CannotServe(str(error)) from None
    except WindtunnelError as error:
        raise CannotServe(
            f"The platform at {server} does not answer: {error}. Start it, or correct --server."
        ) from None


def read_token(host: str, file: Path | None) -> str:
    """Return the token, empty if there is none; raise CannotServe if an address needs it, or it is too weak."""
    if file is None:
        if host not in LOOPBACK:
            raise CannotServe(
                f"--host {host} can be reached from other machines, so it needs a token: "
                "`openssl rand -hex 16 > token`, then --token-file token."
            )
        return ""
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotServe(f"--token-file {file} cannot be read: {error}.") from None
    if (fault := token_fault(token)) is not None:
        raise CannotServe(f"--token-file {file}: {fault}.")
    return token


def prepare(
    dataset: Dataset, params: Mapping[str, Any], options: argparse.Namespace, settings: Settings
) -> ServedWorld:
    """Prepare the simulator's environment; return what the server's process must know."""
    dataset.verify()
    level = sandbox.level() if settings.sandbox == "auto" else None
    return ServedWorld(
        digest=dataset.digest,
        folder=str(dataset.folder),
        site=str(prepared(catalogue.simulators()[dataset.simulator], settings.environments)),
        total=dataset.tasks if dataset.tasks is not None else int(dataset.definition["max_tasks"]),
        python=os.path.realpath(sys.executable),
        harness=str(Path(harness.__file__).parent),
        sandbox=level.number if level is not None else None,
        params=params,
        sessions=options.sessions,
        idle=options.idle,
    )


def prepared(environment: environments.Environment, root: Path) -> Path:
    """Return the folder of an environment's packages; download them on first use."""

    def progress(message: str, fraction: float | None) -> None:
        if fraction is not None:
            print(f"{environment.name}: {message}", file=sys.stderr)

    return environments.prepare(environment, root, progress)


def serve(served: Mapping[str, Any], site: Path) -> NoReturn:
    """Become the server's process, which reads its options from a file in memory: others see command lines."""
    with open(os.memfd_create("options"), "w+b") as file:
        file.write(json.dumps(served).encode())
        file.seek(0)
        os.dup2(file.fileno(), 0)
    environ = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("WINDTUNNEL_", "PYTHON")) and key not in UNSET
    }
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *FLAGS, "-c", BOOT, str(ROOT), str(site)], environ)


if __name__ == "__main__":
    sys.exit(main())
