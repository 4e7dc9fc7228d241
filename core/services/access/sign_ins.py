"""Sign-ins: a person shows who he is, by a password, a passkey or an invitation, and a session begins."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from common.errors import SignInRefused, TooManyPasswords, Unauthorized
from core.authenticators import passkeys
from core.authenticators.passkeys import Passkey
from core.authenticators.passwords import Passwords
from core.domain.access.credentials import BROWSER_PREFIX, TICKET_PREFIX, digest_of, is_well_formed, new_credential
from core.domain.access.password_attempts import PasswordAttempts
from core.services.access.accounts import digest_of_invitation, use_invitation
from core.services.access.browser_sessions import open_session
from core.store import accounts
from core.store import sign_ins as store
from core.store.database import Connection, Database
from core.store.recording import note, note_known, note_try
from core.store.sign_ins import SignInKind

#: Seconds within which a sign-in that has begun is answered, and the most of them at the same time.
BEGUN_LIFE, MOST_SIGN_INS = 600.0, 20_000
T = TypeVar("T", bound=msgspec.Struct)
_WRONG = "This is not the password of this user, or there is no such user."


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """A session that has begun. ``browser``: what the browser keeps to be known at its next password, or empty."""

    user: str
    session: str
    browser: str = ""


@dataclass(frozen=True, slots=True)
class PasskeyQuestion:
    """Question to a browser, and the ticket with which it answers."""

    ticket: str
    options: Mapping[str, object]


class PasskeyTicket(msgspec.Struct, frozen=True):
    """Challenge of a browser, and the page that it came from; ``user``: who makes a passkey, empty: who signs in."""

    challenge: str
    origin: str
    user: str = ""


class SignIns:
    """Service of sign-ins without an identity provider. ``clock``: monotonic, in seconds."""

    def __init__(
        self, database: Database, passwords: Passwords, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._database = database
        self._passwords = passwords
        self._attempts, self._counting = PasswordAttempts(), threading.Lock()
        self._clock = clock

    def by_password(self, user: str, password: str, browser: str) -> OpenedSession:
        """Sign in with a password; ``browser``: what it has kept of an earlier sign-in, or empty.

        Raise Unauthorized, TooManyPasswords, or SignInRefused for who is away.
        """
        note_try(user)
        digest = digest_of(browser) if is_well_formed(browser, BROWSER_PREFIX) else ""
        with self._database.read() as c:
            stored = store.password(c, user)
            known = digest if digest and store.knows_browser(c, digest, user) else ""
        with self._counting:
            wait = self._attempts.begin(user, known, self._clock())
        if wait:
            raise TooManyPasswords(retry_after=int(wait) + 1)
        if not self._passwords.is_right(stored, password):
            raise Unauthorized(_WRONG)
        with self._counting:
            self._attempts.succeed(user, known)
        kept = "" if known else new_credential(BROWSER_PREFIX)
        renewed = self._passwords.hash(password) if stored and self._passwords.is_outdated(stored) else None

        def write(c: Connection) -> str:
            now = self._database.now(c)
            if store.password(c, user) != stored:
                raise Unauthorized(_WRONG)  # it was changed meanwhile
            if kept:
                store.know_browser(c, digest_of(kept), user, now)
            if renewed is not None:
                store.set_password(c, user, renewed)
            require_present(c, user)
            return open_session(c, user, "password", now)

        return OpenedSession(user, self._database.write(write), kept)

    def by_invitation(self, user: str, invitation: str) -> OpenedSession:
        """Sign in once with an invitation, in order to choose another way. Raise Unauthorized, SignInRefused."""
        note_try(user)
        digest = digest_of_invitation(invitation)

        def write(c: Connection) -> str:
            now = self._database.now(c)
            use_invitation(c, user, digest, now)
            require_present(c, user)
            return open_session(c, user, "invitation", now)

        return OpenedSession(user, self._database.write(write))

    def ask_passkey(self, origin: str) -> PasskeyQuestion:
        """Return what a browser is asked for a passkey. Raise Invalid for an origin that passkeys are not for."""
        asked = passkeys.authentication(origin)
        ticket = new_credential(TICKET_PREFIX)
        content = PasskeyTicket(asked.challenge, origin)
        self._database.write(lambda c: begin(c, ticket, SignInKind.PASSKEY, content, self._database.now(c)))
        return PasskeyQuestion(ticket, asked.options)

    def by_passkey(self, origin: str, ticket: str, credential: Mapping[str, object]) -> OpenedSession:
        """Sign in with a passkey. Raise SignInRefused, Unauthorized."""

        def write(c: Connection) -> tuple[str, str]:
            now = self._database.now(c)
            content = take(c, ticket, SignInKind.PASSKEY, now, PasskeyTicket)
            known = store.passkey(c, passkeys.id_of(credential))
            if content.origin != origin or known is None:
                raise Unauthorized("This passkey is none of a user of this platform. Sign in in another way.")
            note_known(c, known.user)
            key = Passkey(known.id, known.public_key, known.sign_count)
            count = passkeys.verify_authentication(origin, content.challenge, credential, key)
            if not store.use_passkey(c, known.id, known.sign_count, count, now):
                raise Unauthorized("This passkey was used at the same time. Try again.")
            require_present(c, known.user)
            note(c, f"users/{known.user}/passkeys/{known.id}")
            return known.user, open_session(c, known.user, "passkey", now)

        user, session = self._database.write(write)
        return OpenedSession(user, session)


def require_present(c: Connection, user: str) -> None:
    """Raise SignInRefused if a provider does not stand for a user any more, with what he does next.

    Only for who has shown that it is him: it tells more about the user than others may know.
    """
    row = accounts.user(c, user)
    if row is None or row.away_since is None:
        return
    names = " or ".join(one.provider for one in store.provided_users_of(c, user))
    raise SignInRefused(
        f"Your identity provider ({names}) does not stand for you any more, and all your tokens and sessions are"
        " refused until it does. Sign in with it again. If it does not let you in, ask an operator of the platform to"
        " remove it from your ways to sign in; then this way works again."
    )


def begin(c: Connection, ticket: str, kind: SignInKind, content: msgspec.Struct, now: float) -> None:
    """Keep what a sign-in is compared with later. Raise SignInRefused if too many have begun."""
    if store.count_begun(c, now) >= MOST_SIGN_INS:
        raise SignInRefused("Too many sign-ins have begun and were not ended. Try again in a few minutes.")
    store.begin(c, digest_of(ticket), kind, msgspec.json.encode(content).decode(), now + BEGUN_LIFE)


def take(c: Connection, ticket: str, kind: SignInKind, now: float, content: type[T]) -> T:
    """Return what was kept of a sign-in, once. Raise SignInRefused if it has not begun, has ended, or is too old."""
    text = store.take(c, digest_of(ticket), kind, now) if is_well_formed(ticket, TICKET_PREFIX) else None
    if text is None:
        raise SignInRefused("This sign-in has not begun here, has ended, or is too old. Begin it again.")
    return msgspec.json.decode(text, type=content)
