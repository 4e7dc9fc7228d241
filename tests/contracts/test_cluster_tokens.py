"""Cluster tokens on both databases: an account acts in the projects that the operator has given it, while they are."""

import pytest

from common.errors import NotPermitted, ProviderUnavailable
from core.domain.access.cluster_accounts import ClusterAccount, parse
from core.domain.access.identities import ProjectState, UserIdentity
from core.domain.access.roles import VERBS, AccessRole
from core.domain.access.scopes import OPERATION
from core.services.access.accounts import Accounts, NewToken
from core.services.access.authentication import LIFETIME, UserAuthentication
from core.services.access.browser_sessions import BrowserSessions
from core.services.access.cluster_tokens import LONGEST_TOKEN, ClusterTokens
from core.services.access.device_sign_ins import DeviceSignIns
from core.store import accounts as store
from core.store.database import Database

TOKEN = "eyJh.eyJz.c2ln"


class ApiServer:
    """The accounts of tokens, as tests/cluster/test_tokens.py asks a real API server for them."""

    def __init__(self) -> None:
        self.accounts = {TOKEN: ClusterAccount("team-a", "ci")}
        self.asked: list[str] = []
        self.away = False

    def __call__(self, token: str) -> ClusterAccount | None:
        self.asked.append(token)
        if self.away:
            raise ProviderUnavailable
        return self.accounts.get(token)


class Times:
    """A monotonic clock that stands still until it is told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def authentication(database: Database, server: ApiServer, times: Times) -> UserAuthentication:
    accounts = Accounts(database)
    accounts.begin("a token of the operator's own")
    accounts.create_project(OPERATION, "red")
    grants = parse(["team-a=red:submitter", "team-a/ci=gone:maintainer", "leads=red:maintainer"])
    return UserAuthentication(database, cluster=ClusterTokens(database, server, grants), clock=times)


def who(authentication: UserAuthentication, token: str = TOKEN) -> UserIdentity | None:
    return authentication.identify(token.encode(), "192.0.2.1", session=False)


def test_an_account_acts_in_the_project_of_its_namespace(authentication: UserAuthentication) -> None:
    identity = who(authentication)
    assert identity is not None and identity.by == "cluster"
    caller = identity.act_in(None)
    assert caller.scope.project == "red" and caller.verbs == VERBS[AccessRole.SUBMITTER]
    assert caller.name == "system:serviceaccount:team-a:ci"


def test_what_the_api_server_does_not_know_is_nobody(
    authentication: UserAuthentication, server: ApiServer, times: Times
) -> None:
    assert who(authentication) is not None
    server.accounts.clear()  # the pod is gone
    times.now += LIFETIME
    assert who(authentication) is None
    server.accounts[TOKEN] = ClusterAccount("team-b", "ci")
    times.now += LIFETIME
    assert who(authentication) is None, "its namespace is none of the operator's list"


def test_a_closed_project_is_read_and_a_deleted_one_is_not_there(
    authentication: UserAuthentication, database: Database, times: Times
) -> None:
    def move(before: ProjectState, after: ProjectState) -> None:
        assert database.write(lambda c: store.move_project(c, "red", before, after, database.now(c)))
        times.now += LIFETIME

    move(ProjectState.OPEN, ProjectState.CLOSED)
    identity = who(authentication)
    assert identity is not None and identity.projects["red"].closed
    move(ProjectState.CLOSED, ProjectState.DELETED)
    assert who(authentication) is None


@pytest.mark.parametrize(
    "text",
    ["", "x", "a.b.c", "eyJh.eyJz", "wt_" + "0" * 46, "eyJ" + "a" * LONGEST_TOKEN + ".b.c", "eyJh.\N{SNOWMAN}.c"],
)
def test_what_has_another_form_is_not_asked_about(
    authentication: UserAuthentication, server: ApiServer, text: str
) -> None:
    assert who(authentication, text) is None and server.asked == []


def test_an_api_server_that_is_away_says_nothing_of_a_token(
    authentication: UserAuthentication, server: ApiServer, times: Times
) -> None:
    server.away = True
    with pytest.raises(ProviderUnavailable):
        who(authentication)
    server.away = False
    assert who(authentication) is not None


def test_a_token_is_asked_about_once_a_second(
    authentication: UserAuthentication, server: ApiServer, times: Times
) -> None:
    for _ in range(100):
        assert who(authentication) is not None
        times.now += LIFETIME / 100
    assert len(server.asked) <= 2


def test_a_cookie_is_no_token_of_a_cluster(authentication: UserAuthentication, server: ApiServer) -> None:
    assert authentication.identify(TOKEN.encode(), "192.0.2.1", session=True) is None and server.asked == []


def test_an_account_makes_nothing_that_outlives_its_token(
    authentication: UserAuthentication, server: ApiServer, database: Database
) -> None:
    server.accounts[TOKEN] = ClusterAccount("leads", "ci")
    identity = who(authentication)
    assert identity is not None
    caller = identity.act_in("red")
    assert caller.verbs == VERBS[AccessRole.MAINTAINER]
    accounts, devices = Accounts(database), DeviceSignIns(database)
    accounts.create_service(caller, "nightly", AccessRole.SUBMITTER)
    asked = NewToken(name="lasting", role=AccessRole.VIEWER)
    for user in (None, "nightly"):
        with pytest.raises(NotPermitted, match="outlive its pod"):
            accounts.issue(caller, asked, user=user)
    with pytest.raises(NotPermitted):
        accounts.issue_personal(caller, caller.user, asked)
    codes = devices.begin("a program", "192.0.2.1")
    with pytest.raises(NotPermitted):
        devices.answer(caller, codes.user_code, approve=True)
    with pytest.raises(NotPermitted, match="begin no session"):
        BrowserSessions(database).begin(identity)
    assert accounts.tokens(caller) == []
