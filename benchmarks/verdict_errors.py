"""Errors of verdicts: how often the test of a comparison is wrong, covers, and decides, over a grid of hard cases.

`python -m benchmarks.verdict_errors` prints the table of docs/explanation/verdict-errors.md. Each cell is a
distribution of paired differences, as shares of the bound, that is shifted to a true mean: 0, and plus and minus the
margin. At each, the share of comparisons that show something false is at most half the error rate a side: *better* at
0, *not worse* at minus the margin, *equivalent* at either. The hard cells are differences whose variance a sample does
not show: a small gain with a rare loss, or losses only.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from core.domain.comparisons.alpha_spending import looks_of
from core.domain.comparisons.claims import Claim, Design, Method
from core.domain.comparisons.paired_test import PairedTest, TestPlan
from core.domain.comparisons.scenario_differences import ScenarioDifferences

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]

#: Numbers of scenarios, margin and error rate.
SIZES, MARGIN, ERROR_RATE = (12, 48, 288, 2000), 0.02, 0.05
#: Most pairs of a repetition times repetitions: large comparisons are repeated less often.
WORK = 400_000


@dataclass(frozen=True, slots=True)
class Cell:
    """A distribution of differences with mean 0, from -1 to 1 also when it is shifted by the margin.

    ``unknown``: share of scenarios without a result on a side. ``noise``: deviation of a repetition within a scenario,
    of two, in a list of scenarios whose expected differences are drawn and have exactly the true mean; 0 for a sample.
    """

    name: str
    draw: Draw
    unknown: float = 0.0
    noise: float = 0.0

    @property
    def design(self) -> Design:
        """Return what the cell's verdict is about."""
        return Design.LIST if self.noise else Design.POPULATION

    def sample(self, generator: np.random.Generator, size: int, mean: float) -> ScenarioDifferences:
        """Return the differences of a comparison of this many scenarios whose true mean is ``mean``."""
        expected = self.draw(generator, size)
        within = np.zeros(size)
        if self.noise:
            repetitions = generator.normal(0, self.noise, (size, 2))
            expected = expected - expected.mean() + repetitions.mean(axis=1)
            within = repetitions.var(axis=1, ddof=1) / 2
        shares = np.clip(expected + mean, -1, 1)
        missing = generator.random(size) < self.unknown
        return ScenarioDifferences(
            neutral=np.where(missing, 0.0, shares),
            lowest=np.where(missing, -1.0, shares),
            highest=np.where(missing, 1.0, shares),
            within=within,
            repeated=bool(self.noise),
            tasks=size,
            clipped=0,
            unknown=int(missing.sum()),
        )


def normal(deviation: float) -> Draw:
    """Return differences of a score that varies around its mean."""
    return lambda generator, size: np.clip(generator.normal(0, deviation, size), -0.95, 0.95)


def rare_loss(share: float) -> Draw:
    """Return a small gain everywhere, and a loss of 0.9 in a share of the scenarios that makes up for it."""
    gain = 0.9 * share / (1 - share)
    return lambda generator, size: np.where(generator.random(size) < share, -0.9, generator.normal(gain, 0.002, size))


def losses_only(share: float) -> Draw:
    """Return ties, and losses in a share of the scenarios; its mean is below 0 by the margin, and is shifted by it."""
    return lambda generator, size: np.where(generator.random(size) < share, MARGIN - MARGIN / share, MARGIN)


def discordant(share: float) -> Draw:
    """Return differences of successes: 0, and 1 or -1 in a share of the scenarios."""
    return lambda generator, size: generator.choice([0.0, 0.95, -0.95], size, p=[1 - share, share / 2, share / 2])


CELLS: Sequence[Cell] = (
    Cell("deviation .2", normal(0.2)),
    Cell("deviation .02", normal(0.02)),
    *(Cell(f"small gain, loss of .9 at {share:g}", rare_loss(share)) for share in (0.003, 0.01, 0.03)),
    *(Cell(f"ties and losses at {share:g}", losses_only(share)) for share in (0.05, 0.1)),
    *(Cell(f"discordant {share:g}", discordant(share)) for share in (0.05, 0.3)),
    Cell("deviation .05, 60 % without a result", normal(0.05), unknown=0.6),
    Cell("list of .2, two repetitions with noise .1", normal(0.2), noise=0.1),
)


def part_of(whole: ScenarioDifferences, start: int, end: int) -> ScenarioDifferences:
    """Return the differences of one batch."""
    names = ("neutral", "lowest", "highest", "within")
    return replace(whole, **{name: getattr(whole, name)[start:end] for name in names})


def played(plan: TestPlan, whole: ScenarioDifferences) -> tuple[PairedTest, float]:
    """Return the test after all looks, and the share of the scenarios at which it first was better or worse."""
    test = PairedTest.begin(plan, resolution=0)
    stopped = 1.0
    for start, end in pairwise((0, *looks_of(plan.scenarios))):
        test = test.extend(part_of(whole, start, end))
        if stopped == 1.0 and (test.claims[Claim.BETTER] or test.claims[Claim.WORSE]):
            stopped = end / plan.scenarios
    return test, stopped


@dataclass(frozen=True, slots=True)
class Row:
    """Shares of the repetitions of a cell at a true mean: each claim, coverage, and scenarios until better or worse."""

    cell: str
    size: int
    mean: float
    method: str
    repetitions: int
    claims: dict[str, float]
    covered: float
    stopped: float


def simulate(job: tuple[str, int, float, Method, int]) -> Row:
    """Return the row of a cell; the job has its name, number of scenarios, true mean, method and repetitions."""
    name, size, mean, method, repetitions = job
    cell = next(cell for cell in CELLS if cell.name == name)
    generator = np.random.default_rng([size, round(1000 * mean) % 1000, *name.encode()])
    plan = TestPlan(bound=1.0, scenarios=size, design=cell.design, margin=MARGIN, method=method, error_rate=ERROR_RATE)
    counts, covered, stops = dict.fromkeys(Claim, 0), 0, 0.0
    for _ in range(repetitions):
        test, stopped = played(plan, cell.sample(generator, size, mean))
        for claim, holds in test.claims.items():
            counts[claim] += holds
        low, high = test.interval
        # what has no result is no difference in the interval, whatever it would have been
        covered += low <= mean * (1 - cell.unknown) <= high
        stops += stopped
    claims = {claim.value: count / repetitions for claim, count in counts.items()}
    return Row(name, size, mean, method.value, repetitions, claims, covered / repetitions, stops / repetitions)


def false_claims(row: Row) -> float:
    """Return the largest share of a false claim; one-sided claims are allowed half the error rate each."""
    false = []
    if row.mean <= 0:
        false.append(row.claims["better"])
    if row.mean >= 0:
        false.append(row.claims["worse"])
    if row.mean <= -MARGIN:
        false.append(row.claims["not_worse"])
    if abs(row.mean) >= MARGIN:
        false.append(row.claims["equivalent"])
    return max(false)


def main() -> None:
    """Print the grid."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--methods", nargs="*", default=[method.value for method in Method])
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    jobs = [
        (cell.name, size, mean, Method(method), max(100, min(options.repetitions, WORK // size)))
        for cell in CELLS
        for size in options.sizes
        for mean in (0.0, -MARGIN, MARGIN, 0.05)
        for method in options.methods
    ]
    began = time.monotonic()
    print(
        "| case | scenarios | true mean | method | wrong | better | worse | not worse | equivalent | covers | played |"
    )
    print("|---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for row in pool.imap(simulate, jobs):
            claims = " | ".join(f"{row.claims[name]:.3f}" for name in ("better", "worse", "not_worse", "equivalent"))
            print(
                f"| {row.cell} | {row.size} | {row.mean:g} | {row.method} | {false_claims(row):.3f} | {claims} |"
                f" {row.covered:.3f} | {row.stopped:.2f} |",
                flush=True,
            )
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
