"""Draw docs/eviction.svg, hit rate by capacity for each eviction policy: `python -m scripts.eviction`, some minutes."""

from pathlib import Path

import matplotlib

from benchmarks.eviction import POLICIES, UNITS, hit_rates

TARGET = Path("docs/eviction.svg")
CAPACITIES = (1, *range(10, 201, 10))
SEEDS = 3
TITLES = {"nr": "non-replacing", "lru": "LRU", "fifo": "FIFO", "random": "random"}


def draw() -> None:
    """Read through the cache service's store by each policy at every capacity, and write the picture, reproducibly."""
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "windtunnel", "svg.fonttype": "none", "font.size": 9}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4))
    for policy in POLICIES:
        rates = [hit_rates(policy, capacity, SEEDS) for capacity in CAPACITIES]
        (line,) = axes.plot(CAPACITIES, [rate["mean"] for rate in rates], label=TITLES[policy])
        lowest, highest = [rate["min"] for rate in rates], [rate["max"] for rate in rates]
        axes.fill_between(CAPACITIES, lowest, highest, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set_xlabel(f"capacity in units; the dataset has {UNITS}")
    axes.set_ylabel("hit rate in % (band: least and most epoch)")
    axes.set_xlim(0, 200)
    axes.set_ylim(0, 102)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(TARGET, metadata={"Date": None})


if __name__ == "__main__":
    draw()
