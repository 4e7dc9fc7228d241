"""Serve a dataset's scenarios as an OpenEnv environment: `python -m local_play.openenv_server --dataset car_street`.

The environments of OpenEnv's server and of the dataset's simulator are prepared on first use, in the platform's home.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from common.bearer_tokens import token_fault
from common.errors import PlatformError
from core.domain.submissions.selection import checked_params
from core.settings import LOOPBACK, Settings
from datasets.catalogue import datasets
from local_play.worlds import CannotServe, find, prepared, served
from runtimes import catalogue, environments
from runtimes.harness.python_process import FLAGS
from windtunnel import WindtunnelError
from windtunnel.submissions import parameters

ROOT = Path(__file__).parents[2]
#: Starts the server's process with the project and OpenEnv's packages, but without those of this process.
BOOT = (
    "import sys; sys.path[:0] = sys.argv[1:3]\nfrom local_play.openenv_server.application import main; sys.exit(main())"
)
#: Variables of OpenEnv that would change what its server offers.
UNSET = frozenset({"ENABLE_WEB_INTERFACE", "OPENENV_MODE"})


def main(arguments: Sequence[str] | None = None, program: str = "python -m local_play.openenv_server") -> int:
    """Prepare the environments and serve until Ctrl-C; return an exit code if that cannot be done."""
    options = parser(program).parse_args(arguments)
    try:
        settings = Settings.from_env(os.environ)
        dataset = find(options.dataset, options.server, settings)
        params = checked_params(dataset.declared.params, parameters(options.param), dataset.name)
        token = read_token(options.host, options.token_file)
        world = served(dataset, params, settings, sessions=options.sessions, idle=options.idle)
        site = prepared(catalogue.servers()["openenv_server"], settings.environments)
    except (CannotServe, PlatformError, WindtunnelError, ValueError, environments.CannotPrepare) as error:
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
    add("--param", action="append", default=[], metavar="NAME=VALUE", help="as `params` of a simulation")
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


def serve(document: Mapping[str, Any], site: Path) -> NoReturn:
    """Become the server's process, which reads its options from a file in memory: others see command lines."""
    with open(os.memfd_create("options"), "w+b") as file:
        file.write(json.dumps(document).encode())
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
