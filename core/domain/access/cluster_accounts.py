"""Cluster accounts: service accounts of a Kubernetes cluster that act in projects, as the operator has written down.

Values and a pure decision. Such an account has no row: who it is follows from its token at each request, and what it
may do from the operator's list.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from core.domain.access.identities import MEMBERS, NAME, Grant, ProjectMembership, UserIdentity
from core.domain.access.roles import AccessRole

#: What a kind of credential is called in `GET /v1/session`.
CLUSTER_ACCOUNT = "cluster"
_ENTRY = re.compile(r"([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)(?:/([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?))?=([^:]+):([a-z]+)")


@dataclass(frozen=True, slots=True)
class ClusterAccount:
    """A service account. Its ``user`` is the name that Kubernetes has for it, which no user of the platform has."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        """The name in records."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


@dataclass(frozen=True, slots=True)
class ClusterGrant:
    """A role in a project for the accounts of a namespace, or for one of them if ``account`` is not empty."""

    namespace: str
    account: str
    project: str
    role: AccessRole

    def is_for(self, account: ClusterAccount) -> bool:
        """Return whether it is for an account."""
        return self.namespace == account.namespace and self.account in ("", account.name)


def parse(texts: Collection[str]) -> tuple[ClusterGrant, ...]:
    """Return the grants of texts such as ``team-a=team-a:submitter`` and ``ci/gate=team-a:viewer``.

    Raise ValueError.
    """
    grants = []
    for text in texts:
        found = _ENTRY.fullmatch(text)
        if found is None or not NAME.fullmatch(found[3]) or found[4] not in MEMBERS:
            raise ValueError(f"NAMESPACE=PROJECT:ROLE or NAMESPACE/ACCOUNT=PROJECT:ROLE, not {text[:200]!r}")
        grants.append(ClusterGrant(found[1], found[2] or "", found[3], AccessRole(found[4])))
    return tuple(grants)


def identity_of(
    account: ClusterAccount, grants: Collection[ClusterGrant], projects: Mapping[str, bool]
) -> UserIdentity | None:
    """Return who an account is; None if it is in no project.

    ``projects``: those that there are, and whether they are closed. Of several grants in a project the highest role
    counts.
    """
    memberships: dict[str, ProjectMembership] = {}
    for grant in grants:
        if grant.project in projects and grant.is_for(account):
            before = memberships.get(grant.project)
            role = grant.role if before is None else max(before.role, grant.role, key=MEMBERS.index)
            memberships[grant.project] = ProjectMembership(role, projects[grant.project])
    if not memberships:
        return None
    # Limited, without a loss: it has no ways to sign in, and no tokens of its own.
    limits = Grant(role=AccessRole.MAINTAINER)
    return UserIdentity(account.user, memberships=memberships, grant=limits, by=CLUSTER_ACCOUNT)
