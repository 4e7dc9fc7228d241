"""Deciding between two models: pairs that the sequential test plays, and its power, beside other designs.

Simulated differences, so that the true difference is known. Every design gets the same repetitions.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import sequential_peers as peers
from benchmarks.results import table
from core.domain.comparisons.one_sided_bets import OneSidedBets
from core.domain.comparisons.play_order import batch_sizes
from core.domain.results.parameter_columns import column_of
from core.domain.results.sensitivity import failure_sensitivities, metric_sensitivities
from core.domain.results.worst_combinations import worst_combinations

Floats = NDArray[np.float64]

REPETITIONS, SEED = 1000, 1
#: Standard deviation of differences of a score from 0 to 100, and the share of scenarios in which one model fails.
DEVIATION, DISCORDANT = 20.0, 0.3
#: True differences by kind and number of pairs: points of the score; difference of two success rates.
DIFFERENCES = {
    ("score", 288): (0.0, 2.0, 5.0, 10.0),
    ("score", 2000): (0.0, 1.0, 2.0, 5.0),
    ("success", 288): (0.0, 0.05, 0.1, 0.2),
    ("success", 2000): (0.0, 0.02, 0.05, 0.1),
}
PEERS: dict[str, Callable[[Floats], peers.Decisions]] = {
    "plug-in bets": peers.plug_in_betting,
    "empirical Bernstein": peers.bernstein,
    "mixture SPRT": peers.mixture_sprt,
    "O'Brien-Fleming": peers.group_sequential,
    "fixed": peers.fixed,
}
#: Parameters and results of the analysis that is timed.
PARAMETERS, RESULTS, RUNS = 100, 100_000, 3


def sampled(rng: np.random.Generator, kind: str, pairs: int, difference: float) -> Floats:
    """Return differences of a sample, as shares of their bound; shape (REPETITIONS, pairs)."""
    shape = (REPETITIONS, pairs)
    if kind == "score":
        return rng.normal(difference, DEVIATION, shape).clip(-100, 100) / 100
    draws = rng.random(shape)
    wins = (DISCORDANT + difference) / 2
    return np.where(draws < wins, 1.0, np.where(draws < DISCORDANT, -1.0, 0.0))


def listed(rng: np.random.Generator, kind: str, pairs: int, difference: float) -> Floats:
    """Return the differences of lists that have the true difference as their mean, in random order."""
    if kind == "score":
        rows = sampled(rng, kind, pairs, 0.0)
        return (rows - rows.mean(axis=1, keepdims=True) + difference / 100).clip(-1, 1)
    discordant, surplus = round(DISCORDANT * pairs), round(difference * pairs)
    wins = (discordant + surplus) // 2
    row = np.repeat([1.0, -1.0, 0.0], [wins, wins - surplus, pairs - 2 * wins + surplus])
    return rng.permuted(np.tile(row, (REPETITIONS, 1)), axis=1)


def betting(differences: Floats, pairs: int | None) -> peers.Decisions:
    """Decide by the product's test; ``pairs``: length of the list, None for a sample."""
    signs, stops = np.zeros(len(differences), np.int64), np.full(len(differences), differences.shape[1])
    start = OneSidedBets(null=0.0, threshold=math.log(2 / 0.05), pairs=pairs)
    for at, row in enumerate(differences):
        for sign in (1, -1):
            shown = start.extend(sign * row).shown_at
            if shown is not None and (not signs[at] or shown < stops[at]):
                signs[at], stops[at] = sign, shown
    return signs, stops


def figures_of(decisions: peers.Decisions, pairs: int) -> dict[str, float]:
    """Return the shares of repetitions that decided for either side, and the mean share of pairs that was played.

    ``batches``: the same if the test is looked at after each batch.
    """
    signs, stops = decisions
    ends = np.cumsum(list(batch_sizes(pairs)))
    batched = ends[np.searchsorted(ends, stops)]
    return {
        "better": float((signs > 0).mean()),
        "worse": float((signs < 0).mean()),
        "played": float(stops.mean() / pairs),
        "batches": float(batched.mean() / pairs),
    }


def measure() -> dict[str, Any]:
    """Measure every design at each true difference, and the time of an analysis of parameters."""
    rng = np.random.default_rng(SEED)
    rows = []
    for (kind, pairs), differences in DIFFERENCES.items():
        for difference in differences:
            sample, lists = sampled(rng, kind, pairs, difference), listed(rng, kind, pairs, difference)
            designs = {"list": betting(lists, pairs), "population": betting(sample, None)}
            designs |= {name: decide(sample) for name, decide in PEERS.items()}
            cells = {name: figures_of(decisions, pairs) for name, decisions in designs.items()}
            rows.append({"kind": kind, "pairs": pairs, "difference": difference, "designs": cells})
            print(f"   {kind}, {pairs} pairs, {difference:g}", flush=True)
    return {"repetitions": REPETITIONS, "rows": rows, "analysis": analysis()}


def analysis() -> dict[str, Any]:
    """Return the processor time of each analysis of many parameters: the least of a few runs, in seconds."""
    rng = np.random.default_rng(SEED)
    columns: dict[str, Any] = {f"number {at}": rng.normal(size=RESULTS) for at in range(PARAMETERS * 4 // 5)}
    names = np.array(["sun", "fog", "rain", "snow", "night"])
    columns |= {f"level {at}": names[rng.integers(0, 5, RESULTS)].tolist() for at in range(PARAMETERS // 5)}
    failed, metric = rng.random(RESULTS) < 0.05, rng.normal(size=RESULTS)
    shared = {name: column_of(values) for name, values in columns.items()}
    steps: dict[str, Callable[[], Any]] = {
        "columns": lambda: [column_of(values) for values in columns.values()],
        "with failure": lambda: failure_sensitivities(shared, failed),
        "with a metric": lambda: metric_sensitivities(shared, metric),
        "worst combinations": lambda: worst_combinations(shared, failed),
    }
    seconds = {}
    for name, step in steps.items():
        times = []
        for _ in range(RUNS):
            began = time.process_time()
            step()
            times.append(time.process_time() - began)
        seconds[name] = min(times)
    return {"parameters": PARAMETERS, "results": RESULTS, "seconds": seconds}


def section(figures: dict[str, Any]) -> str:
    """Return the section: decisions and pairs of each design, and the time of the analysis."""
    names = list(figures["rows"][0]["designs"])
    rows = []
    for row in figures["rows"]:
        unit = " points" if row["kind"] == "score" else ""
        cells = [
            f"{cell['better'] + (cell['worse'] if row['difference'] == 0 else 0):.2f} / {cell['played']:.2f}"
            for cell in row["designs"].values()
        ]
        rows.append([f"{row['kind']}, {row['pairs']:,} pairs, {row['difference']:g}{unit}", *cells])
    own = [
        (row["difference"], cell)
        for row in figures["rows"]
        for name, cell in row["designs"].items()
        if name in ("list", "population")
    ]
    wrong = max(cell["worse"] for difference, cell in own if difference)
    further = max(cell["batches"] - cell["played"] for _, cell in own)
    seconds = figures["analysis"]["seconds"]
    return "\n\n".join(
        [
            f"Error rate 5 %, {figures['repetitions']:,} repetitions: share that was decided for the better model (at "
            "a true difference of 0: for either, which is wrong) / share of the pairs that was played on average. "
            f"*Score*: from 0 to 100, differences with a standard deviation of {DEVIATION:g} points. *Success*: one of "
            f"the models fails in {DISCORDANT:.0%} of the scenarios, both or none in the others. *list* and "
            "*population* are the two designs of the platform's test, looked at after each pair; with batches they "
            f"play up to {further:.0%} of the pairs more. *plug-in bets*: capital with the predictable bets of "
            "Waudby-Smith and Ramdas; *empirical Bernstein*: their confidence sequence; *mixture SPRT*: with estimated "
            "variance, which keeps its error rate only approximately; *O'Brien-Fleming*: five looks that are fixed "
            "before; *fixed*: a test of all pairs. The peers are about the population and get the same differences as "
            f"*population*. The platform's designs decided for the worse model in at most {wrong:.1%} of the "
            "repetitions of a row with a difference.",
            table(["", *names], rows),
            f"Sensitivity to {figures['analysis']['parameters']} parameters of {figures['analysis']['results']:,} "
            "results, a fifth of them texts, in seconds of processor time: "
            + ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())
            + ".",
        ]
    )
