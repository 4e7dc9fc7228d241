"""Retention as a pure decision: what rules take of any things, by properties that hold for all of them."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import Invalid
from core.domain.retention.retention_rules import (
    BinnedKind,
    Protection,
    RetainedThing,
    RetentionDecision,
    RetentionRule,
    RetentionVerdict,
    check_rules,
    matches,
    selects,
)
from core.domain.scheduling.states import FINAL, State

NOW = 1_000_000.0
ages = st.none() | st.integers(0, 1000)
labels = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]))
rules = st.builds(
    RetentionRule,
    kind=st.just(BinnedKind.SIMULATIONS),
    older_than=ages,
    keep_last=st.none() | st.integers(1, 4),
    labels=labels,
    states=st.lists(st.sampled_from(sorted(FINAL)), max_size=2).map(tuple),
)
model_rules = st.builds(
    RetentionRule,
    kind=st.sampled_from([BinnedKind.MODELS, BinnedKind.DATASETS]),
    unused_for=ages,
    keep_last=st.none() | st.integers(1, 4),
    name=st.none() | st.sampled_from(["x", "y"]),
)
things = st.builds(
    RetainedThing,
    id=st.uuids().map(str),
    kind=st.sampled_from(sorted(BinnedKind)),
    name=st.sampled_from(["x", "y"]),
    bytes=st.integers(0, 9),
    since=st.integers(0, 1000).map(lambda age: NOW - age),
    used=st.integers(0, 1000).map(lambda age: NOW - age),
    labels=labels,
    state=st.sampled_from(sorted(FINAL)),
    protections=st.frozensets(st.sampled_from(sorted(Protection)), max_size=1),
)
many = st.lists(things, max_size=30)
some_rules = st.lists(rules | model_rules, max_size=4)


def verdicts(rules: Sequence[RetentionRule], things: Sequence[RetainedThing]) -> list[RetentionVerdict]:
    decision = RetentionDecision(rules, NOW)
    return [decision.of(thing) for thing in things]


@given(some_rules, many)
def test_what_is_taken_meets_all_conditions_of_its_rule_and_has_no_protection(
    rules: list[RetentionRule], things: list[RetainedThing]
) -> None:
    for verdict in verdicts(rules, things):
        if verdict.taken:
            assert verdict.rule is not None and not verdict.thing.protections
            assert matches(verdict.rule, verdict.thing, NOW) and verdict.thing.kind is verdict.rule.kind
        assert verdict.rule is None or verdict.rule in rules


@given(rules, many)
def test_the_newest_that_a_rule_selects_stay(rule: RetentionRule, things: list[RetainedThing]) -> None:
    selected = [verdict for verdict in verdicts([rule], things) if selects(rule, verdict.thing)]
    assert not any(verdict.taken for verdict in selected[: rule.keep_last or 0])


@given(model_rules, many)
def test_of_models_the_newest_of_each_name_stay(rule: RetentionRule, things: list[RetainedThing]) -> None:
    for name in ("x", "y"):
        of_name = [v for v in verdicts([rule], things) if selects(rule, v.thing) and v.thing.name == name]
        assert not any(verdict.taken for verdict in of_name[: rule.keep_last or 0])


@given(some_rules, many)
def test_what_several_rules_take_is_what_each_takes_alone(
    rules: list[RetentionRule], things: list[RetainedThing]
) -> None:
    together = [verdict.taken for verdict in verdicts(rules, things)]
    alone = [[verdict.taken for verdict in verdicts([rule], things)] for rule in rules]
    assert together == [any(taken) for taken in zip(*alone, strict=True)] or (not rules and not any(together))


@given(some_rules, many)
def test_what_was_left_is_left_again(rules: list[RetentionRule], things: list[RetainedThing]) -> None:
    left = [verdict.thing for verdict in verdicts(rules, things) if not verdict.taken]
    assert not any(verdict.taken for verdict in verdicts(rules, left))


def test_a_rule_in_words_names_its_conditions() -> None:
    rule = RetentionRule(
        kind=BinnedKind.SIMULATIONS, older_than=86_400 * 30, keep_last=5, labels={"a": "1"}, states=(State.FAILED,)
    )
    assert rule.in_words() == "simulations: a=1, failed, older than 30d, all but the last 5"
    rule = RetentionRule(kind=BinnedKind.MODELS, unused_for=5, name="x")
    assert rule.in_words() == "models: named x, unused for 5s"


def test_a_rule_without_an_end_is_refused() -> None:
    with pytest.raises(Invalid, match="Rule 2"):
        check_rules([RetentionRule(kind=BinnedKind.MODELS, keep_last=1), RetentionRule(kind=BinnedKind.MODELS)])
