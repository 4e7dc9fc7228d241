"""Browser sessions: tokens that a cookie has, which end with the token that they began with, or by themselves."""

import json
from datetime import UTC, datetime

from common.errors import NotPermitted, Unauthorized
from common.ids import new_id
from core.domain.access.cluster_accounts import CLUSTER_ACCOUNT
from core.domain.access.credentials import SESSION_PREFIX, digest_of, new_credential
from core.domain.access.identities import UserIdentity
from core.store import accounts as store
from core.store.accounts import TokenRow
from core.store.database import Connection, Database
from core.store.recording import note_sign_in

#: Seconds for which a session of a browser lasts.
SESSION_LIFE = 30 * 86_400.0


class BrowserSessions:
    """Service of sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, identity: UserIdentity) -> str:
        """Return the text of a new session, which may do what the token may that it begins with. Raise NotPermitted."""
        if identity.by == CLUSTER_ACCOUNT:  # no row has its token, with which the session would end
            raise NotPermitted(
                "Tokens of a cluster begin no session. Send the token with each request, or sign in as a person."
            )
        text, grant = new_credential(SESSION_PREFIX), identity.grant
        verbs = None if grant.verbs is None else json.dumps(sorted(grant.verbs))

        def write(c: Connection) -> None:
            now = self._database.now(c)
            token = lock_token(c, identity.credential)
            ends = now + SESSION_LIFE if token.expires_at is None else min(token.expires_at, now + SESSION_LIFE)
            limits: dict[str, object] = {
                "bound_to": grant.project,
                "role": grant.role,
                "verbs": verbs,
                "patterns": grant.patterns.text,
            }
            began_with = {"session_of": token.session_of or token.id, "name": "browser"}
            _add(c, text, identity.user, now, limits | began_with | {"expires_at": ends})

        self._database.write(write)
        return text

    def end(self, identity: UserIdentity) -> None:
        """End the session that a request was made with."""
        if identity.by == "session":
            self._database.write(lambda c: store.revoke(c, identity.credential, self._database.now(c)) and None)


def open_session(c: Connection, user: str, by: str, now: float, *, life: float = SESSION_LIFE) -> str:
    """Insert a session of a user who has shown that it is him; return its text. ``by``: how, for the list of his."""
    text = new_credential(SESSION_PREFIX)
    _add(c, text, user, now, {"expires_at": now + life, "name": f"browser, by {by}"})
    note_sign_in(c, user)
    return text


def _add(c: Connection, text: str, user: str, now: float, values: dict[str, object]) -> None:
    store.forget_tokens(c, now - SESSION_LIFE)
    id = new_id(datetime.now(UTC))
    identity = {"id": id, "digest": digest_of(text), "user": user, "created_by": user, "created_at": now}
    store.add_token(c, identity | {"session_of": id} | values)


def lock_token(c: Connection, id: str) -> TokenRow:
    """Return the token that a request was made with, locked; raise Unauthorized if it was revoked meanwhile."""
    row = store.token(c, id, lock=True)
    if row is None:
        raise Unauthorized
    return row
