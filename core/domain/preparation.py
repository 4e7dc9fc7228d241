"""Preparation: a sentence on what happens to a simulation before it runs, from the body of its last event."""

from collections.abc import Mapping
from typing import Any

#: What follows a line of uv's output, which tells only what has been done.
FOLLOWS = {"Prepared": "installing them", "Installed": "compiling them to bytecode"}


def doing(body: Mapping[str, Any]) -> str | None:
    """Return what is going on, from a `staging` or `launch` event; None if the event does not say."""
    message, name = body.get("message"), body.get("name")
    if message:
        return f"{name}: {message}" if name else str(message)
    if body.get("fraction") is not None:
        return f"downloading the {body.get('what', 'files')}: {body['fraction']:.0%}"
    return None


def following(message: str) -> str:
    """Return a line of uv's output with what is going on since."""
    follows = FOLLOWS.get(message.partition(" ")[0])
    return f"{message}; {follows}" if follows else message
