"""First operator: a platform with accounts begins with one, whose token is set, or is in a file of the home."""

import os
import secrets
from pathlib import Path

from core.domain.access.credentials import new_credential
from core.services.access.accounts import Accounts

FILE = "operator-token"


def begin(accounts: Accounts, home: Path, own_token: str) -> None:
    """Make sure that there is an operator with a token. Idempotent, also after a kill at any point.

    ``own_token``: the operator's own, or empty; then a new one is in the file `operator-token` (mode 0600) of the
    home, unless there is an operator already: a file that he has deleted does not come back.
    """
    if not own_token:
        file = home / FILE
        if not file.exists():
            if accounts.has_operator():
                return
            _write(file, new_credential())
        own_token = file.read_text().strip()
    accounts.begin(own_token)


def _write(file: Path, text: str) -> None:
    """Write a file that is whole or is not there, and is never replaced: several processes may start at once."""
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        try:
            os.link(draft, file)
        except FileExistsError:
            return
    finally:
        draft.unlink(missing_ok=True)
