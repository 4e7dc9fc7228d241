"""Identification: who a request is, by its token or session. Without accounts, all who have the server's token are one.

A request is identified once, before its body is read, and the identity goes on in its WSGI environment.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Protocol, cast
from urllib.parse import parse_qsl, unquote, urlencode

from api.credentials import credential_of, is_right, session_of
from common.client_addresses import Network, address_of
from common.errors import BadRequest
from core.domain.access.identities import Grant, ProjectMembership, ProjectState, UserIdentity, legacy_identity
from core.domain.access.roles import AccessRole
from core.domain.access.scopes import DEFAULT_PROJECT
from core.services.access.authentication import UserAuthentication
from core.services.access.browser_sessions import BrowserSessions

#: Keys of the WSGI environment: no header of a client has such a name.
IDENTITY, PROJECT = "windtunnel.identity", "windtunnel.project"
PROJECT_IN_QUERY = "windtunnel.project_in_query"
#: Who uses a platform without accounts, and how he shows it: by its token, or by nothing if it has none.
EVERYBODY = UserIdentity(
    user="", operator=True, memberships={DEFAULT_PROJECT: ProjectMembership(AccessRole.MAINTAINER)}
)
#: An identity that nobody has: what a page of the web, or a probe, may do.
ANYBODY = UserIdentity(user="", grant=Grant(verbs=frozenset()), by="nothing")


class Identification(Protocol):
    """Knows who requests are."""

    @property
    def accounts(self) -> bool:
        """Whether there are users and projects."""

    @property
    def open_to_all(self) -> bool:
        """Whether a request needs no credential."""

    def recall(self, environ: Mapping[str, object]) -> tuple[UserIdentity | None] | None:
        """Return who a request is, in a tuple, as far as it is known without I/O."""

    def identify(self, environ: Mapping[str, object]) -> UserIdentity | None:
        """Return who a request is; None: its credential is nobody's, or it has none."""

    def legacy(self) -> UserIdentity | None:
        """Return who a request of API 1.0 without a credential is; None: nobody."""

    def project_state(self, name: str) -> ProjectState | None:
        """Return the state of a project; None if there is none of this name."""

    def begin_session(self, identity: UserIdentity) -> str:
        """Return the cookie of a new session of a browser; empty where nobody needs one."""

    def end_session(self, identity: UserIdentity) -> None:
        """End the session that a request was made with."""


class OneToken:
    """Platform without accounts: who has its token is everybody; an empty token is had by all."""

    accounts = False

    def __init__(self, token: str) -> None:
        self._token = token
        self.open_to_all = not token
        self._everybody = replace(EVERYBODY, by="token" if token else "nothing")

    def recall(self, environ: Mapping[str, object]) -> tuple[UserIdentity | None]:
        """Return `identify`, which needs no I/O."""
        return (self.identify(environ),)

    def identify(self, environ: Mapping[str, object]) -> UserIdentity | None:
        """Compare with the token."""
        return self._everybody if not self._token or is_right(credential_of(environ), self._token) else None

    def legacy(self) -> None:
        """Nobody, where others need the token."""

    def project_state(self, name: str) -> ProjectState | None:
        """There is one."""
        return ProjectState.OPEN if name == DEFAULT_PROJECT else None

    def begin_session(self, identity: UserIdentity) -> str:
        """Return what follows from the token."""
        return session_of(self._token) if self._token else ""

    def end_session(self, identity: UserIdentity) -> None:
        """Nothing is kept of it: the browser forgets its cookie."""


class ByAccounts:
    """Platform with accounts."""

    accounts, open_to_all = True, False

    def __init__(
        self,
        authentication: UserAuthentication,
        sessions: BrowserSessions,
        proxies: Collection[Network] = (),
        legacy_project: str = "",
    ) -> None:
        self._authentication = authentication
        self._sessions = sessions
        self._proxies = proxies
        self._legacy_project = legacy_project

    def recall(self, environ: Mapping[str, object]) -> tuple[UserIdentity | None] | None:
        """Return what was found in the last second; without a credential, nobody."""
        sent = credential_of(environ)
        return self._authentication.recall(sent.value, session=not sent.bearer) if sent.value else (None,)

    def identify(self, environ: Mapping[str, object]) -> UserIdentity | None:
        """Look the credential up, unless that was done in the last second."""
        sent = credential_of(environ)
        if not sent.value:
            return None
        address = address_of(
            str(environ.get("REMOTE_ADDR", "")), str(environ.get("HTTP_X_FORWARDED_FOR", "")), self._proxies
        )
        return self._authentication.identify(sent.value, address, session=not sent.bearer)

    def legacy(self) -> UserIdentity | None:
        """Return the submitter of the project that the operator has named for such requests, unless that is closed."""
        name = self._legacy_project
        return legacy_identity(name) if name and self.project_state(name) is ProjectState.OPEN else None

    def project_state(self, name: str) -> ProjectState | None:
        """Look the project up."""
        return self._authentication.project_state(name)

    def begin_session(self, identity: UserIdentity) -> str:
        """Keep a session that may do what its token may."""
        return self._sessions.begin(identity)

    def end_session(self, identity: UserIdentity) -> None:
        """Revoke the session."""
        self._sessions.end(identity)


def take_project(environ: dict[str, object]) -> None:
    """Take the project out of the query, where operations do not know it, and keep it with that of the header.

    Raise BadRequest if two are named.
    """
    named = environ.get("HTTP_WINDTUNNEL_PROJECT")
    query = str(environ.get("QUERY_STRING", ""))
    if "project" in unquote(query):
        pairs = parse_qsl(query, keep_blank_values=True)
        for name in [value for key, value in pairs if key == "project"]:
            if named not in (None, name):
                raise BadRequest("The request names two projects: name one, by `Windtunnel-Project` or `?project=`.")
            named = name
            environ[PROJECT_IN_QUERY] = name
        environ["QUERY_STRING"] = urlencode([pair for pair in pairs if pair[0] != "project"])
    if named is not None:
        environ[PROJECT] = named


def identity_of(environ: Mapping[str, object]) -> UserIdentity:
    """Return the identity of a request that was let in."""
    return cast(UserIdentity, environ[IDENTITY])


def project_of(environ: Mapping[str, object]) -> str | None:
    """Return the project that a request names."""
    return cast("str | None", environ.get(PROJECT))
