"""Claims of a comparison about the mean difference d, and the decision that follows from those that hold.

With a margin m: *better* d > 0, *worse* d < 0, *not worse* d > -m, *equivalent* -m < d < m. They overlap: a small
improvement can be better and equivalent. The decision is the first that holds of equivalent, better, worse and not
worse. Without a margin only the first two can be shown.

Each claim rests on one-sided facts, d > 0, d < 0, d > -m and d < m, which are tested by themselves. A fact that was
shown stays shown: the error rate is that of all looks together.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum


class Design(StrEnum):
    """Subject of a comparison: what the mean difference is a mean of."""

    POPULATION = "population"  # all scenarios that there could be, of which those played are a sample, with their seeds
    LIST = "list"  # these scenarios, each with the difference that is expected over its seeds
    EXACT = "exact"  # these scenarios with these seeds: a number that is known once all were played


class Method(StrEnum):
    """How the facts are tested."""

    JOINED = "joined"  # the any-time sequence, and looks at the batches whose p-values know the range
    ANYTIME = "anytime"  # the any-time sequence alone, with the whole error rate
    NORMAL = "normal"  # looks at the batches by a t-test, which estimates the variance


def method_of(design: Design, requested: Method | None) -> Method:
    """Return the method of a design; raise ValueError for one that cannot be used with it."""
    if design is not Design.EXACT:
        return requested or Method.JOINED
    if requested not in (None, Method.ANYTIME):
        raise ValueError(f"`method`: the design `exact` has no sample to test; leave out `{requested}`.")
    return Method.ANYTIME


class Fact(StrEnum):
    """A one-sided statement about the mean difference."""

    ABOVE_ZERO = "above_zero"
    BELOW_ZERO = "below_zero"
    ABOVE_MINUS_MARGIN = "above_minus_margin"
    BELOW_MARGIN = "below_margin"


class Claim(StrEnum):
    """A claim, in the order of precedence."""

    EQUIVALENT = "equivalent"
    BETTER = "better"
    WORSE = "worse"
    NOT_WORSE = "not_worse"


class Decision(StrEnum):
    """The first claim that holds, if any."""

    EQUIVALENT = "equivalent"
    BETTER = "better"
    WORSE = "worse"
    NOT_WORSE = "not_worse"
    UNDECIDED = "undecided"


#: Facts of which any shows a claim, in sets that are needed together. What is better is not worse, whatever the margin.
RESTS_ON: Mapping[Claim, Collection[Collection[Fact]]] = {
    Claim.EQUIVALENT: ((Fact.ABOVE_MINUS_MARGIN, Fact.BELOW_MARGIN),),
    Claim.BETTER: ((Fact.ABOVE_ZERO,),),
    Claim.WORSE: ((Fact.BELOW_ZERO,),),
    Claim.NOT_WORSE: ((Fact.ABOVE_MINUS_MARGIN,), (Fact.ABOVE_ZERO,)),
}
#: Decisions at which a comparison ends, unless its request names the claim until which it goes on.
ENDS = frozenset({Decision.EQUIVALENT, Decision.BETTER, Decision.WORSE})


def claims_of(facts: Collection[Fact]) -> dict[Claim, bool]:
    """Return which claims the facts show."""
    return {claim: any(set(needed) <= set(facts) for needed in RESTS_ON[claim]) for claim in Claim}


def decision_of(claims: Mapping[Claim, bool]) -> Decision:
    """Return the first claim that holds."""
    return next((Decision(claim.value) for claim in Claim if claims[claim]), Decision.UNDECIDED)


def refuted_claims(facts: Collection[Fact], low: float, high: float, margin: float) -> dict[Claim, bool]:
    """Return which claims are shown to be false; ``low`` and ``high``: of the interval, in the unit of ``margin``.

    A model that is worse by less than the margin refutes neither that it is not worse, nor that it is equivalent.
    """
    too_low, too_high = high < -margin, low > margin
    return {
        Claim.EQUIVALENT: margin > 0 and (too_low or too_high),
        Claim.BETTER: Fact.BELOW_ZERO in facts,
        Claim.WORSE: Fact.ABOVE_ZERO in facts,
        Claim.NOT_WORSE: too_low if margin > 0 else Fact.BELOW_ZERO in facts,
    }


def is_over(
    decision: Decision, claims: Mapping[Claim, bool], refuted: Mapping[Claim, bool], until: Claim | None
) -> bool:
    """Return whether a comparison ends; ``until``: the claim that its request asks for, shown or refuted."""
    return decision in ENDS if until is None else claims[until] or refuted[until]
