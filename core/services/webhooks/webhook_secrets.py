"""Secrets of webhooks, and signatures with them: made of a key of the platform, so that no row has one."""

import base64
import hmac
import os
import secrets
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from standardwebhooks import Webhook

from core.store.webhooks import WebhookRow

#: Name of the file of the key in the home, where no setting has one.
KEY_FILE = "webhook-key"
#: Seconds for which the secret before signs too, after a new one was made.
FORMER_SECRET_TERM = 86_400.0


class WebhookSecrets:
    """Makes secrets of webhooks. ``key``: returns the key of the platform, and is called when it is needed first.

    ``present_key``: returns it without making one; None if there is none.
    """

    def __init__(self, key: Callable[[], bytes], present_key: Callable[[], bytes | None] | None = None) -> None:
        self._make_key = key
        self._present_key = present_key or key
        self._used_key: bytes | None = None

    @property
    def _key(self) -> bytes:
        if self._used_key is None:
            self._used_key = self._make_key()
        return self._used_key

    def mark(self) -> str:
        """Return a text that tells the key from others, and says nothing else of it."""
        return _mark_of(self._key)

    def present_mark(self) -> str | None:
        """Return the mark of the key; None where there is no key yet, which is not made. Raise OSError."""
        key = self._used_key or self._present_key()
        return None if key is None else _mark_of(key)

    def secret(self, id: str, number: int) -> str:
        """Return a secret of a webhook, as Standard Webhooks writes them: `whsec_` and base 64."""
        digest = hmac.digest(self._key, f"secret:{id}:{number}".encode(), "sha256")
        return "whsec_" + base64.b64encode(digest).decode()

    def headers(self, row: WebhookRow, event_id: str, body: str, moment: datetime, now: float) -> dict[str, str]:
        """Return the headers that sign a body: with the secret, and for a day after a new one with that before.

        ``moment``: in UTC, when it is sent. ``now``: of the database's clock.
        """
        numbers = [row.secret_number]
        if row.secret_number > 1 and now < row.former_until:
            numbers.append(row.secret_number - 1)
        signed = [Webhook(self.secret(row.id, number)).sign(event_id, moment, body) for number in numbers]
        return {
            "webhook-id": event_id,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": " ".join(signed),
        }


def _mark_of(key: bytes) -> str:
    return hmac.digest(key, b"mark", "sha256").hex()[:16]


def present_key_of(text: str, home: Path) -> bytes | None:
    """Return what `key_of` returns, without making it: None where there is none."""
    return key_of(text, home) if text or (home / KEY_FILE).exists() else None


def key_of(text: str, home: Path) -> bytes:
    """Return the key: an operator's text, or the content of a file of the home (mode 0600), made if need be."""
    if text:
        return text.encode()
    file = home / KEY_FILE
    if not file.exists():
        _write_key(file)
    return file.read_text().strip().encode()


def _write_key(file: Path) -> None:
    """Write a file that is whole or is not there, and is never replaced: several processes may need it at once."""
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(secrets.token_urlsafe(48) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        try:
            os.link(draft, file)
        except FileExistsError:
            return
    finally:
        draft.unlink(missing_ok=True)
