"""Passwords: hashed with Argon2id (RFC 9106), a few at a time, since each hash takes 64 MiB of memory."""

import threading

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from common.errors import Invalid

#: Lengths of a password. Nothing else is asked of it (NIST SP 800-63B-4, section 3.1.1.2).
SHORTEST_PASSWORD, LONGEST_PASSWORD = 12, 1000
#: Hashes that are computed at the same time.
PARALLEL_HASHES = 2


class Passwords:
    """Hashes passwords and compares them."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher()
        self._turns = threading.Semaphore(PARALLEL_HASHES)
        self._nobody = ""

    def hash(self, password: str) -> str:
        """Return what is stored of a password. Raise Invalid for one that is too short or too long."""
        if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
            raise Invalid(
                f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD:,} characters; any are allowed, also spaces."
            )
        with self._turns:
            return self._hasher.hash(password)

    def is_right(self, stored: str | None, password: str) -> bool:
        """Return whether a password is the stored one; without one it takes as long, and is wrong."""
        with self._turns:
            if not stored and not self._nobody:
                self._nobody = self._hasher.hash("the password of nobody")
            try:
                right = self._hasher.verify(stored or self._nobody, password[: LONGEST_PASSWORD + 1])
            except (VerificationError, InvalidHashError):
                return False
        return right and bool(stored)

    def is_outdated(self, stored: str) -> bool:
        """Return whether a hash was made with other parameters than the library recommends now."""
        return self._hasher.check_needs_rehash(stored)
