"""Untrusted text in messages."""


def printable(name: str | bytes) -> str:
    """Return a name for use in a message: at most 60 characters, ASCII, without terminal control sequences."""
    return ascii(name[:60]).removeprefix("b") + ("..." if len(name) > 60 else "")
