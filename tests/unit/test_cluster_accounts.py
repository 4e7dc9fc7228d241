"""Cluster accounts: what the operator's list gives them, and entries that are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.domain.access.cluster_accounts import ClusterAccount, ClusterGrant, identity_of, parse
from core.domain.access.identities import MEMBERS
from core.domain.access.roles import AccessRole, Verb

NAMES = st.sampled_from(["a", "b"])
GRANTS = st.lists(
    st.builds(
        ClusterGrant, NAMES, st.sampled_from(["", "a", "b"]), st.sampled_from(["red", "blue"]), st.sampled_from(MEMBERS)
    )
)


@given(
    st.builds(ClusterAccount, NAMES, NAMES), GRANTS, st.dictionaries(st.sampled_from(["red", "blue"]), st.booleans())
)
def test_an_account_has_the_highest_of_its_roles_in_projects_that_there_are(
    account: ClusterAccount, grants: list[ClusterGrant], projects: dict[str, bool]
) -> None:
    identity = identity_of(account, grants, projects)
    his = [one for one in grants if one.namespace == account.namespace and one.account in ("", account.name)]
    expected = {one.project for one in his} & projects.keys()
    assert (identity is None) == (not expected)
    for project in expected:
        assert identity is not None
        membership = identity.projects[project]
        best = max((one.role for one in his if one.project == project), key=MEMBERS.index)
        assert (membership.role, membership.closed) == (best, projects[project])
        assert Verb.OPERATE not in identity.act_in(project).verbs and not identity.operator


def test_entries_are_a_namespace_or_an_account_a_project_and_a_role() -> None:
    assert parse(["team-a=red:submitter", "ci/gate.v2=blue:viewer"]) == (
        ClusterGrant("team-a", "", "red", AccessRole.SUBMITTER),
        ClusterGrant("ci", "gate.v2", "blue", AccessRole.VIEWER),
    )


@pytest.mark.parametrize(
    "text",
    ["", "team-a", "team-a=red", "team-a=red:operator", "=red:viewer", "a/=red:viewer", "a=Red:viewer", "a=:viewer"],
)
def test_other_entries_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NAMESPACE=PROJECT:ROLE"):
        parse([text])


def test_the_name_of_an_account_is_that_of_no_user() -> None:
    assert ClusterAccount("team-a", "ci").user == "system:serviceaccount:team-a:ci"
