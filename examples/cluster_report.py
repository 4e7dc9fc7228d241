"""A report of measures of a cluster: those of several days over each other, and scaling beside published figures.

python examples/cluster_report.py ID [ID...]      # writes cluster-report.png (docs/measuring-a-cluster.md)

An ID is that of a simulation of the dataset cluster_network, or of a program whose metrics have `loop_seconds`.
"""

import sys

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plot

from windtunnel import Client

MEASURES = {"latency": "us", "bandwidth": "MB/s", "all_reduce": "us", "barrier": "us"}
#: Nodes, and the published share of time in all-reduce of LAMMPS with 64 x 16 x 16 cells, in percent.
PUBLISHED = {16: 8.5, 32: 12.1, 64: 23.6}

if len(sys.argv) == 1:
    sys.exit(__doc__)
figure, panels = plot.subplots(1, len(MEASURES) + 1, figsize=(20, 4), layout="constrained")
*measured, scaling = panels
reducing = {}
with Client() as client:
    for id in sys.argv[1:]:
        simulation = client.simulations.get(id)
        day = f"{simulation.created_at:%d %b %H:%M}"
        for result in client.simulations.results(simulation.id):
            seconds = [rank.all_reduce for rank in result.ranks if rank.all_reduce is not None]
            if "loop_seconds" in result.metrics and seconds:
                reducing[len(result.ranks)] = 100 * sum(seconds) / len(seconds) / result.metrics["loop_seconds"]
        if simulation.dataset.name != "cluster_network":
            continue
        table = client.simulations.results(simulation.id).to_pandas().sort_values("scenario.params.message_bytes")
        print(day, table[[f"metrics.{name}" for name in ("spread", "disk_write", "disk_sync")]].median().to_dict())
        for axes, name in zip(measured, MEASURES, strict=True):
            axes.loglog(table["scenario.params.message_bytes"], table[f"metrics.{name}"], "o-", label=day)
for axes, (name, unit) in zip(measured, MEASURES.items(), strict=True):
    axes.set(title=f"{name} ({unit})", xlabel="bytes of a message")
scaling.plot(PUBLISHED.keys(), PUBLISHED.values(), "s--", label="published, by nodes")
scaling.plot(sorted(reducing), [reducing[ranks] for ranks in sorted(reducing)], "o-", label="here, by ranks")
scaling.set(title="LAMMPS: time in all-reduce (%)", xlabel="nodes or ranks", ylim=(0, None))
scaling.set_xscale("log", base=2)
for axes in panels:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
figure.savefig("cluster-report.png", dpi=100)
