"""`windtunnel login`: sign in to a platform with a token or an invitation, and store the token as a context."""

import os
import socket
import sys
from functools import partial
from urllib.parse import urlsplit

import click

from windtunnel import contexts
from windtunnel._sync.accounts import needs_token, redeem, sign_in
from windtunnel._sync.device_sign_in import DeviceCodes, offers_codes, sign_in_by_code
from windtunnel.account_records import ClientIdentity
from windtunnel.commands.context import check_context_name, place_of_token, say_current
from windtunnel.commands.options import ask_secret, context_names, of_root
from windtunnel.errors import BadConfiguration, Refused, WindtunnelError

#: How a token and an invitation begin, by which neither is taken for the other, or for an address.
TOKEN_PREFIX, INVITATION_PREFIX = "wt_", "wti_"


@click.command()
@click.argument("url", required=False)
@click.option("--user", metavar="NAME", help="Ask for the invitation of this user, in place of a token.")
@click.option("--with-token", is_flag=True, help="Ask for a token; so does a command without a terminal.")
@click.option("--project", "selected", metavar="NAME", help="Project that commands act in, for a user of several.")
@click.option(
    "--context",
    "named",
    metavar="NAME",
    shell_complete=context_names,
    help="Context that has the token; by default the one of this address, or a new one with the name of its host.",
)
def command(url: str | None, user: str | None, with_token: bool, selected: str | None, named: str | None) -> None:
    """Sign in to the platform at URL, by default that of the current context, and store a token as a context.

    On a terminal it shows a code, which you approve in a browser where you are signed in, and gets a token for 90
    days. A token of your own is asked for with --with-token, or read from stdin: other users see a command line. A new
    user has an invitation, with which --user gets the first token.

    \b
    windtunnel login https://windtunnel.example.com              # shows a code
    windtunnel login https://windtunnel.example.com --user ada   # asks for the invitation
    """
    if url is not None and url.startswith((TOKEN_PREFIX, INVITATION_PREFIX)):  # it would be looked up as a host
        raise click.UsageError(
            "A token is not an argument: other users see the command line. `windtunnel login URL` asks for it; revoke"
            " this one: `windtunnel tokens revoke ID`."
        )
    address, name = _context_of(url or of_root("url"), named or of_root("context"))
    project = contexts.checked_project(selected or of_root("project"))
    if not needs_token(address):
        raise BadConfiguration(
            f"{address} asks for no token: it has no accounts. `windtunnel context add {name} {address}` names it."
        )
    if user is not None:
        token = str(redeem(address, user, ask_secret("Invitation"), socket.gethostname()[:100]).token)
    elif not with_token and sys.stdin.isatty() and offers_codes(address):
        token = sign_in_by_code(address, f"windtunnel on {socket.gethostname()}"[:100], partial(_show_code, address))
    else:
        token = _typed_token(address)
    who = _identity(address, token)
    _store(name, contexts.Context(address, token, project=_kept_project(name, address, who)), who)
    if project is not None:  # after the token is stored: an invitation is used up by now
        _select_project(name, project)


def _show_code(address: str, codes: DeviceCodes) -> None:
    """Show where the code is entered; a browser of this machine opens the page, where there is one.

    The address is the one that this machine knows: the platform's own may have another scheme, behind an ingress.
    """
    page = f"{address}/device?code={codes.user_code}"
    click.echo(f"Open {page} and approve the code {codes.user_code}.", err=True)
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin":
        click.launch(page)
    click.echo("Waiting for it ... (Ctrl-C ends)", err=True)


def _context_of(url: str | None, context: str | None) -> tuple[str, str]:
    """Return the address to sign in to, and the name of the context that has its token."""
    known = contexts.load(contexts.config_path())
    if context is not None:
        check_context_name(context)
        return contexts.checked_url(url) if url else known.get(context).url, context
    address, name, found = contexts.select_platform(url)
    if name is not None and found is not None and contexts.checked_url(found.url) == address:
        return address, name
    same = [name for name, one in known.contexts.items() if contexts.checked_url(one.url) == address]
    if same:
        return address, known.current if known.current in same else same[0]
    parts = urlsplit(address)
    for free in (str(parts.hostname), parts.netloc):
        if free not in known.contexts:
            return address, free
    raise click.UsageError(f"{parts.hostname} names another context; name the one of {address}: --context NAME.")


def _typed_token(address: str) -> str:
    token = ask_secret("Token")
    contexts.checked_token(token)
    if token.startswith(INVITATION_PREFIX):
        raise click.UsageError(f"This is an invitation: `windtunnel login {address} --user NAME` redeems it.")
    return token


def _identity(address: str, token: str) -> ClientIdentity:
    """Return who a token is; raise BadConfiguration for one that the platform does not accept."""
    try:
        return sign_in(contexts.Server(address, token))
    except Refused as refusal:
        if refusal.status != 401:
            raise
        raise BadConfiguration(
            f"{address} does not accept this token: it was revoked, has expired, or was not copied whole. Nothing was"
            " stored; enter it again, or ask an operator for another one."
        ) from None


def _kept_project(name: str, address: str, who: ClientIdentity) -> str | None:
    """Return the project that the context had before, if it is still one of the user's."""
    before = contexts.load(contexts.config_path()).contexts.get(name)
    if before is None or before.project is None or contexts.checked_url(before.url) != address:
        return None
    return before.project if before.project in [project.name for project in who.projects] else None


def _store(name: str, signed_in: contexts.Context, who: ClientIdentity) -> None:
    path = contexts.config_path()
    known = contexts.load(path)
    if name in known.contexts:
        contexts.forget_token(name, known.contexts[name])
    context = contexts.store_token(name, signed_in.url, signed_in.token, project=signed_in.project)
    contexts.save(path, known.with_context(name, context, use=True))
    user = f"You are {who.user}. " if who.user else ""
    click.echo(f"{user}{name} is {context.url}; its token is {place_of_token(context)}.")
    say_current(name, context)
    names = [project.name for project in who.projects]
    if who.accounts and who.project is None and context.project is None:
        several = f"You are in several projects: {', '.join(names)}." if names else "You are in no project."
        step = f"`windtunnel context use {name} --project {names[0] if names else 'NAME'}` chooses one"
        click.echo(f"{several} {step}; --project and WINDTUNNEL_PROJECT count more.", err=True)


def _select_project(name: str, project: str) -> None:
    """Let commands act in a project, if the platform knows it as one of the user's."""
    path = contexts.config_path()
    known = contexts.load(path)
    context = known.get(name)
    try:
        sign_in(contexts.Server(context.url, contexts.stored_token(name, context), project=project))
    except WindtunnelError as error:
        raise BadConfiguration(
            f"You are signed in, but not in the project {project}: {error}"
            f" `windtunnel context use {name} --project NAME` chooses another one."
        ) from None
    contexts.save(path, known.with_context(name, context.acting_in(project), use=True))
    click.echo(f"Commands act in the project {project}.", err=True)
