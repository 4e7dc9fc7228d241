"""Progress of a registration: what was read of its source, stored with the version while its job has the claim."""

import json
import time
from collections.abc import Sequence

from core.domain.access.scopes import Scope
from core.services.claims import ClaimLost
from core.services.datasets.dataset_sources import HELD, hold
from core.store import datasets as store
from core.store.claims import HeldClaim
from core.store.database import Database

#: Seconds between two updates of the progress.
PROGRESS_INTERVAL = 0.5


class RegistrationProgress:
    """Files and bytes that were read, and whether any of them was ``located`` in a bucket."""

    def __init__(self, database: Database, claim: HeldClaim, scope: Scope, uploads: Sequence[str]) -> None:
        self._database = database
        self._claim = claim
        self._scope = scope
        self._uploads = uploads
        self._began = self._reported_at = time.monotonic()
        self._held_at = 0.0
        self._message = ""
        self.files = self.bytes = 0
        self.located = False

    @property
    def begun(self) -> bool:
        """Whether any file was read."""
        return self.files > 0

    def add(self, size: int) -> None:
        """Count a file."""
        self.files += 1
        self.bytes += size
        self.report()

    def restart(self) -> None:
        """Count from zero: what was read so far were contents, which are counted again as files of the version."""
        self.files = self.bytes = 0

    def report(self, message: str = "") -> None:
        """Store the progress at most every PROGRESS_INTERVAL, and renew the protection of the uploads."""
        now = time.monotonic()
        if now - self._reported_at < PROGRESS_INTERVAL and message == self._message:
            return
        self._message = message
        self._reported_at = now
        if now - self._held_at > HELD / 4:
            self._held_at = now
            self._database.write(lambda c: hold(c, self._scope, self._uploads, self._database.now(c)), durable=False)
        rate = self.bytes / max(0.001, now - self._began)
        progress = {"files": self.files, "bytes": self.bytes, "rate": rate} | ({"message": message} if message else {})
        changes = {"progress": json.dumps(progress)}
        if not self._database.write(lambda c: store.CLAIMS.change(c, self._claim, **changes), durable=False):
            raise ClaimLost
