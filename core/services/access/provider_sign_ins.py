"""Provider sign-ins: a person signs in at an identity provider, and its groups say what he may do here.

The groups are read at each sign-in, and hourly by the token that the provider gives for that. For whom a provider does
not stand any more is away: his tokens and sessions are refused until he has signed in there again.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from common.errors import ProviderUnavailable, SignInRefused, UnknownProvider
from core.authenticators.openid_connect import OpenIdConnect
from core.domain.access.credentials import TICKET_PREFIX, new_credential
from core.domain.access.identities import ProjectState
from core.domain.access.identity_providers import (
    IdentityProvider,
    ProvidedPerson,
    candidate_names,
    is_admitted,
    rights_of,
)
from core.services.access.accounts import BEGINNING, RESERVED_NAMES, digest_of_invitation, use_invitation
from core.services.access.browser_sessions import SESSION_LIFE, open_session
from core.services.access.sign_ins import OpenedSession, begin, take
from core.store import accounts
from core.store import sign_ins as store
from core.store.database import Connection, Database
from core.store.recording import note, note_known, note_try
from core.store.sign_ins import ProvidedUserRow, SignInKind

logger = logging.getLogger(__name__)

#: Seconds for which groups count, without being read again; and for which a session lasts where they cannot be.
GROUPS_LIFE, UNREAD_SESSION_LIFE = 3600.0, 12 * 3600.0
#: Most people who are read again in one pass of a process.
MOST_READ = 200


@dataclass(frozen=True, slots=True)
class ProviderQuestion:
    """Where a browser is led, and the ticket that it keeps until it comes back."""

    address: str
    ticket: str


@dataclass(frozen=True, slots=True)
class ProviderAnswer:
    """Answer that a browser comes back with, by its parameters (RFC 6749, section 4.1.2, and RFC 9207)."""

    state: str
    code: str | None = None
    issuer: str | None = None
    error: str | None = None


class ProviderTicket(msgspec.Struct, frozen=True):
    """Sign-in that has begun. ``invitation``: the digest of that by which ``user`` is to be the person."""

    provider: str
    state: str
    nonce: str
    verifier: str
    callback: str
    user: str
    invitation: str
    next_page: str


class ProviderSignIns:
    """Service of sign-ins with identity providers."""

    def __init__(self, database: Database, providers: Mapping[str, IdentityProvider]) -> None:
        self._database = database
        self._clients = {name: OpenIdConnect(one) for name, one in providers.items()}

    def offers(self) -> Sequence[IdentityProvider]:
        """Return the providers, in the order of the operator's file."""
        return [client.provider for client in self._clients.values()]

    def begin(
        self, name: str, callback: str, *, user: str = "", invitation: str = "", next_page: str = "/"
    ) -> ProviderQuestion:
        """Return where a browser is led. ``callback``: the address that it comes back to.

        ``user``: who is signed in, or who is invited, and is to be this person at the provider from then on.
        ``next_page``: the path of the page that he wants. Raise UnknownProvider, ProviderUnavailable, Unauthorized.
        """
        client = self._client(name)
        state, nonce = new_credential(TICKET_PREFIX), new_credential(TICKET_PREFIX)
        ticket, verifier = new_credential(TICKET_PREFIX), new_credential(TICKET_PREFIX)
        invited = digest_of_invitation(invitation) if invitation else ""
        address = client.address(callback, state=state, nonce=nonce, verifier=verifier)
        content = ProviderTicket(name, state, nonce, verifier, callback, user, invited, next_page)
        self._database.write(lambda c: begin(c, ticket, SignInKind.PROVIDER, content, self._database.now(c)))
        return ProviderQuestion(address, ticket)

    def finish(self, name: str, ticket: str, answer: ProviderAnswer) -> tuple[OpenedSession, str]:
        """Sign in with the answer of a provider; return the session, and the page that was wanted.

        Raise SignInRefused for an answer to another question, UnknownProvider, ProviderUnavailable.
        """
        client = self._client(name)
        kind = SignInKind.PROVIDER
        # Not durable, so that the sign-in has one entry: a provider takes its code once as well.
        asked = self._database.write(
            lambda c: take(c, ticket, kind, self._database.now(c), ProviderTicket), durable=False
        )
        if asked.user:
            note_try(asked.user)
        if asked.provider != name or asked.state != answer.state:
            raise SignInRefused("This is the answer to another sign-in than the one of this browser. Begin it again.")
        client.check_issuer(answer.issuer)
        if answer.code is None:
            raise SignInRefused(f"{client.provider.shown} has not signed you in: {(answer.error or 'no code')[:100]}.")
        person = client.redeem(asked.callback, answer.code, nonce=asked.nonce, verifier=asked.verifier)
        with self._database.exclusive(BEGINNING):
            user, session = self._database.write(lambda c: self._enter(c, client.provider, person, asked))
        return OpenedSession(user, session), asked.next_page

    def read_due(self) -> int:
        """Read the groups of people again whose last reading is an hour old; return how many were read."""
        with self._database.read() as c:
            due = store.unread_users(c, self._database.now(c) - GROUPS_LIFE, MOST_READ)
        silent: set[str] = set()
        done = 0
        for row in due:
            if row.provider in silent or row.provider not in self._clients:
                continue
            if not self._database.write(lambda c, row=row: store.claim_reading(c, row, self._database.now(c))):  # type: ignore[misc]
                continue
            try:
                self._read(row)
                done += 1
            except ProviderUnavailable as error:  # what it said last counts on, and is asked for again in an hour
                silent.add(row.provider)
                logger.warning("groups of users of %s cannot be read: %s", row.provider, error.detail)
        return done

    def _read(self, row: ProvidedUserRow) -> None:
        client = self._client(row.provider)
        try:
            person = client.read_again(row.refresh or "", row.subject)
        except SignInRefused as error:
            logger.warning("%s does not stand for user %s any more: %s", row.provider, row.user, error.detail)
            self._database.write(lambda c: store.set_away(c, row.user, self._database.now(c)))
            return

        def write(c: Connection) -> None:
            now = self._database.now(c)
            store.note_reading(c, row.provider, row.subject, person.refresh, now)
            give(c, client.provider, row.user, person, now)

        with self._database.exclusive(BEGINNING):
            self._database.write(write)

    def _enter(
        self, c: Connection, provider: IdentityProvider, person: ProvidedPerson, asked: ProviderTicket
    ) -> tuple[str, str]:
        """Return the user that a person is, perhaps from now on, and his new session."""
        now = self._database.now(c)
        known = store.provided_user(c, provider.name, person.subject)
        if known is not None:
            user = known.user
            note_known(c, user)
            if asked.user not in ("", user):
                raise SignInRefused(f"This person of {provider.shown} is another user here. Sign out there first.")
        else:
            user = self._new(c, provider, person, asked, now)
            store.add_provided_user(c, provider.name, person.subject, user, now)
        store.note_reading(c, provider.name, person.subject, person.refresh, now)
        store.set_away(c, user, None)
        give(c, provider, user, person, now)
        note(c, f"users/{user}/providers/{provider.name}")
        life = SESSION_LIFE if person.refresh is not None else UNREAD_SESSION_LIFE
        return user, open_session(c, user, provider.name, now, life=life)

    def _new(
        self, c: Connection, provider: IdentityProvider, person: ProvidedPerson, asked: ProviderTicket, now: float
    ) -> str:
        """Return the user that a person becomes: who is signed in or was invited, else a new one."""
        if store.has_subject(c, provider.name, person.subject):
            raise SignInRefused("You were removed from this platform. An operator can invite you under another name.")
        if asked.user:
            if (row := accounts.user(c, asked.user)) is None or row.service is not None:
                raise SignInRefused("The user who began this sign-in has left.")
            if asked.invitation:
                use_invitation(c, asked.user, asked.invitation, now)
            if any(row.provider == provider.name for row in store.provided_users_of(c, asked.user)):
                raise SignInRefused(f"{asked.user} is another person of {provider.shown}; remove that first.")
            return asked.user
        if not is_admitted(provider, person.groups):
            raise SignInRefused(
                "You are not a user of this platform: none of your groups is one of it. Ask an operator for an"
                " invitation."
            )
        values = {"state": "active", "created_by": provider.name, "created_at": now}
        for name in candidate_names(person.names):
            if name not in RESERVED_NAMES and accounts.add_user(c, name, values):
                return name
        raise SignInRefused("All names for you are taken. Ask an operator for an invitation.")

    def _client(self, name: str) -> OpenIdConnect:
        if name not in self._clients:
            raise UnknownProvider
        return self._clients[name]


def give(c: Connection, provider: IdentityProvider, user: str, person: ProvidedPerson, now: float) -> None:
    """Give a user what his groups give, and take what they gave; what people gave him is left alone."""
    rights, roles = rights_of(provider, person.groups), store.given_roles(c, user)
    for project, (_, given_by) in roles.items():
        if given_by == provider.name and project not in rights.projects:
            accounts.drop_member(c, project, user, now)
    for project, role in rights.projects.items():
        before = roles.get(project)
        known = accounts.project(c, project)
        if (before is None or (before[1] == provider.name and before[0] != role)) and known is not None:
            if known.state in (ProjectState.OPEN, ProjectState.CLOSED):
                accounts.put_member(c, project, user, role, now, given_by=provider.name)
    store.set_operator_by(c, user, provider.name, operator=rights.operator)
