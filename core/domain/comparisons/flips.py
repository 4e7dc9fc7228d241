"""Flips of a comparison: scenarios that broke, which only the first model fails, and that were fixed.

A task fails if it is not `ok`, or if its outcome is one that the dataset counts as a failure. Played once, a scenario
flips if one side failed and the other did not; a model with noise also flips by chance, and McNemar's test
(Psychometrika 12, 1947) says whether more broke than were fixed. Played several times, it flips only if the share of
its failures rose, or fell, by more than chance explains (Fisher's exact test, one-sided, at 5 %). Each swept
combination of a scenario counts by itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from core.domain.comparisons.pair_verdicts import Pair
from core.domain.results.statistics import mcnemar

#: Level of the exact test of a scenario that was played several times.
LEVEL = 0.05
#: Flips of each direction that a comparison's document has; the others are in pages.
SHOWN = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Flip:
    """A scenario that flipped. ``pair``: that which shows it. ``failures``: of both sides, of ``played`` each.

    ``p``: of the exact test; None for a scenario that was played once. ``broke``: else it was fixed.
    """

    pair: Pair
    broke: bool
    failures: tuple[int, int]
    played: int
    p: float | None

    def document(self, simulations: tuple[str, str]) -> dict[str, object]:
        """Return the flip for clients; ``simulations``: of both sides."""
        pair, (simulation, to_simulation) = self.pair, simulations
        at = pair.ends[0 if self.broke else 1]
        replay = f"/compare/replay?left={simulation}.{pair.tasks[0]}&right={to_simulation}.{pair.tasks[1]}"
        return {
            "index": pair.index,
            "name": pair.name,
            "repeat": pair.repeat,
            "params": dict(pair.params),
            "outcome": pair.outcomes[0],
            "to_outcome": pair.outcomes[1],
            "simulation": simulation,
            "task": pair.tasks[0],
            "to_simulation": to_simulation,
            "to_task": pair.tasks[1],
            "at": at,
            "failures": self.failures[0],
            "to_failures": self.failures[1],
            "played": self.played,
            "p": self.p,
            "replay": replay if at is None else f"{replay}&at={at:g}",
        }


def flips_of(pairs: Sequence[Pair]) -> list[Flip]:
    """Return the flips among pairs of tasks, in the order in which their scenarios first occur."""
    cells: dict[tuple[int, str], list[Pair]] = {}
    for pair in pairs:
        cells.setdefault((pair.index, str(pair.params)), []).append(pair)
    flips = (_flip(cell) for cell in cells.values())
    return [flip for flip in flips if flip is not None]


def _flip(cell: Sequence[Pair]) -> Flip | None:
    first, second = (sum(pair.failed[side] for pair in cell) for side in (0, 1))
    if first == second:
        return None
    broke = first > second
    p = fisher(max(first, second), min(first, second), len(cell)) if len(cell) > 1 else None
    if p is not None and p > LEVEL:
        return None
    shown = next(pair for pair in cell if pair.failed == (broke, not broke))
    return Flip(pair=shown, broke=broke, failures=(first, second), played=len(cell), p=p)


def fisher(more: int, fewer: int, played: int) -> float:
    """Return the one-sided p-value of one side failing ``more`` often, of ``played``, and the other ``fewer``."""
    together = more + fewer
    ways = sum(math.comb(played, k) * math.comb(played, together - k) for k in range(more, min(played, together) + 1))
    return ways / math.comb(2 * played, together)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlipTally:
    """Flips of a comparison so far. ``broke`` and ``fixed``: the first of each, described for clients.

    ``counts``: of broke and fixed, all of them. ``played``: the most repetitions of a scenario. ``swept``: whether
    scenarios were played with several combinations of parameters, each of which flips by itself.
    """

    broke: Sequence[Mapping[str, object]] = ()
    fixed: Sequence[Mapping[str, object]] = ()
    counts: tuple[int, int] = (0, 0)
    played: int = 1
    swept: bool = False

    def extend(self, pairs: Sequence[Pair], simulations: tuple[str, str]) -> Self:
        """Return the tally with the pairs of further scenarios; ``simulations``: that played them."""
        flips = flips_of(pairs)
        broke = [flip.document(simulations) for flip in flips if flip.broke]
        fixed = [flip.document(simulations) for flip in flips if not flip.broke]
        cells = {(pair.index, str(pair.params)) for pair in pairs}
        return type(self)(
            broke=[*self.broke, *broke][:SHOWN],
            fixed=[*self.fixed, *fixed][:SHOWN],
            counts=(self.counts[0] + len(broke), self.counts[1] + len(fixed)),
            played=max([self.played, *(pair.repeat + 1 for pair in pairs)]),
            swept=self.swept or len(cells) > len({index for index, _ in cells}),
        )

    def document(self) -> dict[str, object]:
        """Return the flips for clients: the first of each direction, the counts, and what is to be thought of them."""
        broke, fixed = self.counts
        p = None if self.played > 1 or self.swept else mcnemar(broke, fixed)["p"]
        return {
            "broke": list(self.broke),
            "fixed": list(self.fixed),
            "counts": {"broke": broke, "fixed": fixed},
            "p": p,
            "sentence": self.sentence(p),
        }

    def sentence(self, p: float | None) -> str:
        """Return the flips in words; ``p``: of McNemar's test, None with repetitions and sweeps."""
        broke, fixed = self.counts
        what = "scenario" if broke == 1 else "scenarios"
        if self.swept:
            what = ("combination" if broke == 1 else "combinations") + " of scenario and parameters"
        words = f"{broke:,} {what} broke and {fixed:,} {'was' if fixed == 1 else 'were'} fixed"
        if self.played > 1 and fisher(self.played, 0, self.played) > LEVEL:
            return f"{words}: with {self.played} repetitions chance explains every difference; play more, or one."
        if not broke + fixed:
            return f"{words}."
        if self.played > 1:
            return f"{words}: each failed more, or less, often than chance explains in its repetitions (5 %)."
        noise = f" (McNemar's p {p:.2g})" if p is not None else ""
        return f"{words}. Each was played once, so that noise of the models is among them{noise}."
