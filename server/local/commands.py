"""Commands of `windtunnel-server`: the platform on this machine, each of its roles, and the servers beside it."""

import inspect
import os
import sys
from importlib import import_module, metadata

import click

from server.roles import ROLES

DISTRIBUTION = "windtunnel-server"


def version() -> str:
    """Return the version of the installed package."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "of a checkout"


@click.command(short_help="Serve on this machine until Ctrl-C, on free ports, and say how to try it.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the API and the web page  [default: 5000 or above]"
)
@click.option("--home", type=click.Path(file_okay=False), help="Folder of all data.")
@click.option("--demo/--no-demo", help="Run the demo on it: two simulations, compared on the terminal.")
@click.option("--multi-user", is_flag=True, help="With accounts: print the link by which the first operator signs in.")
def up(port: int | None, home: str | None, demo: bool, multi_user: bool) -> None:
    """Serve on this machine until Ctrl-C, on free ports, and say how to try it."""
    if port is not None:
        os.environ["WINDTUNNEL_PORT"] = str(port)
    if home is not None:
        os.environ["WINDTUNNEL_HOME"] = home
    if multi_user:
        os.environ["WINDTUNNEL_MULTI_USER"] = "yes"
    from server.local import demo as demonstration
    from server.local.local_platform import FURTHER_PORTS
    from server.local.serving import end_as_by_ctrl_c, serve

    further = 0 if "WINDTUNNEL_PORT" in os.environ else FURTHER_PORTS
    if demo:
        end_as_by_ctrl_c()
        sys.exit(demonstration.main(further=further))
    sys.exit(serve(demonstration.tell, further=further))


@click.command(short_help="Run the demo on the platform of this home, or on a new one.")
def demo() -> None:
    """Run the demo on the platform of this home, or on a new one; on a terminal, serve it until Ctrl-C."""
    from server.local.demo import main

    sys.exit(main())


def _role(name: str, help: str) -> click.Command:
    """Return a command that runs a role of the server, or all of them (`run`)."""

    @click.command(name, help=help, short_help=help.partition("\n")[0])
    def command() -> None:
        from server.__main__ import main

        sys.exit(main([name]))

    return command


def _passing(name: str, help: str, module: str, *first: str) -> click.Command:
    """Return a command whose arguments, after the ``first`` ones, are read by a module's own parser."""

    settings = {"ignore_unknown_options": True}

    @click.command(name, help=help, short_help=help, add_help_option=False, context_settings=settings)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        main = import_module(module).main
        sys.exit(main([*first, *arguments], DISTRIBUTION if first else f"{DISTRIBUTION} {name}"))

    return command


def commands() -> click.Group:
    """Return all commands."""
    group = click.Group(
        DISTRIBUTION, help="Windtunnel's server on this machine. Its settings are variables, as WINDTUNNEL_PORT=5000."
    )
    click.version_option(version(), prog_name=DISTRIBUTION)(group)
    group.add_command(up)
    group.add_command(demo)
    group.add_command(_role("run", "Every role, until Ctrl-C, on the ports that are configured."))
    for name, role in ROLES.items():
        group.add_command(_role(name, inspect.getdoc(role) or ""))
    for command in (
        _passing("openenv", "Scenarios of a dataset, for OpenEnv's clients.", "local_play.openenv_server.__main__"),
        _passing("play", "A model on a dataset, without a server; JSON lines.", "local_play.__main__", "play"),
        _passing("session", "Scenarios step by step; JSON lines.", "local_play.__main__", "session"),
        _passing("describe", "The definition of a dataset; JSON.", "local_play.__main__", "describe"),
        _passing("cache", "The cache service alone, with a configuration of your own.", "datasets.scs.__main__"),
        _passing("backup", "Copy this home's database and objects: copy FOLDER, or check.", "server.backup"),
    ):
        group.add_command(command)
    return group


def main() -> None:
    """Run the command line."""
    try:
        code = commands().main(prog_name=DISTRIBUTION, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        code = 130
    sys.exit(code if isinstance(code, int) else 0)
