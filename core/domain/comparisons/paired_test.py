"""Test of paired differences between two models: the facts that were shown, and the interval, look by look.

By default two tests are joined. An any-time sequence of bets (`one_sided_bets.py`) has a fifth of the
error rate: it alone can decide after few pairs. The looks at the batches (`alpha_spending.py`) have the
rest: they have nearly the power of a test of a fixed number of pairs. Their p-values know the range of the differences
(`results/bounded_mean.py`) and estimate no variance, because a sample that never saw a crash has a small one. A
fact is shown if either test shows it, so that both together keep the error rate.

The last look at a list whose scenarios were each repeated has the two-stage variance: all scenarios were played, and
only the seeds within them were drawn (Cochran, Sampling Techniques, 1977, chapter 10).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Self

import numpy as np

from core.domain.comparisons.alpha_spending import look_levels, looks_of
from core.domain.comparisons.claims import (
    RESTS_ON,
    Claim,
    Decision,
    Design,
    Fact,
    Method,
    claims_of,
    decision_of,
    refuted_claims,
)
from core.domain.comparisons.confidence_sequence import ConfidenceSequence, Plan
from core.domain.comparisons.difference_cells import HALF, NOTHING, DifferenceCells, Floats
from core.domain.comparisons.one_sided_bets import ROUNDING, OneSidedBets, standing_bound
from core.domain.comparisons.scenario_differences import ScenarioDifferences
from core.domain.results import student_t
from core.domain.results.bounded_mean import lower_bound, lower_p_value

#: Share of the error rate that the any-time sequence has beside the looks.
ANYTIME_SHARE = 0.2
#: Differences that each fact is tested with (`ScenarioDifferences`), and the sign with which they enter its test.
TESTED_WITH: Mapping[Fact, tuple[str, int]] = {
    Fact.ABOVE_ZERO: ("neutral", 1),
    Fact.BELOW_ZERO: ("neutral", -1),
    Fact.ABOVE_MINUS_MARGIN: ("lowest", 1),
    Fact.BELOW_MARGIN: ("highest", -1),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TestPlan:
    """What is fixed before the first pair. ``bound`` and ``margin``: in the metric's unit, the margin below the bound.

    ``scenarios``: how many there are. ``standing``: the pairs are those that two simulations have, in no order; there
    is one look, once both have ended (``ended``), and the any-time evidence is that of the whole sample, which may be
    read again and again while results arrive.
    """

    __test__ = False  # not a test of pytest

    bound: float
    scenarios: int
    design: Design = Design.POPULATION
    method: Method = Method.JOINED
    error_rate: float = 0.05
    margin: float = 0.0
    standing: bool = False
    ended: bool = True

    @property
    def share(self) -> float:
        """Return the margin as a share of the bound."""
        return self.margin / self.bound

    @property
    def pairs(self) -> int | None:
        """Return the length of the list whose mean is meant, None for a mean that stays unknown.

        A list without a scenario decides as little as one with a scenario that has not been played.
        """
        return max(1, self.scenarios) if self.design is Design.EXACT else None

    @property
    def anytime_rate(self) -> float:
        """Return the error rate of the any-time sequence, both sides together; 0 if it does not decide."""
        if self.design is Design.EXACT or self.method is Method.ANYTIME:
            return self.error_rate
        return ANYTIME_SHARE * self.error_rate if self.method is Method.JOINED else 0.0

    @property
    def look_rate(self) -> float:
        """Return the error rate of all looks, both sides together; 0 if there are none."""
        if self.design is Design.EXACT or self.method is Method.ANYTIME:
            return 0.0
        return self.error_rate - self.anytime_rate

    def level_at(self, count: int) -> float:
        """Return the one-sided level of the look after ``count`` pairs; 0 if it cannot decide."""
        if self.standing:
            return self.look_rate / 2 if self.ended and count == self.scenarios else 0.0
        looks = looks_of(self.scenarios)
        if not self.look_rate or count not in looks:
            return 0.0
        return look_levels(looks, self.look_rate / 2)[looks.index(count)]

    @property
    def last_level(self) -> float:
        """Return the one-sided level of the last look, which hardly depends on the number of scenarios."""
        return self.look_rate / 2 if self.standing else look_levels(looks_of(self.scenarios), self.look_rate / 2)[-1]

    def nulls(self) -> dict[Fact, float]:
        """Return the mean that each fact refutes, as a share of the bound, in the direction of its side."""
        margin = {Fact.ABOVE_MINUS_MARGIN: -self.share, Fact.BELOW_MARGIN: -self.share} if self.margin > 0 else {}
        return {Fact.ABOVE_ZERO: 0.0, Fact.BELOW_ZERO: 0.0} | margin


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """When a fact was shown. ``test``: `anytime`, `looks`, or `certain` for a list whose mean is known."""

    count: int
    test: str


#: Differences of each end of the interval, by the sign of its direction.
_WORST: Mapping[int, str] = {1: "lowest", -1: "highest"}
_count = attrgetter("count")


@dataclass(frozen=True, kw_only=True)
class PairedTest:
    """State after ``count`` scenarios. ``sequence`` has the interval of the any-time test, the mean and the deviation.

    ``bets``: evidence for each fact. ``neutral``, ``lowest`` and ``highest``: the differences (`ScenarioDifferences`).
    ``within``: sum of the variances of the scenarios' differences over their seeds, in squared shares of the bound;
    ``repeated``: whether each was played at least twice. ``p_values``: of the last look, against not better and not
    worse.
    """

    plan: TestPlan
    sequence: ConfidenceSequence
    bets: Mapping[Fact, OneSidedBets]
    neutral: DifferenceCells = NOTHING
    lowest: DifferenceCells = NOTHING
    highest: DifferenceCells = NOTHING
    within: float = 0.0
    repeated: bool = True
    p_values: tuple[float, float] = (1.0, 1.0)
    shown: Mapping[Fact, Shown] = field(default_factory=dict)

    @classmethod
    def begin(cls, plan: TestPlan, resolution: int = 50) -> Self:
        """Return the state before the first pair; ``resolution``: of the grid of the any-time interval."""
        rate = plan.anytime_rate or plan.error_rate
        threshold = math.log(2 / rate)
        return cls(
            plan=plan,
            sequence=ConfidenceSequence(
                plan=Plan(bound=plan.bound, pairs=plan.pairs, error_rate=rate, resolution=resolution)
            ),
            bets={
                fact: OneSidedBets(null=null, threshold=threshold, pairs=plan.pairs)
                for fact, null in plan.nulls().items()
            },
        )

    def extend(self, differences: ScenarioDifferences) -> Self:
        """Return the state after further scenarios, in the order of play. A fact that was shown stays shown."""
        bound = self.plan.bound
        streams = {
            name: np.clip(getattr(differences, name) / bound, -1.0, 1.0) for name in ("neutral", "lowest", "highest")
        }
        bets = {}
        for fact, bet in self.bets.items():
            stream, sign = TESTED_WITH[fact]
            bets[fact] = bet.extend(sign * streams[stream])
        state = replace(
            self,
            sequence=self.sequence.extend(differences.neutral),
            bets=bets,
            within=self.within + float((differences.within / bound / bound).sum()),
            repeated=self.repeated and differences.repeated,
            neutral=self.neutral.extend(streams["neutral"]),
            lowest=self.lowest.extend(streams["lowest"]),
            highest=self.highest.extend(streams["highest"]),
        )
        if self.plan.anytime_rate:
            state = state._bet()
        if (level := self.plan.level_at(state.count)) > 0:
            state = state._looked(level)
        return state._certain() if state.known else state

    def _bet(self) -> Self:
        """Return the state with the facts that the any-time sequence shows."""
        if self.plan.standing and self.plan.design is Design.EXACT:  # its mean is known at its end, and not before
            return self
        shown = dict(self.shown)
        for fact, bet in self.bets.items():
            at = bet.shown_at
            if self.plan.standing:  # in no order, the most that the evidence has been means nothing
                at = self.count if self.count and bet.log_evidence >= bet.threshold else None
            if at is not None and fact not in shown:
                shown[fact] = Shown(count=at, test="anytime")
        return replace(self, shown=shown)

    def _looked(self, level: float) -> Self:
        """Return the state after a look of this one-sided level."""
        shown = dict(self.shown)
        p_values = {}
        for fact, null in self.plan.nulls().items():
            p_values[fact] = self._p_value(*TESTED_WITH[fact], null)
            if p_values[fact] <= level and fact not in shown:
                shown[fact] = Shown(count=self.count, test="looks")
        return replace(self, shown=shown, p_values=(p_values[Fact.ABOVE_ZERO], p_values[Fact.BELOW_ZERO]))

    def _certain(self) -> Self:
        """Return the state at the end of an exact list, whose mean is known; one equal to the margin is within it."""
        size, rounding = self.plan.scenarios, ROUNDING * self.plan.scenarios
        known = {Fact.ABOVE_ZERO: self.sequence.sign > 0, Fact.BELOW_ZERO: self.sequence.sign < 0}
        for fact in (Fact.ABOVE_MINUS_MARGIN, Fact.BELOW_MARGIN):
            if fact in self.bets:
                known[fact] = self.bets[fact].total >= size * self.bets[fact].null - rounding
        shown = dict(self.shown)
        for fact, holds in known.items():
            if holds and fact not in shown:
                shown[fact] = Shown(count=self.count, test="certain")
        return replace(self, shown=shown)

    def _sample(self, stream: str, sign: int) -> tuple[Floats, Floats]:
        cells: DifferenceCells = getattr(self, stream)
        values, counts = cells.sample()
        return sign * values, counts

    def _p_value(self, stream: str, sign: int, null: float) -> float:
        """Return the p-value of the look against a mean of at most ``null``, in the direction of ``sign``."""
        values, counts = self._sample(stream, sign)
        if (error := self._standard_error(values, counts)) is not None:
            mean = float(counts @ values) / self.count
            return student_t.upper_tail((mean - null) / error, self._degrees)
        return lower_p_value(values, null + HALF, -1.0, counts)

    def _bound(self, sign: int, level: float) -> float:
        """Return the lower end of the interval of the look, in the direction of ``sign``."""
        values, counts = self._sample(_WORST[sign], sign)
        if (error := self._standard_error(values, counts)) is not None:
            mean = float(counts @ values) / self.count
            return max(-1.0, mean - student_t.quantile(level, self._degrees) * error)
        return max(-1.0, lower_bound(values, -1.0, level, counts) - HALF)

    def _standard_error(self, values: Floats, counts: Floats) -> float | None:
        """Return the standard error of the mean, where a variance is estimated; None where the range is used.

        Differences without any variance say nothing about one: the range is used for them.
        """
        plan, count = self.plan, self.count
        two_stage = plan.design is Design.LIST and self.repeated
        if count < 2 or not (plan.method is Method.NORMAL or (two_stage and self.complete)):
            return None
        mean = float(counts @ values) / count
        between = float(counts @ (values - mean) ** 2) / (count - 1)
        variance = between / count
        if two_stage:
            played = count / plan.scenarios
            variance = (1 - played) * between / count + played * self.within / count**2
        return math.sqrt(variance) if variance > 0 else None

    @property
    def _degrees(self) -> int:
        return self.count - 1 if not (self.complete and self.plan.design is Design.LIST) else self.count

    @property
    def count(self) -> int:
        """Return the number of scenarios so far."""
        return self.sequence.count

    @property
    def complete(self) -> bool:
        """Return whether all scenarios were played."""
        return self.count == self.plan.scenarios

    @property
    def known(self) -> bool:
        """Return whether the mean is known: that of an exact list which was played to its end; nothing has no mean."""
        return self.count > 0 and self.complete and self.plan.design is Design.EXACT and self.plan.ended

    @property
    def mean(self) -> float:
        """Return the mean difference, in the metric's unit; 0 without pairs."""
        return self.sequence.mean

    @property
    def std(self) -> float:
        """Return the standard deviation of the scenarios' differences, in the metric's unit."""
        return self.sequence.std

    @property
    def facts(self) -> frozenset[Fact]:
        """Return the facts that were shown."""
        return frozenset(self.shown)

    @property
    def claims(self) -> dict[Claim, bool]:
        """Return which claims hold."""
        return claims_of(self.facts)

    @property
    def refuted(self) -> dict[Claim, bool]:
        """Return which claims are shown to be false."""
        refuted = refuted_claims(self.facts, *self.interval, self.plan.margin)
        if self.known:  # so is that it is not better, or not worse
            refuted |= {claim: not self.claims[claim] for claim in (Claim.BETTER, Claim.WORSE)}
        return refuted

    @property
    def decision(self) -> Decision:
        """Return the first claim that holds."""
        return decision_of(self.claims)

    @property
    def decisive(self) -> Shown | None:
        """Return when the decision was shown, and by which test; None without one."""
        if self.decision is Decision.UNDECIDED:
            return None
        proofs = [needed for needed in RESTS_ON[Claim(self.decision.value)] if self.facts.issuperset(needed)]
        completed = [max((self.shown[fact] for fact in needed), key=_count) for needed in proofs]
        return min(completed, key=_count)

    @property
    def deciding_p_values(self) -> tuple[float, float] | None:
        """Return the p-values against not better and not worse of the test that decided; None without a decision."""
        if (decisive := self.decisive) is None:
            return None
        if decisive.test == "looks":
            return self.p_values
        better, worse = (self._anytime_p_value(fact) for fact in (Fact.ABOVE_ZERO, Fact.BELOW_ZERO))
        return better, worse

    def _anytime_p_value(self, fact: Fact) -> float:
        bet = self.bets[fact]
        if (self.known and fact in self.shown) or bet.log_evidence == math.inf:
            return 0.0
        return min(1.0, math.exp(-(bet.log_evidence if self.plan.standing else bet.peak)))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The interval of the mean difference, in the metric's unit: of both tests, and of the facts shown.

        A pair without a result counts as the worst difference at the lower end, and as the best at the upper one. That
        of the looks is the repeated interval of Jennison and Turnbull (J. R. Stat. Soc. B 51, 1989).
        """
        bound, margin = self.plan.bound, self.plan.share
        if self.known:
            return self._known_interval()
        lows, highs = [-1.0], [1.0]
        if (level := self.plan.level_at(self.count)) > 0:
            lows, highs = [self._bound(1, level)], [-self._bound(-1, level)]
        if self.plan.anytime_rate:
            low, high = self._anytime_interval()
            lows, highs = [*lows, low], [*highs, high]
        for fact, end in ((Fact.ABOVE_ZERO, 0.0), (Fact.ABOVE_MINUS_MARGIN, -margin)):
            lows += [end] * (fact in self.shown)
        for fact, end in ((Fact.BELOW_ZERO, 0.0), (Fact.BELOW_MARGIN, margin)):
            highs += [end] * (fact in self.shown)
        low, high = sorted((bound * max(lows), bound * min(highs)))
        return low, high

    def _anytime_interval(self) -> tuple[float, float]:
        """Return the interval of the any-time test, as shares of the bound."""
        if self.plan.design is Design.EXACT:
            below, above = (share * self.count / max(1, self.plan.scenarios) for share in self.unknown_shares)
            low, high = (-1.0, 1.0) if self.plan.standing else (self.sequence.low, self.sequence.high)
            return max(-1.0, low - below), min(1.0, high + above)
        if not self.plan.standing and self.lowest == self.highest:
            return self.sequence.low, self.sequence.high
        threshold = self.sequence.plan.log_threshold
        low, high = (standing_bound(*self._sample(_WORST[sign], sign), threshold) - HALF for sign in (1, -1))
        return max(-1.0, low), min(1.0, -high)

    @property
    def unknown_shares(self) -> tuple[float, float]:
        """Return by how much the mean may be lower and higher, as shares of the bound: pairs without a result."""
        lowest, neutral, highest = (cells.mean for cells in (self.lowest, self.neutral, self.highest))
        return neutral - lowest, highest - neutral

    def _known_interval(self) -> tuple[float, float]:
        """Return the mean of an exact list twice, or, with unknown pairs and a margin, between which it lies."""
        size, bound = self.plan.scenarios, self.plan.bound
        if Fact.BELOW_MARGIN not in self.bets:
            return self.mean, self.mean
        lowest, highest = self.bets[Fact.ABOVE_MINUS_MARGIN].total, -self.bets[Fact.BELOW_MARGIN].total
        return min(self.mean, bound * lowest / size), max(self.mean, bound * highest / size)
