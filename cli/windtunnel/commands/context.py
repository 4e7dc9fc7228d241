"""`windtunnel context`: name platforms, and choose the one to talk to."""

import os
import sys
from collections.abc import Sequence
from importlib import metadata

import click

from windtunnel import contexts
from windtunnel import output as outputs
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import context_names, output_option
from windtunnel.errors import BadConfiguration

COLUMNS: Sequence[outputs.Column] = (
    ("current", lambda context: "*" if context["current"] else ""),
    ("name", "name"),
    ("url", "url"),
    ("token", "token"),
)


@click.group(cls=NounGroup)
def command() -> None:
    """Name platforms, and choose the one to talk to.

    \b
    windtunnel context add lab https://windtunnel.example.com --token   # asks for the token
    windtunnel context use lab
    """


def _documents(known: contexts.Contexts) -> list[outputs.Document]:
    return [
        {
            "name": name,
            "url": context.url,
            "current": name == known.current,
            "token": "in the keyring" if context.keyring else "in the file" if context.token else "none",
        }
        for name, context in sorted(known.contexts.items())
    ]


@command.command("list")
@output_option()
def list_(output: str) -> None:
    """List the contexts."""
    outputs.show_list(_documents(contexts.load(contexts.config_path())), COLUMNS, output, name="name")


@command.command()
@output_option()
def show(output: str) -> None:
    """Show the platform that commands talk to, without the token."""
    root = click.get_current_context().find_root().params
    server = contexts.server(root["url"], context=root["context"])
    document = {
        "name": server.context or "(no context)",
        "url": server.url,
        "current": True,
        "token": "yes" if server.token else "none",
    }
    outputs.show_one([document], COLUMNS[1:], output, name="name")


@command.command()
@click.argument("name")
@click.argument("url")
@click.option("--token", "asks", is_flag=True, help="Ask for the token; without a terminal, read it from stdin.")
@click.option("--use/--no-use", default=True, show_default=True, help="Make it the current context.")
@click.option("--check/--no-check", default=True, show_default=True, help="Ask the platform whether it answers.")
def add(name: str, url: str, asks: bool, use: bool, check: bool) -> None:
    """Add a context, or replace the one of this name. The platform is asked first: a wrong address is added nowhere."""
    if not name or not name.isprintable() or name.startswith("-"):
        raise click.UsageError(f"{name!r} is not a name of a context.")
    path = contexts.config_path()
    address = contexts.checked_url(url)
    known = contexts.load(path)
    token = _token() if asks else None
    if check:
        _check(address, token)
    if name in known.contexts:
        contexts.forget_token(name, known.contexts[name])
    context = contexts.store_token(name, address, token)
    known = known.with_context(name, context, use=use)
    contexts.save(path, known)
    where = "in the keyring" if context.keyring else f"in {path}, which only you can read"
    click.echo(f"{name} is {address}" + (f"; its token is {where}." if token else "."))
    if known.current == name:
        _say_current(name)


def _check(url: str, token: str | None) -> None:
    """Ask a platform whether it is one, and takes the token; raise BadConfiguration with what is wrong."""
    from windtunnel import Client, WindtunnelError

    try:
        with Client(url, token=token or os.environ.get("WINDTUNNEL_TOKEN"), patience=0.0, timeout=10.0) as client:
            described = client.get("/openapi.json")
            if not isinstance(described, dict) or described.get("info", {}).get("title") != "Windtunnel":
                raise BadConfiguration(f"{url} answers, but it is not a Windtunnel.")
            client.executors()
            version = described["info"]["version"]
    except WindtunnelError as error:
        raise BadConfiguration(f"{error}\nNothing was added; with --no-check it is added anyway.") from None
    own = metadata.version("windtunnel")
    click.echo(f"It is Windtunnel {version}" + ("." if version == own else f"; this client is {own}."), err=True)


def _token() -> str:
    """Return a token that is typed without an echo, or read from stdin: other users see the command line."""
    text = click.prompt("Token", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline()
    if not str(text).strip():
        raise click.UsageError("The token is empty.")
    return str(text).strip()


@command.command()
@click.argument("name", shell_complete=context_names)
def use(name: str) -> None:
    """Make a context the current one."""
    path = contexts.config_path()
    known = contexts.load(path).using(name)
    contexts.save(path, known)
    click.echo(f"{name} is {known.get(name).url}")
    _say_current(name)


def _say_current(name: str) -> None:
    """Say that commands use a context from now on, or why they do not."""
    click.echo(f"Commands use {name} now.", err=True)
    for variable in ("WINDTUNNEL_URL", "WINDTUNNEL_CONTEXT"):
        if os.environ.get(variable):
            click.echo(f"But {variable} is set, and counts more: unset it.", err=True)
            break


@command.command()
@click.argument("name", shell_complete=context_names)
def remove(name: str) -> None:
    """Remove a context and its token."""
    path = contexts.config_path()
    known = contexts.load(path)
    contexts.forget_token(name, known.get(name))
    contexts.save(path, known.without(name))
    click.echo(f"{name} is removed")
