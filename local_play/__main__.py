"""Play on this machine without a server: `python -m local_play play model.py car_street`.

All commands answer in JSON, a line for each message. The client (`windtunnel`, cli/) starts this program.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from common.errors import PlatformError, StorageFull
from core.settings import Settings
from local_play import messages
from local_play.worlds import CannotServe, find
from runtimes.environments import CannotPrepare
from windtunnel import WindtunnelError

#: Exit codes: the conversation came to its end; it ended with an error message.
ENDED, REFUSED = 0, 2


def main(arguments: Sequence[str] | None = None, program: str = "python -m local_play") -> int:
    """Play or step as the command line says; return the exit code."""
    options = parser(program).parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        settings = Settings.from_env(os.environ)
    except ValueError as error:
        messages.refuse(str(error))
        return REFUSED
    try:
        if options.command == "play":
            from local_play.play import play

            play(options, settings)
        elif options.command == "session":
            from local_play.stepping import step_through

            step_through(options, settings)
        else:
            messages.send("dataset", dict(find(options.dataset, options.server, settings).definition))
    except StorageFull as error:
        messages.refuse(_little_space(error, settings), error.slug)
    except PlatformError as error:
        messages.refuse(str(error.detail), error.slug)
    except (CannotServe, CannotPrepare, WindtunnelError, ValueError) as error:
        messages.refuse(str(error))
    except OSError as error:
        messages.refuse(
            f"{error.filename or 'A file'} cannot be used: {error.strerror or error}. Data of this machine is in"
            f" {settings.home.resolve()}; WINDTUNNEL_HOME=FOLDER names another folder."
        )
    except KeyboardInterrupt:
        messages.refuse("It was interrupted.", "interrupted")
    else:
        return ENDED
    return REFUSED


def _little_space(error: StorageFull, settings: Settings) -> str:
    """Return what to do on a machine whose disk has less free space than the floor, where no server has data."""
    free, floor = error.members.get("free"), error.members.get("floor")
    if free is None or floor is None:
        return str(error.detail)
    return (
        f"{free / 1e6:,.0f} MB of the disk of {settings.home.resolve()} are free, and {floor / 1e6:,.0f} MB have to"
        " stay free. Free some space, set WINDTUNNEL_DISK_FLOOR to fewer bytes, or WINDTUNNEL_HOME to a folder of"
        " another disk."
    )


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    described = argparse.ArgumentParser(program, description=(__doc__ or "").partition("\n")[0])
    commands = described.add_subparsers(dest="command", required=True)
    play = commands.add_parser("play", help="simulate a model on a dataset, and send a result for each task")
    play.add_argument("model", help="file of the model, name of a baseline, or `-` for the baseline of --runtime")
    play.add_argument("--runtime", help="runtime; by the model's format if left out")
    play.add_argument("--format", help="format; detected from the bytes if left out")
    play.add_argument("--scenarios", metavar="0-99,120", help="only these, the last number included; all if left out")
    play.add_argument("--seed", type=int, help="seed from which the seed of each task is derived")
    play.add_argument("--workers", type=int, help="workers; as many as this machine has cores if left out")
    play.add_argument("--check", action="store_true", help="only run a few real steps: does the model fit?")
    play.add_argument(
        "--submission",
        action="store_true",
        help="read further members of the submission from the first line of standard input; end when that ends",
    )
    session = commands.add_parser("session", help="start processes of simulators, by orders on standard input")
    session.add_argument(
        "--descriptors", type=int, required=True, help="descriptor of a socket, on which those of processes come"
    )
    describe = commands.add_parser("describe", help="send the definition of a dataset")
    for command in (play, session, describe):
        command.add_argument("dataset", help="built-in dataset, or one of --server (NAME, NAME@VERSION, NAME@TAG)")
        command.add_argument("--server", metavar="URL", help="a running platform, for its registered datasets")
    for command in (play, session):
        command.add_argument(
            "--param",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="parameter of the dataset",
        )
    return described


if __name__ == "__main__":
    sys.exit(main())
