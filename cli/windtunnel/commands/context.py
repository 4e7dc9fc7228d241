"""`windtunnel context`: name platforms, and choose the one to talk to."""

import os
from collections.abc import Sequence
from importlib import metadata

import click

from windtunnel import contexts
from windtunnel import output as outputs
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import ask_secret, context_names, of_root, output_option
from windtunnel.errors import BadConfiguration

COLUMNS: Sequence[outputs.Column] = (
    ("current", lambda context: "*" if context["current"] else ""),
    ("name", "name"),
    ("url", "url"),
    ("token", "token"),
    ("project", "project"),
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
            "project": context.project,
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
    server = contexts.server(of_root("url"), context=of_root("context"), project=of_root("project"))
    document = {
        "name": server.context or "(no context)",
        "url": server.url,
        "current": True,
        "token": "yes" if server.token else "none",
        "project": server.project,
    }
    outputs.show_one([document], COLUMNS[1:], output, name="name")


@command.command()
@click.argument("name")
@click.argument("url")
@click.option("--token", "asks", is_flag=True, help="Ask for the token; without a terminal, read it from stdin.")
@click.option("--project", "selected", metavar="NAME", help="Project that commands act in, for a user of several.")
@click.option("--use/--no-use", default=True, show_default=True, help="Make it the current context.")
@click.option("--check/--no-check", default=True, show_default=True, help="Ask the platform whether it answers.")
def add(name: str, url: str, asks: bool, selected: str | None, use: bool, check: bool) -> None:
    """Add a context, or replace the one of this name. The platform is asked first: a wrong address is added nowhere."""
    check_context_name(name)
    contexts.checked_project(selected)
    path = contexts.config_path()
    address = contexts.checked_url(url)
    known = contexts.load(path)
    token = ask_secret("Token") if asks else None
    if check:
        _check(address, token)
    if name in known.contexts:
        contexts.forget_token(name, known.contexts[name])
    context = contexts.store_token(name, address, token, project=selected)
    known = known.with_context(name, context, use=use)
    contexts.save(path, known)
    click.echo(f"{name} is {address}" + (f"; its token is {place_of_token(context)}." if token else "."))
    if known.current == name:
        say_current(name, context)


def check_context_name(name: str) -> None:
    """Raise UsageError for a text that cannot name a context."""
    if not name or not name.isprintable() or name.startswith("-"):
        raise click.UsageError(f"{name!r} is not a name of a context.")


def place_of_token(context: contexts.Context) -> str:
    """Return where the token of a context is stored."""
    return "in the keyring" if context.keyring else f"in {contexts.config_path()}, which only you can read"


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


@command.command()
@click.argument("name", shell_complete=context_names)
@click.option(
    "--project", "selected", metavar="NAME", help="Project that commands act in from now on, for a user of several."
)
def use(name: str, selected: str | None) -> None:
    """Make a context the current one."""
    path = contexts.config_path()
    known = contexts.load(path).using(name)
    context = known.get(name)
    if selected is not None:
        contexts.checked_project(selected)
        context = context.acting_in(selected)
        known = known.with_context(name, context, use=True)
    contexts.save(path, known)
    click.echo(f"{name} is {context.url}" + (f", project {context.project}" if context.project else ""))
    say_current(name, context)


def say_current(name: str, context: contexts.Context) -> None:
    """Say that commands use a context from now on, or which variable counts more."""
    click.echo(f"Commands use {name} now.", err=True)
    variables = ["WINDTUNNEL_URL", "WINDTUNNEL_CONTEXT"]
    variables += ["WINDTUNNEL_TOKEN"] if context.token or context.keyring else []
    variables += ["WINDTUNNEL_PROJECT"] if context.project else []
    for variable in variables:
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
