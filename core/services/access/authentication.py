"""UserAuthentication with accounts: a token, or the session of a browser, is an identity, or nobody's.

The outcome of a check is kept for a second: a token that was revoked is refused by every process after that, and a busy
client costs a query a second.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from common.errors import StorageFull, StoreUnavailable
from core.domain.access.credentials import PREFIX, SESSION_PREFIX, digest_of, is_well_formed
from core.domain.access.identities import Grant, ProjectMembership, ProjectState, UserIdentity
from core.domain.access.name_patterns import NamePatterns
from core.domain.access.roles import AccessRole, Verb
from core.services.access.cluster_tokens import ClusterTokens
from core.store import accounts as store
from core.store.accounts import CredentialRow
from core.store.database import Database

#: Seconds for which the outcome of a check is kept, and the most outcomes.
LIFETIME, MOST_OUTCOMES = 1.0, 10_000
#: Seconds between two records of a token's use.
USE_INTERVAL = 60.0


class UserAuthentication:
    """Knows the identities of credentials. ``cluster``: tokens of a cluster. ``clock``: monotonic, in seconds."""

    def __init__(
        self,
        database: Database,
        *,
        cluster: ClusterTokens | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._cluster = cluster
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, UserIdentity | None]] = OrderedDict()

    def recall(self, credential: bytes, *, session: bool) -> tuple[UserIdentity | None] | None:
        """Return the outcome of a check in the last second, without I/O; None if there was none."""
        if not _may_be_one(credential, session=session):
            return (None,)
        with self._lock:
            outcome = self._kept.get(digest_of(credential))
        return (outcome[1],) if outcome is not None and outcome[0] > self._clock() else None

    def identify(self, credential: bytes, address: str, *, session: bool) -> UserIdentity | None:
        """Return who a credential is now; None if it is none, was revoked, or has expired, or if its user has left.

        ``session``: it came as the cookie of a browser. ``address``: where from. Raise StoreUnavailable, or
        ProviderUnavailable if a cluster cannot tell.
        """
        if (outcome := self.recall(credential, session=session)) is not None:
            return outcome[0]
        digest, until = digest_of(credential), self._clock() + LIFETIME
        with self._database.read() as c:
            rows = store.credential(c, digest, self._database.replaced_now)
        identity = _identity(rows, session=session)
        if not (rows or session) and self._cluster is not None:
            identity = self._cluster.identify(credential)
        elif identity is not None and rows[0].now - (rows[0].used_at or 0.0) > USE_INTERVAL:
            with suppress(StoreUnavailable, StorageFull):  # a request that reads needs no write
                self._database.write(lambda c: store.note_use(c, rows[0].id, address, rows[0].now), durable=False)
        with self._lock:
            self._kept[digest] = (until, identity)
            self._kept.move_to_end(digest)
            if len(self._kept) > MOST_OUTCOMES:
                self._kept.popitem(last=False)
        return identity

    def project_state(self, name: str) -> ProjectState | None:
        """Return the state of a project, for an operator who is not a member of it; None if there is none."""
        with self._database.read() as c:
            row = store.project(c, name)
        state = None if row is None else ProjectState(row.state)
        return state if state in (ProjectState.OPEN, ProjectState.CLOSED) else None


def _may_be_one(credential: bytes, *, session: bool) -> bool:
    """Return whether a credential has the form of one; an operator's own (WINDTUNNEL_TOKEN) may have any form."""
    text = credential.decode(errors="replace")
    if session:
        return is_well_formed(text, SESSION_PREFIX)
    return is_well_formed(text, PREFIX) or not text.startswith((PREFIX, SESSION_PREFIX))


def _identity(rows: Sequence[CredentialRow], *, session: bool) -> UserIdentity | None:
    """Return the identity of a credential's rows; a session is none as a token, nor a token as a session."""
    if not rows or (rows[0].session_of is not None) is not session:
        return None
    first = rows[0]
    memberships = {
        row.its_project: ProjectMembership(AccessRole(row.member_role), row.project_state == ProjectState.CLOSED)
        for row in rows
        if row.its_project is not None
        and row.member_role is not None
        and row.project_state in (ProjectState.OPEN, ProjectState.CLOSED)
    }
    verbs = None if first.verbs is None else frozenset(msgspec.json.decode(first.verbs, type=list[Verb]))
    role = AccessRole(first.role) if first.role is not None else None
    grant = Grant(
        first.bound_to, role, verbs, first.bound_state == ProjectState.CLOSED, NamePatterns.of_text(first.patterns)
    )
    return UserIdentity(
        user=first.user,
        operator=bool(first.operator),
        memberships=memberships,
        grant=grant,
        credential=first.id,
        by="session" if session else "token",
    )
