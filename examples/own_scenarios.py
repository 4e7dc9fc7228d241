"""Scenarios of one's own: registers the folder own_scenarios as a dataset, plays it, and prints where the pole falls.

python examples/own_scenarios.py        # it needs pandas: pip install 'windtunnel[pandas]'
"""

import sys
from importlib.util import find_spec
from pathlib import Path

from windtunnel import Client

if find_spec("pandas") is None:
    sys.exit("This example needs pandas: pip install 'windtunnel[pandas]'")
with Client() as client:
    dataset = client.datasets.push(Path(__file__).with_suffix(""), "tilted-poles")
    print(f"{dataset.name}@{dataset.version}: {dataset.tasks} scenarios")
    simulation = client.run("cartpole", f"{dataset.name}@{dataset.version}", repeat=5)
    results = client.simulations.results(simulation.id).to_pandas()

print(results.groupby("scenario.name", sort=False)["metrics.return"].agg(["mean", "min", "max"]).to_string())
