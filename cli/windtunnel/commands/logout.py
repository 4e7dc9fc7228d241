"""`windtunnel logout`: revoke the token of a context, if it may do that, and forget it."""

import os
from dataclasses import dataclass

import click

from windtunnel import Client, contexts
from windtunnel.commands.options import context_names, of_root
from windtunnel.errors import BadConfiguration, Refused, WindtunnelError
from windtunnel.visible_text import visible


@click.command()
@click.option(
    "--context", "named", metavar="NAME", shell_complete=context_names, help="Context instead of the current one."
)
@click.option("--revoke/--no-revoke", default=True, show_default=True, help="Revoke it; not one that others use too.")
def command(named: str | None, revoke: bool) -> None:
    """Revoke the token of the current context, if it may do that, and forget it. The context stays, without a token."""
    path = contexts.config_path()
    known = contexts.load(path)
    name = named or of_root("context") or os.environ.get("WINDTUNNEL_CONTEXT") or known.current
    if name is None:
        raise click.UsageError("There is no current context; `windtunnel context` lists them, and --context names one.")
    signed_in = known.get(name)
    if signed_in.token is None and not signed_in.keyring:
        click.echo(f"{name} has no token.")
    else:
        end = _end(name, signed_in) if revoke else TokenEnd(False)
        contexts.forget_token(name, signed_in)
        contexts.save(path, known.with_context(name, contexts.Context(signed_in.url), use=False))
        click.echo(f"{name} is signed out: its token is {'revoked and ' if end.revoked else ''}forgotten.")
        if end.problem:
            click.echo(visible(f"It was not revoked: {end.problem}"), err=True)
    if os.environ.get("WINDTUNNEL_TOKEN"):
        click.echo("But WINDTUNNEL_TOKEN is set, and is used: unset it.", err=True)


@dataclass(frozen=True, slots=True)
class TokenEnd:
    """Whether a token was revoked; ``problem``: why not, with the next step."""

    revoked: bool
    problem: str = ""


def _end(name: str, context: contexts.Context) -> TokenEnd:
    """Revoke the token of a context."""
    step = "A maintainer or its user revokes it: `windtunnel tokens revoke ID`, with --personal for a user's own."
    try:
        token = contexts.stored_token(name, context)
        with Client(context.url, token=token, project=context.project, patience=0.0, timeout=10.0) as client:
            who = client.whoami()
            if who.token is None:
                return TokenEnd(False, "it is the token of a platform without accounts, which its operator changes.")
            client.tokens.revoke(who.token.id, user=who.user if who.token.project is None else None)
            return TokenEnd(True)
    except BadConfiguration as error:
        return TokenEnd(False, f"{error}")
    except Refused as refusal:
        if refusal.status == 401:
            return TokenEnd(False, "the platform does not accept it any more.")
        return TokenEnd(False, f"{refusal} {step}")
    except WindtunnelError as error:
        return TokenEnd(False, f"{error} {step}")
