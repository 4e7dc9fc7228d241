"""Sign-in methods of a user: his password, his passkeys, and who he is at identity providers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.errors import Invalid, NotPermitted, UnknownPasskey, UnknownProvider, UnknownUser
from core.authenticators import passkeys
from core.authenticators.passwords import Passwords
from core.domain.access.credentials import INVITATION_PREFIX, TICKET_PREFIX, digest_of, new_credential
from core.domain.access.roles import Verb
from core.domain.access.scopes import Caller
from core.services.access.accounts import INVITATION_LIFE, check_whole
from core.services.access.sign_ins import PasskeyQuestion, PasskeyTicket, begin, take
from core.store import accounts
from core.store import sign_ins as store
from core.store.database import Connection, Database
from core.store.sign_ins import PasskeyRow, ProvidedUserRow, SignInKind

#: Most passkeys of a user.
MOST_PASSKEYS = 50


@dataclass(frozen=True, slots=True)
class UserSignInMethods:
    """How a user signs in."""

    password: bool
    passkeys: Sequence[PasskeyRow]
    providers: Sequence[ProvidedUserRow]


class SignInMethods:
    """Service of the ways to sign in: each user changes his own, and an operator removes those of others."""

    def __init__(self, database: Database, passwords: Passwords) -> None:
        self._database = database
        self._passwords = passwords

    def of_user(self, caller: Caller, user: str) -> UserSignInMethods:
        """Return how a user signs in. Raise NotPermitted, UnknownUser."""
        _check_own(caller, user, or_operator=True)
        with self._database.read() as c:
            _require_person(c, user)
            has_password = store.password(c, user) is not None
            return UserSignInMethods(has_password, store.passkeys_of(c, user), store.provided_users_of(c, user))

    def set_password(self, caller: Caller, user: str, password: str, current: str) -> None:
        """Replace one's own password; ``current``: the one before, if there is one. Raise Invalid, NotPermitted."""
        _check_own(caller, user)
        with self._database.read() as c:
            _require_person(c, user)
            before = store.password(c, user)
        if before is not None and not self._passwords.is_right(before, current):
            raise Invalid("The current password is another one. Enter it in `current`.")
        hashed = self._passwords.hash(password)

        def write(c: Connection) -> None:
            if store.password(c, user) != before:
                raise Invalid("The password was changed at the same time. Enter the present one in `current`.")
            store.set_password(c, user, hashed)

        self._database.write(write)

    def drop_password(self, caller: Caller, user: str) -> None:
        """Delete a password, as its user or an operator. Raise NotPermitted, UnknownUser."""
        _check_own(caller, user, or_operator=True)

        def write(c: Connection) -> None:
            _require_person(c, user)
            store.set_password(c, user, None)

        self._database.write(write)

    def ask_passkey(self, caller: Caller, user: str, origin: str) -> PasskeyQuestion:
        """Return what a browser is asked in order to make a passkey. Raise Invalid, NotPermitted."""
        _check_own(caller, user)
        ticket = new_credential(TICKET_PREFIX)

        def write(c: Connection) -> PasskeyQuestion:
            _require_person(c, user)
            known = [row.id for row in store.passkeys_of(c, user)]
            if len(known) >= MOST_PASSKEYS:
                raise Invalid(f"A user has at most {MOST_PASSKEYS} passkeys. Remove one first.")
            asked = passkeys.registration(origin, user, known)
            content = PasskeyTicket(asked.challenge, origin, user)
            begin(c, ticket, SignInKind.NEW_PASSKEY, content, self._database.now(c))
            return PasskeyQuestion(ticket, asked.options)

        return self._database.write(write)

    def add_passkey(
        self, caller: Caller, user: str, origin: str, name: str, answer: tuple[str, Mapping[str, object]]
    ) -> PasskeyRow:
        """Keep a passkey that a browser has made. ``answer``: the ticket, and the credential as JSON.

        Raise Invalid, NotPermitted, SignInRefused.
        """
        _check_own(caller, user)
        ticket, credential = answer

        def write(c: Connection) -> PasskeyRow:
            now = self._database.now(c)
            content = take(c, ticket, SignInKind.NEW_PASSKEY, now, PasskeyTicket)
            if (content.user, content.origin) != (user, origin):
                raise Invalid("This passkey was asked of another user. Begin again.")
            made = passkeys.verify_registration(origin, content.challenge, credential)
            if store.passkey(c, made.id) is not None:
                raise Invalid("This passkey is known already.")
            key = {"id": made.id, "public_key": made.public_key, "sign_count": made.sign_count}
            return store.add_passkey(c, key | {"user": user, "name": name, "created_at": now})

        return self._database.write(write)

    def drop_passkey(self, caller: Caller, user: str, id: str) -> None:
        """Delete a passkey, as its user or an operator. Raise NotPermitted, UnknownPasskey."""
        _check_own(caller, user, or_operator=True)
        if not self._database.write(lambda c: store.drop_passkey(c, user, id)):
            raise UnknownPasskey

    def drop_provider(self, caller: Caller, user: str, provider: str) -> None:
        """Let a user be nobody at a provider: what its groups gave him ends. Raise NotPermitted, UnknownProvider."""
        _check_own(caller, user, or_operator=True)
        if not self._database.write(lambda c: store.drop_provided_user(c, user, provider)):
            raise UnknownProvider(f"{user} is nobody at an identity provider {provider[:40]!r}.")

    def invite_again(self, caller: Caller, user: str) -> str:
        """Return another invitation of a user, who has lost his ways to sign in; the one before is void.

        Raise UnknownUser.
        """
        check_whole(caller)
        invitation = new_credential(INVITATION_PREFIX)

        def write(c: Connection) -> None:
            _require_person(c, user)
            store.set_invitation(c, user, digest_of(invitation), self._database.now(c) + INVITATION_LIFE)

        self._database.write(write)
        return invitation


def _check_own(caller: Caller, user: str, *, or_operator: bool = False) -> None:
    """Raise NotPermitted for a limited token, and for another user's ways, which only operators see and remove."""
    check_whole(caller)
    if user != caller.user:
        caller.require(Verb.OPERATE)
        if not or_operator:
            raise NotPermitted(
                f"Only {user} can do this. Who has lost his ways to sign in gets a new invitation from an operator:"
                f" `POST /v1/users/{user}/invitation`."
            )


def _require_person(c: Connection, user: str) -> None:
    row = accounts.user(c, user)
    if row is None or row.service is not None:
        raise UnknownUser(f"There is no person {user[:40]!r}.")
