"""Accounts on both databases: names are used once, nobody gives what he has not, and a token is refused at once."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event, text

from common.errors import Invalid, NameTaken, NotPermitted, Unauthorized, UnknownProject, UnknownToken, UnknownUser
from core.domain.access.credentials import PREFIX, is_well_formed, new_credential
from core.domain.access.identities import FIRST_OPERATOR, UserIdentity
from core.domain.access.roles import VERBS, AccessRole, Verb
from core.domain.access.scopes import DEFAULT_PROJECT, Caller
from core.services.access.accounts import Accounts, NewToken
from core.services.access.authentication import LIFETIME, UserAuthentication
from core.services.access.browser_sessions import BrowserSessions
from core.store import accounts as store
from core.store.database import Database

OWN = new_credential()


class Times:
    """A monotonic clock that stands still until it is told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def accounts(database: Database) -> Accounts:
    accounts = Accounts(database)
    accounts.begin(OWN)
    return accounts


@pytest.fixture
def sessions(database: Database) -> BrowserSessions:
    return BrowserSessions(database)


@pytest.fixture
def authentication(database: Database, accounts: Accounts, times: Times) -> Iterator[UserAuthentication]:
    yield UserAuthentication(database, clock=times)


def who(authentication: UserAuthentication, token: str, *, session: bool = False) -> UserIdentity:
    identity = authentication.identify(token.encode(), "192.0.2.1", session=session)
    assert identity is not None
    return identity


def is_nobody(authentication: UserAuthentication, token: str, *, session: bool = False) -> bool:
    return authentication.identify(token.encode(), "192.0.2.1", session=session) is None


@pytest.fixture
def operator(authentication: UserAuthentication) -> Caller:
    return who(authentication, OWN).act_in(None)


def member(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller, name: str, **roles: AccessRole
) -> UserIdentity:
    """Create a user with roles by project, and return who his first token is."""
    _, invitation = accounts.create_user(operator, name)
    assert invitation is not None
    for project, role in roles.items():
        accounts.put_member(who(authentication, OWN).act_in(project), name, role)
    return who(authentication, accounts.redeem(name, invitation, NewToken(name="first"))[1])


# -- the beginning


def test_the_first_operator_has_the_token_that_was_set_and_the_default_project(
    authentication: UserAuthentication,
) -> None:
    first = who(authentication, OWN)
    assert (first.user, first.operator, list(first.projects)) == (FIRST_OPERATOR, True, [DEFAULT_PROJECT])
    assert first.act_in(None).verbs == VERBS[AccessRole.OPERATOR]


def test_a_beginning_that_is_repeated_changes_nothing_and_a_new_token_takes_the_place_of_the_old(
    accounts: Accounts, authentication: UserAuthentication, times: Times
) -> None:
    accounts.begin(OWN)
    assert who(authentication, OWN).user == FIRST_OPERATOR
    other = new_credential()
    accounts.begin(other)
    times.now += LIFETIME
    assert who(authentication, other).user == FIRST_OPERATOR and is_nobody(authentication, OWN)


def test_a_revoked_token_of_the_operator_is_not_given_again_by_a_restart(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller, times: Times
) -> None:
    [row] = accounts.personal_tokens(operator, FIRST_OPERATOR)
    accounts.revoke_personal(operator, FIRST_OPERATOR, row.id)
    accounts.begin(OWN)
    times.now += LIFETIME
    assert is_nobody(authentication, OWN)


# -- names


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a" * 41, "a.b", "a_b", "ä", "a b", "a\n"])
def test_a_name_is_a_label_of_dns(accounts: Accounts, operator: Caller, name: str) -> None:
    with pytest.raises(Invalid, match="lower-case letters"):
        accounts.create_project(operator, name)
    with pytest.raises(Invalid, match="lower-case letters"):
        accounts.create_user(operator, name)


def test_a_name_is_never_used_again(accounts: Accounts, operator: Caller) -> None:
    accounts.create_project(operator, "red")
    accounts.create_user(operator, "ada")
    accounts.remove_user(operator, "ada")
    for again in (accounts.create_project, accounts.create_user):
        with pytest.raises(NameTaken):
            again(operator, {accounts.create_project: "red"}.get(again, "ada"))
    with pytest.raises(NameTaken, match="platform's"):
        accounts.create_user(operator, "local")


# -- invitations


def test_an_invitation_is_for_one_user_and_one_use(accounts: Accounts, operator: Caller) -> None:
    _, invitation = accounts.create_user(operator, "ada")
    accounts.create_user(operator, "bob")
    assert invitation is not None
    asked = NewToken(name="laptop")
    for name, tried in (("bob", invitation), ("ada", new_credential("wti_")), ("nobody", invitation)):
        with pytest.raises(Unauthorized):
            accounts.redeem(name, tried, asked)
    accounts.redeem("ada", invitation, asked)
    with pytest.raises(Unauthorized):
        accounts.redeem("ada", invitation, asked)


# -- what a token may


def test_a_token_of_a_project_may_what_its_role_may_there_and_nothing_elsewhere(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller
) -> None:
    accounts.create_project(operator, "red")
    accounts.create_project(operator, "blue")
    in_red = who(authentication, OWN).act_in("red")
    row, text = accounts.issue(in_red, NewToken(name="ci", role=AccessRole.SUBMITTER))
    assert is_well_formed(text) and text.startswith(PREFIX)
    identity = who(authentication, text)
    acting = identity.act_in(None)
    assert (acting.scope.project, acting.verbs, row.bound_to) == ("red", VERBS[AccessRole.SUBMITTER], "red")
    for project in ("blue", DEFAULT_PROJECT, "nothing"):
        with pytest.raises(UnknownProject):
            identity.act_in(project)


def test_a_token_may_have_fewer_verbs_than_its_role(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller
) -> None:
    gate = NewToken(name="gate", role=AccessRole.SUBMITTER, verbs=[Verb.READ, Verb.SUBMIT])
    _, text = accounts.issue(operator, gate)
    assert who(authentication, text).act_in(None).verbs == {Verb.READ, Verb.SUBMIT}


def test_nobody_gives_what_he_has_not(accounts: Accounts, authentication: UserAuthentication, operator: Caller) -> None:
    accounts.create_project(operator, "red")
    ada = member(accounts, authentication, operator, "ada", red=AccessRole.SUBMITTER).act_in("red")
    for role in (AccessRole.MAINTAINER, AccessRole.OPERATOR):
        with pytest.raises((NotPermitted, Invalid)):
            accounts.issue(ada, NewToken(name="more", role=role))
        with pytest.raises((NotPermitted, Invalid)):
            accounts.put_member(ada, "ada", role)
    accounts.issue(ada, NewToken(name="equal", role=AccessRole.SUBMITTER))
    with pytest.raises(NotPermitted):
        accounts.issue_personal(ada, FIRST_OPERATOR, NewToken(name="his"))


def test_a_limited_token_makes_no_personal_one(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller
) -> None:
    _, limited = accounts.issue_personal(operator, FIRST_OPERATOR, NewToken(name="reader", role=AccessRole.VIEWER))
    acting = who(authentication, limited).act_in(None)
    assert acting.verbs == {Verb.READ}
    with pytest.raises(NotPermitted, match="limited"):
        accounts.issue_personal(acting, FIRST_OPERATOR, NewToken(name="more"))


def test_who_is_in_several_projects_names_one(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller
) -> None:
    accounts.create_project(operator, "red")
    accounts.create_project(operator, "blue")
    ada = member(accounts, authentication, operator, "ada", red=AccessRole.VIEWER, blue=AccessRole.MAINTAINER)
    assert ada.act_in(None).scope.project == "" and ada.act_in(None).verbs == frozenset()
    assert (
        ada.act_in("red").verbs == VERBS[AccessRole.VIEWER] and ada.act_in("blue").verbs == VERBS[AccessRole.MAINTAINER]
    )
    with pytest.raises(UnknownProject):
        ada.act_in(DEFAULT_PROJECT)


# -- the end of rights


def test_a_revoked_token_is_refused_a_second_later_with_the_sessions_that_began_with_it(
    accounts: Accounts, sessions: BrowserSessions, authentication: UserAuthentication, operator: Caller, times: Times
) -> None:
    row, text = accounts.issue(operator, NewToken(name="ci", role=AccessRole.VIEWER))
    cookie = sessions.begin(who(authentication, text))
    assert who(authentication, cookie, session=True).act_in(None).verbs == {Verb.READ}
    accounts.revoke(operator, row.id)
    times.now += LIFETIME
    assert is_nobody(authentication, text) and is_nobody(authentication, cookie, session=True)


def test_a_session_is_no_token_and_a_token_no_session(
    accounts: Accounts, sessions: BrowserSessions, authentication: UserAuthentication, operator: Caller
) -> None:
    cookie = sessions.begin(who(authentication, OWN))
    assert is_nobody(authentication, cookie) and is_nobody(authentication, OWN, session=True)
    identity = who(authentication, cookie, session=True)
    sessions.end(identity)
    assert accounts.personal_tokens(operator, FIRST_OPERATOR)[0].session_of is None


def test_a_token_is_worth_what_its_maker_may_now(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller, times: Times
) -> None:
    accounts.create_project(operator, "red")
    ada = member(accounts, authentication, operator, "ada", red=AccessRole.MAINTAINER).act_in("red")
    _, text = accounts.issue(ada, NewToken(name="ci", role=AccessRole.MAINTAINER))
    accounts.put_member(who(authentication, OWN).act_in("red"), "ada", AccessRole.VIEWER)
    times.now += LIFETIME
    assert who(authentication, text).act_in(None).verbs == {Verb.READ}
    accounts.drop_member(who(authentication, OWN).act_in("red"), "ada")
    times.now += LIFETIME
    assert is_nobody(authentication, text)


def test_who_leaves_loses_all_and_a_service_account_goes_on(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller, times: Times
) -> None:
    accounts.create_project(operator, "red")
    ada = member(accounts, authentication, operator, "ada", red=AccessRole.MAINTAINER).act_in("red")
    accounts.create_service(ada, "nightly", AccessRole.SUBMITTER)
    _, own = accounts.issue(ada, NewToken(name="mine", role=AccessRole.VIEWER))
    _, service = accounts.issue(ada, NewToken(name="ci", role=AccessRole.SUBMITTER), user="nightly")
    accounts.remove_user(operator, "ada")
    times.now += LIFETIME
    assert is_nobody(authentication, own)
    assert who(authentication, service).act_in(None).verbs == VERBS[AccessRole.SUBMITTER]
    with pytest.raises(UnknownUser):
        accounts.remove_user(operator, "ada")


def test_the_last_operator_cannot_leave(accounts: Accounts, operator: Caller) -> None:
    with pytest.raises(Invalid, match="last operator"):
        accounts.remove_user(operator, FIRST_OPERATOR)
    accounts.create_user(operator, "eve", operator=True)
    accounts.remove_user(operator, FIRST_OPERATOR)


def test_a_token_expires(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller, times: Times, clock: Any
) -> None:
    _, text = accounts.issue(operator, NewToken(name="short", role=AccessRole.VIEWER, expires_in=60.0))
    assert who(authentication, text)
    clock.now += 61.0
    times.now += LIFETIME
    assert is_nobody(authentication, text)


# -- other people's


def test_a_token_that_was_not_seen_costs_one_statement_and_one_that_was_none(
    authentication: UserAuthentication, database: Database, times: Times
) -> None:
    who(authentication, OWN)  # it is used: that is written once a minute
    statements: list[str] = []
    event.listen(database._reader, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    who(authentication, OWN)
    assert statements == []
    times.now += LIFETIME
    who(authentication, OWN)
    assert len(statements) == 1


def test_a_member_sees_and_revokes_his_own_tokens_and_a_maintainer_all(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller
) -> None:
    accounts.create_project(operator, "red")
    ada = member(accounts, authentication, operator, "ada", red=AccessRole.SUBMITTER).act_in("red")
    bob = member(accounts, authentication, operator, "bob", red=AccessRole.MAINTAINER).act_in("red")
    hers, _ = accounts.issue(ada, NewToken(name="hers", role=AccessRole.VIEWER))
    his, _ = accounts.issue(bob, NewToken(name="his", role=AccessRole.VIEWER))
    assert [row.name for row in accounts.tokens(ada)] == ["hers"] and len(accounts.tokens(bob)) == 2
    with pytest.raises(UnknownToken):
        accounts.revoke(ada, his.id)
    with pytest.raises(UnknownToken):  # that of another project
        accounts.revoke(replace(bob, scope=operator.scope), hers.id)
    accounts.revoke(bob, hers.id)


def test_a_service_account_is_in_its_project_alone(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller
) -> None:
    accounts.create_project(operator, "red")
    accounts.create_service(who(authentication, OWN).act_in("red"), "nightly", AccessRole.VIEWER)
    for name in ("nightly", "red/nightly"):
        with pytest.raises(UnknownUser):
            accounts.put_member(operator, name, AccessRole.VIEWER)
        with pytest.raises(UnknownUser):
            accounts.drop_member(operator, name)
        with pytest.raises(UnknownUser):
            accounts.issue(operator, NewToken(name="ci", role=AccessRole.VIEWER), user=name)


def test_a_name_of_a_service_account_is_taken_by_what_its_own_project_has_alone(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller
) -> None:
    for project in ("red", "blue"):
        accounts.create_project(operator, project)
    red, blue = (who(authentication, OWN).act_in(project) for project in ("red", "blue"))
    member(accounts, authentication, operator, "ada", red=AccessRole.VIEWER)
    accounts.create_service(red, "nightly", AccessRole.SUBMITTER)
    for name in ("nightly", "ada"):  # of another project, and of a person whom this one does not know
        made = accounts.create_service(blue, name, AccessRole.VIEWER)
        assert (made.name, made.service) == (f"blue/{name}", "blue")
        with pytest.raises(NameTaken):
            accounts.create_service(red, name, AccessRole.VIEWER)
    accounts.drop_member(blue, "nightly")
    with pytest.raises(NameTaken):  # never used again
        accounts.create_service(blue, "nightly", AccessRole.VIEWER)
    assert [row.user for row in accounts.members(blue)] == ["blue/ada"]
    assert [row.user for row in accounts.members(red)] == ["ada", "red/nightly"]


@pytest.mark.parametrize("name", ["quotas", "tokens", "local"])
def test_no_service_account_has_a_name_that_is_a_part_of_an_address(
    accounts: Accounts, operator: Caller, name: str
) -> None:
    with pytest.raises(NameTaken, match="the platform's"):
        accounts.create_service(operator, name, AccessRole.VIEWER)


def test_a_service_account_of_an_earlier_version_keeps_its_name_and_goes_on(
    accounts: Accounts, authentication: UserAuthentication, database: Database, operator: Caller
) -> None:
    for project in ("red", "blue"):
        accounts.create_project(operator, project)
    red, blue = (who(authentication, OWN).act_in(project) for project in ("red", "blue"))
    values = {"state": "active", "service": "red", "created_by": "operator", "created_at": 1.0}
    database.write(lambda c: store.add_user(c, "nightly", values))
    accounts.put_member(red, "nightly", AccessRole.SUBMITTER)
    _, text = accounts.issue(red, NewToken(name="ci", role=AccessRole.SUBMITTER), user="nightly")
    assert who(authentication, text).act_in(None).name == "nightly"
    with pytest.raises(NameTaken):
        accounts.create_service(red, "nightly", AccessRole.VIEWER)
    with pytest.raises(UnknownUser):
        accounts.put_member(blue, "nightly", AccessRole.VIEWER)
    assert accounts.create_service(blue, "nightly", AccessRole.VIEWER).name == "blue/nightly"


def test_no_token_is_in_the_database(accounts: Accounts, database: Database, operator: Caller) -> None:
    _, issued = accounts.issue(operator, NewToken(name="ci", role=AccessRole.VIEWER))
    with database.read() as c:
        stored = str(c.execute(text("SELECT * FROM tokens")).all())
    assert OWN not in stored and issued not in stored and "ci" in stored


# -- what a review has found


def test_only_a_maintainer_makes_tokens_of_a_service_account(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller
) -> None:
    accounts.create_project(operator, "red")
    accounts.create_service(who(authentication, OWN).act_in("red"), "nightly", AccessRole.SUBMITTER)
    ada = member(accounts, authentication, operator, "ada", red=AccessRole.SUBMITTER).act_in("red")
    with pytest.raises(NotPermitted):
        accounts.issue(ada, NewToken(name="his", role=AccessRole.VIEWER), user="nightly")


def test_a_session_of_a_session_ends_with_the_token_too(
    accounts: Accounts, sessions: BrowserSessions, authentication: UserAuthentication, operator: Caller, times: Times
) -> None:
    row, text = accounts.issue(operator, NewToken(name="ci", role=AccessRole.VIEWER))
    first = sessions.begin(who(authentication, text))
    second = sessions.begin(who(authentication, first, session=True))
    accounts.revoke(operator, row.id)
    times.now += LIFETIME
    assert is_nobody(authentication, second, session=True)
    with pytest.raises(Unauthorized):  # by a process that has seen the token a moment ago
        sessions.begin(UserIdentity(user=FIRST_OPERATOR, credential=row.id))


def test_a_token_for_operating_alone_makes_no_operator(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller
) -> None:
    asked = NewToken(name="drains", verbs=[Verb.OPERATE])
    limited = who(authentication, accounts.issue_personal(operator, FIRST_OPERATOR, asked)[1]).act_in(None)
    assert limited.verbs == {Verb.OPERATE}
    with pytest.raises(NotPermitted):
        accounts.create_user(limited, "eve", operator=True)
    accounts.create_user(limited, "ada")


def test_a_limited_token_has_no_successors_and_sees_none(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller
) -> None:
    _, text = accounts.issue(operator, NewToken(name="leaked", role=AccessRole.VIEWER, expires_in=60.0))
    leaked = who(authentication, text).act_in(None)
    with pytest.raises(NotPermitted):
        accounts.issue(leaked, NewToken(name="longer", role=AccessRole.VIEWER))
    other, _ = accounts.issue(operator, NewToken(name="other", role=AccessRole.VIEWER))
    assert [row.name for row in accounts.tokens(leaked)] == ["leaked"]
    with pytest.raises(UnknownToken):
        accounts.revoke(leaked, other.id)
    with pytest.raises(NotPermitted):
        accounts.personal_tokens(leaked, FIRST_OPERATOR)
    accounts.revoke(leaked, leaked.credential)


def test_what_a_token_makes_ends_with_it_at_the_latest(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller
) -> None:
    _, text = accounts.issue_personal(operator, FIRST_OPERATOR, NewToken(name="a day", expires_in=86_400.0))
    for_a_day = who(authentication, text).act_in(None)
    made, _ = accounts.issue(for_a_day, NewToken(name="longer", role=AccessRole.VIEWER, expires_in=1e7))
    [parent] = [row for row in accounts.personal_tokens(operator, FIRST_OPERATOR) if row.name == "a day"]
    assert made.expires_at == parent.expires_at


def test_who_is_a_member_again_has_no_old_tokens(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller, times: Times
) -> None:
    accounts.create_project(operator, "red")
    in_red = who(authentication, OWN).act_in("red")
    ada = member(accounts, authentication, operator, "ada", red=AccessRole.VIEWER).act_in("red")
    _, text = accounts.issue(ada, NewToken(name="old", role=AccessRole.VIEWER))
    accounts.drop_member(in_red, "ada")
    accounts.put_member(in_red, "ada", AccessRole.VIEWER)
    times.now += LIFETIME
    assert is_nobody(authentication, text)


def test_a_maintainer_cannot_make_less_of_an_operator(
    accounts: Accounts, authentication: UserAuthentication, operator: Caller, times: Times
) -> None:
    accounts.create_project(operator, "red")
    ada = member(accounts, authentication, operator, "ada", red=AccessRole.MAINTAINER).act_in("red")
    accounts.put_member(ada, FIRST_OPERATOR, AccessRole.VIEWER)
    times.now += LIFETIME
    assert who(authentication, OWN).act_in("red").verbs == VERBS[AccessRole.OPERATOR]
