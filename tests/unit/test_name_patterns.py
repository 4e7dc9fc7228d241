"""Name patterns: anchored, case-sensitive, with two characters that stand for others; and what they limit."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.schemas.accounts import TokenScopeSchema
from common.errors import NotPermitted
from core.domain.access.identities import Grant, ProjectMembership, UserIdentity
from core.domain.access.name_patterns import ALL_NAMES, LONGEST_PATTERN, NamePatterns
from core.domain.access.roles import AccessRole, Verb
from core.domain.access.shared_kinds import SharedKind

NAMES = st.text("abAB-._", min_size=1, max_size=8)
GLOBS = st.text("abAB*?-.", min_size=1, max_size=8)


def matches(pattern: str, name: str, *versions: str) -> bool:
    try:
        NamePatterns(models=(pattern,)).require(SharedKind.MODELS, name, versions)
    except NotPermitted:
        return False
    return True


@given(GLOBS, NAMES)
def test_a_glob_is_what_its_two_characters_say(glob: str, name: str) -> None:
    words = {"*": ".*", "?": "."}
    expression = "".join(words.get(char, re.escape(char)) for char in glob)
    assert matches(glob, name) == (re.fullmatch(expression, name) is not None)


@pytest.mark.parametrize(
    ("pattern", "name", "versions", "allowed"),
    [
        ("brake*", "brake-2", ("3",), True),
        ("brake*", "team-a/brake", ("3",), False),
        ("team-a/brake*", "team-a/brake", ("3",), True),
        ("brake", "brakes", (), False),
        ("Brake", "brake", (), False),
        ("brake@gold", "brake", ("3", "gold"), True),
        ("brake@gold", "brake", ("3", "silver"), False),
        ("brake@gold", "brake", (), False),
        ("brake@3", "brake", ("33",), False),
        ("brake@*", "brake", (), True),
    ],
)
def test_names_and_versions_are_matched_whole(
    pattern: str, name: str, versions: tuple[str, ...], allowed: bool
) -> None:
    assert matches(pattern, name, *versions) is allowed


def test_one_kind_does_not_limit_the_other() -> None:
    patterns = NamePatterns(models=("brake",))
    patterns.require(SharedKind.DATASETS, "anything")
    patterns.require(SharedKind.SIMULATIONS, "anything")
    assert not ALL_NAMES and patterns and NamePatterns(datasets=())


@given(st.none() | st.lists(GLOBS, max_size=5).map(tuple), st.none() | st.lists(GLOBS, max_size=5).map(tuple))
def test_what_is_stored_is_what_was_given(models: tuple[str, ...] | None, datasets: tuple[str, ...] | None) -> None:
    patterns = NamePatterns(models, datasets)
    assert NamePatterns.of_text(patterns.text) == patterns


def test_a_hostile_pattern_is_matched_at_once() -> None:
    assert not matches("*a" * (LONGEST_PATTERN // 2), "a" * 99 + "b")


@pytest.mark.parametrize("pattern", ["", "a@", "@a", "a@b@c", "[ab]", "a b", "a\n", "ä", "x" * (LONGEST_PATTERN + 1)])
def test_a_pattern_has_characters_of_names_alone(pattern: str) -> None:
    assert TokenScopeSchema().validate({"models": [pattern]})
    assert not TokenScopeSchema().validate({"models": ["brake*", "team-a/brake@gold"], "datasets": ["streets@*"]})


def test_a_token_with_patterns_administers_nothing() -> None:
    member = {"red": ProjectMembership(AccessRole.MAINTAINER)}
    whole = UserIdentity("ada", operator=True, memberships=member).act_in("red")
    limited = UserIdentity(
        "ada", operator=True, memberships=member, grant=Grant(patterns=NamePatterns(models=("brake",)))
    ).act_in("red")
    assert whole.verbs - limited.verbs == {Verb.ADMINISTER, Verb.OPERATE} and limited.limited
