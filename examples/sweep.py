"""A sweep with its heat map: how much delay of its actions a controller bears, on which streets (docs/how-to/sweep.md).

python examples/sweep.py                     # writes heat-map.png
"""

from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plot

from windtunnel import Client

CONTROLLER = Path(__file__).with_name("controller.py")
STREET, DELAY = "scenario.street", "scenario.params.latency_steps"

with Client() as client:
    simulation = client.run(CONTROLLER, "car_street", sample=24, sweep={"latency_steps": [0, 2, 5, 10]})
    results = client.simulations.results(simulation.id).to_pandas()

grid = results.pivot_table("metrics.score", index=STREET, columns=DELAY)
print(grid.round(1).to_string())
figure, axes = plot.subplots(figsize=(6, 3), layout="constrained")
image = axes.imshow(grid, aspect="auto", vmin=0, vmax=100)
axes.set_xticks(range(grid.shape[1]), [f"{steps / 10:g} s" for steps in grid.columns])
axes.set_yticks(range(grid.shape[0]), grid.index)
axes.set_xlabel("delay of the actions")
figure.colorbar(image, label="mean score")
figure.savefig("heat-map.png", dpi=150)
