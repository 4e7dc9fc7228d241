"""Cluster tokens: bound service-account tokens of Kubernetes, which its API server reviews, are identities here.

The API server alone knows whether the account, and the pod that a token is bound to, still exist.
"""

from collections.abc import Callable, Collection

from core.domain.access.cluster_accounts import ClusterAccount, ClusterGrant, identity_of
from core.domain.access.identities import ProjectState, UserIdentity
from core.store import accounts
from core.store.database import Database

#: Tokens that are not longer are reviewed (a bound token has about 1,000 characters).
LONGEST_TOKEN = 16_000
#: Asks the API server about a token; returns its account, None for a token that is not valid here. Raise
#: ProviderUnavailable if it does not answer.
ReviewToken = Callable[[str], ClusterAccount | None]


class ClusterTokens:
    """Knows the identities of tokens of a cluster."""

    def __init__(self, database: Database, review: ReviewToken, grants: Collection[ClusterGrant]) -> None:
        self._database = database
        self._review = review
        self._grants = grants

    def identify(self, credential: bytes) -> UserIdentity | None:
        """Return who a token is now; None if it is none, or its account is in no project. Raise ProviderUnavailable."""
        text = credential.decode(errors="replace")
        if not may_be_token(text) or (account := self._review(text)) is None:
            return None
        names = {grant.project for grant in self._grants if grant.is_for(account)}
        with self._database.read() as c:
            rows = [accounts.project(c, name) for name in names]
        open_or_closed = (ProjectState.OPEN, ProjectState.CLOSED)
        projects = {
            row.name: row.state == ProjectState.CLOSED
            for row in rows
            if row is not None and row.state in open_or_closed
        }
        return identity_of(account, self._grants, projects)


def may_be_token(text: str) -> bool:
    """Return whether a text has the form of a signed token (RFC 7515, compact); others are not asked about."""
    return text.count(".") == 2 and text.startswith("eyJ") and text.isascii() and len(text) <= LONGEST_TOKEN
