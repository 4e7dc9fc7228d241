"""`make bench-check`: run the benchmarks that have peers; compare their ratios with the recorded ones of this machine.

A ratio that is worse by more than a tenth is named with the commits since it was recorded, and the exit status is 1.
`python -m benchmarks.check [NAME ...]` checks only some of them.
"""

import subprocess
import sys

from benchmarks import ratios
from benchmarks.__main__ import BENCHMARKS
from benchmarks.figures import busy, machine
from benchmarks.ratios import Change
from benchmarks.results import table

#: Above this share of the processors in use by others, ratios are doubtful too.
BUSY = 0.25


def check(names: list[str]) -> int:
    """Measure and compare; return the exit status."""
    here, recorded = machine(), ratios.lines()
    changes: list[Change] = []
    for benchmark in BENCHMARKS:
        if benchmark.name not in ratios.RATIOS or (names and benchmark.name not in names):
            continue
        if (load := busy()) > BUSY:
            print(f"other processes use {load:.0%} of the processors; the ratios may be off")
        print(f"-- {benchmark.name}", flush=True)
        compared = ratios.compared(benchmark.name, ratios.of(benchmark.name, benchmark.measure()), here, recorded)
        if not compared:
            print(f"no run of {benchmark.name} on such a machine is recorded; `make bench` records one")
        changes += compared
    print(report(changes))
    return int(any(change.is_worse for change in changes))


def report(changes: list[Change]) -> str:
    """Return the comparison as a table, and below it what is worse, with the commits in which it became so."""
    rows = [
        [change.name, f"{change.recorded:.3g}", f"{change.now:.3g}", f"{change.change:+.0%}"]
        for change in sorted(changes, key=lambda change: change.change)
    ]
    parts = [table(["ratio", "recorded", "now", "change"], rows)] if rows else []
    for change in changes:
        if change.is_worse:
            parts.append(f"worse: {change.name}: {change.change:+.0%} in {_commits_since(change.commit)}")
    return "\n\n".join(parts)


def _commits_since(commit: str) -> str:
    start = commit.rstrip("+")
    log = subprocess.run(["git", "log", "--oneline", f"{start}..HEAD"], capture_output=True, text=True)
    known = log.returncode == 0
    names = log.stdout.splitlines()
    span = f"{start}..HEAD"
    if not known:
        return f"{span}, whose start is not in this clone"
    return f"{span}: {len(names)} commits" + "".join(f"\n    {name}" for name in names[:20])


if __name__ == "__main__":
    unknown = sorted(set(sys.argv[1:]) - ratios.RATIOS.keys())
    if unknown:
        sys.exit(
            f"no ratios of {', '.join(unknown)} are recorded; there are those of {', '.join(sorted(ratios.RATIOS))}"
        )
    sys.exit(check(sys.argv[1:]))
