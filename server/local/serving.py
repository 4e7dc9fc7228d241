"""Serving in the foreground: starts the platform of this home, says how to try it, and ends it at Ctrl-C."""

import os
import signal
from collections.abc import Callable

from server.local.demo import BODY, PATH
from server.local.local_platform import FURTHER_PORTS, NotStarted, Platform, open_platform
from server.restart import REFUSED
from windtunnel import Client


def serve(tell: Callable[[str], None], *, further: int = FURTHER_PORTS) -> int:
    """Serve until Ctrl-C; return the exit status of the platform, 0 if it runs in this home already.

    ``further``: ports that are tried after the configured one, if that is in use.
    """
    end_as_by_ctrl_c()
    platform = None
    try:
        with open_platform(dict(os.environ), tell, further=further) as platform:
            tell(invitation(platform))
            if link := operator_link(platform):
                tell(f"The first operator signs in here, once and within a week: {link}\n")
            if platform.server is not None:
                platform.server.wait()
    except NotStarted as error:
        tell(f"There is no platform: {error}")
        return REFUSED
    except KeyboardInterrupt:  # open_platform has ended what it started
        if platform is None:
            return 130
    return exit_status(platform.server.returncode) if platform.server is not None else 0


def operator_link(platform: Platform) -> str | None:
    """Return the address at which the first operator signs in; None if he has a way to, or there are no accounts."""
    if not platform.token:
        return None
    with Client(platform.url, token=platform.token) as client:
        who = client.whoami()
        if not who.accounts or who.user is None or client.users.signs_in(who.user):
            return None
        url = platform.url.replace("//127.0.0.1:", "//localhost:")  # a passkey belongs to a name
        return f"{url}/invitation?user={who.user}#{client.users.invite_again(who.user)}"


def exit_status(code: int) -> int:
    """Return a process's return code as a shell shows it: 128 plus the number of the signal that ended it."""
    return 128 - code if code < 0 else code


def end_as_by_ctrl_c() -> None:
    """End with the platform when this process is terminated, or its terminal is closed, as at Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # by nohup
        signal.signal(signal.SIGHUP, signal.default_int_handler)


def invitation(platform: Platform) -> str:
    """Return how to try the platform, in a browser and by a command."""
    quoted = BODY.replace('"', '\\"')
    command = f'curl -X POST "{platform.url}{PATH}" -d "{quoted}"'
    if platform.token:
        command += f' -H "Authorization: Bearer {platform.token_in_shell}"'
    return f"\nIn a browser: {platform.url}\nA first simulation: {command}\n"
