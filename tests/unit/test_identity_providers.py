"""Identity providers: what groups give, which names people get, and files of providers that are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.access.identities import MEMBERS, NAME
from core.domain.access.identity_providers import (
    GroupRights,
    IdentityProvider,
    candidate_names,
    groups_of,
    is_admitted,
    parse,
    rights_of,
)
from core.domain.access.roles import AccessRole

GROUPS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(GroupRights, st.dictionaries(st.sampled_from(["red", "blue"]), st.sampled_from(MEMBERS)), st.booleans()),
)
ONE = {"name": "company", "issuer": "https://id.example.com", "client_id": "windtunnel", "client_secret": "s"}


def provider(groups: dict[str, GroupRights], *, admits_all: bool = False) -> IdentityProvider:
    return IdentityProvider("company", "https://id.example.com", "windtunnel", groups=groups, admits_all=admits_all)


@given(GROUPS, st.sets(st.sampled_from("abcdefgh")))
def test_groups_give_the_highest_role_of_each_project_and_nothing_else(
    groups: dict[str, GroupRights], of_him: set[str]
) -> None:
    rights = rights_of(provider(groups), of_him)
    given_roles = [
        (project, role) for name in of_him & groups.keys() for project, role in groups[name].projects.items()
    ]
    assert set(rights.projects) == {project for project, _ in given_roles}
    for project, role in rights.projects.items():
        assert MEMBERS.index(role) == max(MEMBERS.index(one) for name, one in given_roles if name == project)
    assert rights.operator == any(groups[name].operator for name in of_him & groups.keys())
    assert is_admitted(provider(groups), of_him) == bool(of_him & groups.keys())


@given(st.lists(st.text(max_size=60), max_size=3))
def test_candidate_names_are_names_and_differ(names: list[str]) -> None:
    candidates = [name for name, _ in zip(candidate_names(names), range(20), strict=False)]
    assert all(NAME.fullmatch(name) for name in candidates) and len(set(candidates)) == len(candidates) == 20


@pytest.mark.parametrize(
    ("claimed", "name"),
    [
        (["Ada.Lovelace"], "ada-lovelace"),
        (["José Ñandú"], "jose-nandu"),
        (["", "ada"], "ada"),
        (["日本"], "user"),
        (["a" * 60], "a" * 40),
        (["--x--"], "x"),
    ],
)
def test_a_name_is_made_a_label(claimed: list[str], name: str) -> None:
    assert next(candidate_names(claimed)) == name


@pytest.mark.parametrize(
    ("claim", "groups"), [("one", {"one"}), (["a", 1, "b"], {"a", "b"}), (None, set()), ({"a": 1}, set()), (7, set())]
)
def test_a_claim_of_groups_is_names_or_nothing(claim: object, groups: set[str]) -> None:
    assert groups_of(claim) == groups


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"issuer": "http://id.example.com"}, "https"),
        ({"issuer": "id.example.com"}, "https"),
        ({"client_secret": ""}, "client_secret"),
        ({"client_secret_file": "/x"}, "client_secret"),
        ({"scopes": ["profile"]}, "openid"),
        ({"name": "The Company"}, "name"),
        ({"groups": {"g": {"projects": {"red": "operator"}}}}, "operator"),
        ({"groups": {"g": {"project": {}}}}, "unknown field"),
        ({"admits": True}, "unknown field"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_the_reason(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(json.dumps({"providers": [ONE | change]}))


def test_two_providers_of_a_name_are_refused_and_one_on_this_machine_may_have_http() -> None:
    with pytest.raises(ValueError, match="same name"):
        parse(json.dumps({"providers": [ONE, ONE]}))
    local = parse(json.dumps({"providers": [ONE | {"issuer": "http://localhost:8080/realms/x"}]}))["company"]
    assert local.shown == "company" and AccessRole.VIEWER in MEMBERS
